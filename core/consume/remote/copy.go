package remote

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/agree/peering"
)

// CopyPath is where the files of a claim's volume are read and written: an upgrade to CopyProtocol, with the UID of the claim as the query "uid" and
// a CopyEnd as "as". Without a contract it is about a volume that is kept since the last one ended, and goes out alone.
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
	return c.cfg.To.Upgrade(ctx, c.path(claimPath(home, name)+"/files", url.Values{"uid": {string(uid)}, "as": {string(end)}}), CopyProtocol)
}

// CopyKept opens a copy of a volume's files from a peer that keeps them without a contract.
func CopyKept(ctx context.Context, to *peering.Client, home, name string, uid types.UID, end CopyEnd) (io.ReadWriteCloser, error) {
	return to.Upgrade(ctx, claimPath(home, name)+"/files?"+url.Values{"uid": {string(uid)}, "as": {string(end)}}.Encode(), CopyProtocol)
}

// DeleteKept has a peer delete a volume that it keeps without a contract.
func DeleteKept(ctx context.Context, to *peering.Client, home, name string, uid types.UID) error {
	return to.Call(ctx, http.MethodDelete, claimPath(home, name)+"?"+url.Values{"uid": {string(uid)}}.Encode(), nil, nil)
}
