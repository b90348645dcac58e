package remote

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
)

// CopyPath is where the files of a claim's volume are read and written: an upgrade to CopyProtocol, with the UID of the claim as the query "uid" and
// a CopyEnd as "as".
const (
	CopyPath     = ClaimPath + "/files"
	CopyProtocol = "kith-treecopy"
)

// CopyEnd is which end of a copy (core/base/treecopy) the peer is.
type CopyEnd string

const (
	CopyFrom      CopyEnd = "from"       // the peer sends, whatever guests write meanwhile
	CopyFromStill CopyEnd = "from-still" // the peer sends, and refuses while guests have the claim
	CopyInto      CopyEnd = "into"       // the peer receives; it refuses while guests have the claim
)

// CopyClaim opens a copy of a volume's files from the peer, or into it. The peer's own no is a *peering.Problem.
func (c *Client) CopyClaim(ctx context.Context, home, name string, uid types.UID, end CopyEnd) (io.ReadWriteCloser, error) {
	if err := c.pace.Wait(ctx); err != nil {
		return nil, err
	}
	path := c.path("/kith/v2/namespaces/"+url.PathEscape(home)+"/claims/"+url.PathEscape(name)+"/files", url.Values{"uid": {string(uid)}, "as": {string(end)}})
	conn, err := c.cfg.To.Upgrade(ctx, path, CopyProtocol)
	if err != nil {
		return nil, fmt.Errorf("files of claim %s/%s at %s: %w", home, name, c.cfg.Peer, err)
	}
	return conn, nil
}
