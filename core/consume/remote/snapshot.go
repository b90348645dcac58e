package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/wire"
)

// SnapshotPath is where a peer is asked for snapshots of volumes that it keeps: PUT a Snapshot there, which a SnapshotState answers, or DELETE with the UID
// of the VolumeSnapshot as the query "uid".
const SnapshotPath = "/kith/v2/namespaces/{home}/snapshots/{snapshot}"

// Snapshot is a VolumeSnapshot of home as it is asked for at a peer.
type Snapshot struct {
	UID types.UID `json:"uid"` // of the VolumeSnapshot at home
	// Claim is the claim whose volume it is of, and ClaimUID that of it at home. Without them it is about one that is there, and none is made.
	Claim    string    `json:"claim,omitempty"`
	ClaimUID types.UID `json:"claimUID,omitempty"`
}

// SnapshotState is what became of a Snapshot, as its peer answers.
type SnapshotState struct {
	Ready        bool      `json:"ready,omitempty"`
	CreationTime time.Time `json:"creationTime,omitzero"`
	Size         int64     `json:"size,omitempty"` // bytes that a volume needs that begins with it
	Why          string    `json:"why,omitempty"`  // it is not ready yet
}

// Bounds of a Snapshot, and of what is said of one.
const (
	maxSnapshot = 1 << 10 // bytes of JSON
	maxWhy      = 500
	lastYear    = 2200 // nanoseconds since 1970 are kept of it
)

var snapshotShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Snapshot]())

// ReadSnapshot takes a Snapshot from whoever sends one. The error is for the sender.
func ReadSnapshot(body io.Reader) (*Snapshot, error) {
	s := new(Snapshot)
	if err := readAsked(body, snapshotShape, maxSnapshot, s); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

// Validate says what of the snapshot no peer can give.
func (s *Snapshot) Validate() error {
	if err := CheckClaimUID(string(s.UID)); err != nil {
		return err
	}
	if s.Claim == "" && s.ClaimUID == "" {
		return nil
	}
	if s.Claim == "" || len(s.Claim) > 253 {
		return fmt.Errorf("claim: %.70q is no name", s.Claim)
	}
	if err := CheckClaimUID(string(s.ClaimUID)); err != nil {
		return fmt.Errorf("claimUID: %w", err)
	}
	return nil
}

// Validate says what in an answer cannot be meant.
func (s *SnapshotState) Validate() error {
	if s.Size < 0 || s.Ready && (s.Size == 0 || s.CreationTime.Unix() <= 0 || s.CreationTime.Year() > lastYear) || len(s.Why) > 4*maxWhy {
		return fmt.Errorf("size %d, ready %v, made at %s", s.Size, s.Ready, s.CreationTime)
	}
	return nil
}

// PutSnapshot has the peer make a snapshot of a volume that it keeps for a claim of the home namespace, or say how far that is.
func (c *Client) PutSnapshot(ctx context.Context, home, name string, s *Snapshot) (state SnapshotState, err error) {
	if err := c.pace.Wait(ctx); err != nil {
		return state, err
	}
	err = c.cfg.To.Call(ctx, http.MethodPut, c.path(snapshotPath(home, name), nil), s, &state)
	return state, err
}

// DeleteSnapshot has the peer delete one, with its data. The error is peering.CodeUnavailable until that is done.
func (c *Client) DeleteSnapshot(ctx context.Context, home, name string, uid types.UID) error {
	if err := c.pace.Wait(ctx); err != nil {
		return err
	}
	return c.cfg.To.Call(ctx, http.MethodDelete, c.path(snapshotPath(home, name), url.Values{"uid": {string(uid)}}), nil, nil)
}

// DeleteKeptSnapshot has a peer delete one that it keeps without a contract.
func DeleteKeptSnapshot(ctx context.Context, to *peering.Client, home, name string, uid types.UID) error {
	return to.Call(ctx, http.MethodDelete, snapshotPath(home, name)+"?"+url.Values{"uid": {string(uid)}}.Encode(), nil, nil)
}

func snapshotPath(home, name string) string {
	return "/kith/v2/namespaces/" + url.PathEscape(home) + "/snapshots/" + url.PathEscape(name)
}
