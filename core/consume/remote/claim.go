package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api"
	"kith.dev/core/trust/wire"
)

// ClaimPath is where a peer is asked for volumes: PUT a Claim there, which a ClaimState answers, or DELETE with the UID of the claim as the query "uid".
const ClaimPath = "/kith/v2/namespaces/{home}/claims/{claim}"

// Claim is a PersistentVolumeClaim of home as its volume is asked for at a peer.
type Claim struct {
	UID         types.UID                           `json:"uid"`     // of the claim at home
	Storage     string                              `json:"storage"` // a quantity, in bytes
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	// VolumeMode is Filesystem or nothing, which is the same.
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// Class is the storage class there; left out it is the default one. An older peer knows none, and no contract with it grants any.
	Class string `json:"class,omitempty"`
	// Snapshot is the UID of the VolumeSnapshot at home that the volume begins with, of which the peer has one; left out it begins empty. An older peer
	// knows none, and is not asked: it has no snapshot, which it says when it is asked for that.
	Snapshot types.UID `json:"snapshot,omitempty"`
}

// ClaimState is what became of a Claim, as its peer answers. An older one, whose volumes do not grow, says nothing.
type ClaimState struct {
	Phase corev1.PersistentVolumeClaimPhase `json:"phase,omitempty"` // Pending or Bound
	// Capacity is how large its volume is; "" while it has none.
	Capacity string `json:"capacity,omitempty"`
	// FileSystemPending: the volume is larger, and its file system will be with the next pod that starts.
	FileSystemPending bool `json:"fileSystemPending,omitempty"`
}

// Validate says what in an answer cannot be meant.
func (s *ClaimState) Validate() error {
	switch s.Phase {
	case "", corev1.ClaimPending, corev1.ClaimBound:
	default:
		return fmt.Errorf("phase: %.20q", s.Phase)
	}
	if s.Capacity == "" {
		return nil
	}
	size, err := (&Claim{Storage: s.Capacity}).Size()
	if err != nil || size.Sign() < 0 {
		return fmt.Errorf("capacity: %.40q is not an amount such as 10Gi", s.Capacity)
	}
	return nil
}

// Bounds of a Claim.
const (
	maxClaim   = 4 << 10 // bytes of JSON
	maxUID     = 63      // it is a label's value
	maxStorage = 32
)

var claimShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Claim]())

// ReadClaim takes a Claim from whoever sends one. The error is for the sender.
func ReadClaim(body io.Reader) (*Claim, error) {
	c := new(Claim)
	if err := readAsked(body, claimShape, maxClaim, c); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// readAsked takes what a consumer asks for, of no more than most bytes of JSON. The error is for the sender.
func readAsked(body io.Reader, shape *wire.Shape, most int, into any) error {
	data, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	switch {
	case err != nil:
		return errors.New("body: did not come whole and in time")
	case len(data) > most:
		return fmt.Errorf("body: more than %d bytes", most)
	}
	if err := shape.Check(data, wire.Bound{Factor: 12, Slack: int64(most)}); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

// uidLetters are those of a UUID, as API servers make UIDs.
const uidLetters = "0123456789abcdefABCDEF-"

// Validate says what of the claim no peer can give.
func (c *Claim) Validate() error {
	if err := CheckClaimUID(string(c.UID)); err != nil {
		return err
	}
	if size, err := c.Size(); err != nil || size.Sign() <= 0 {
		return fmt.Errorf("storage: %.40q is not an amount such as 10Gi", c.Storage)
	}
	if c.VolumeMode != "" && c.VolumeMode != corev1.PersistentVolumeFilesystem {
		return fmt.Errorf("volumeMode %.20q: volumes at peers are file systems", c.VolumeMode)
	}
	if c.Snapshot != "" {
		if err := CheckClaimUID(string(c.Snapshot)); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	if c.Class != "" && !api.IsStorageClass(c.Class) {
		return fmt.Errorf("class: %.70q is not the name of a storage class that can be shared", c.Class)
	}
	if len(c.AccessModes) == 0 || len(c.AccessModes) > 4 {
		return fmt.Errorf("accessModes: %d of them", len(c.AccessModes))
	}
	for _, mode := range c.AccessModes {
		if !slices.Contains([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}, mode) {
			return fmt.Errorf("accessModes: %.20q is not to be had at a peer: its volumes are of one node, ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	return nil
}

// Size is how much it asks for.
func (c *Claim) Size() (resource.Quantity, error) {
	if len(c.Storage) > maxStorage {
		return resource.Quantity{}, errors.New("too long")
	}
	return resource.ParseQuantity(c.Storage)
}

// CheckClaimUID says whether a text can be a claim's UID.
func CheckClaimUID(uid string) error {
	other := func(r rune) bool { return !slices.Contains([]rune(uidLetters), r) }
	if uid == "" || len(uid) > maxUID || slices.ContainsFunc([]rune(uid), other) || uid[0] == '-' || uid[len(uid)-1] == '-' {
		return fmt.Errorf("uid: %.70q is no UID", uid)
	}
	return nil
}

// PutClaim has the peer keep a volume for a claim of the home namespace, which has a twin there, or make it larger. The peer's own no is a *peering.Problem.
func (c *Client) PutClaim(ctx context.Context, home, name string, claim *Claim) (state ClaimState, err error) {
	if err := c.pace.Wait(ctx); err != nil {
		return state, err
	}
	err = c.cfg.To.Call(ctx, http.MethodPut, c.path(claimPath(home, name), nil), claim, &state)
	return state, err
}

// DeleteClaim has the peer delete a volume, with its data.
func (c *Client) DeleteClaim(ctx context.Context, home, name string, uid types.UID) error {
	if err := c.pace.Wait(ctx); err != nil {
		return err
	}
	return c.cfg.To.Call(ctx, http.MethodDelete, c.path(claimPath(home, name), url.Values{"uid": {string(uid)}}), nil, nil)
}

func claimPath(home, name string) string {
	return "/kith/v2/namespaces/" + url.PathEscape(home) + "/claims/" + url.PathEscape(name)
}
