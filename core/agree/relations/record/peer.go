package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// maxEndpoints of a Peer that are kept, newest first.
const maxEndpoints = 8

// EnsurePeer finds or makes the Peer of a cluster and adds endpoints that worked to it.
func EnsurePeer(ctx context.Context, c *ledger.Ledger, id identity.ID, displayName string, endpoints []string, source v1alpha1.Source) (*v1alpha1.Peer, error) {
	now := c.Now()
	if known := now.Peer(id.String()); known != nil {
		peer := known.DeepCopy()
		return peer, addEndpoints(ctx, c, peer, endpoints)
	}
	peer := Stranger(now, id, displayName)
	peer.Spec.DisplayName, peer.Spec.Endpoints, peer.Spec.Source = Label(displayName), endpoints, source
	err := c.Create(ctx, peer)
	if apierrors.IsAlreadyExists(err) { // made meanwhile
		if there := c.Now().Peer(id.String()); there != nil {
			return there.DeepCopy(), nil
		}
		peer.Name += "-" + id.Short()
		err = c.Create(ctx, peer)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the peer %s: %w", peer.Name, err)
	}
	return peer, nil
}

// Stranger is the Peer that a cluster would become that is not known here.
func Stranger(now *ledger.Snapshot, id identity.ID, name string) *v1alpha1.Peer {
	taken := func(n string) bool { return now.PeerNamed(n) != nil }
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: NameFor(id, name, taken)}, Spec: v1alpha1.PeerSpec{ID: id.String()}}
}

func addEndpoints(ctx context.Context, c client.Client, peer *v1alpha1.Peer, endpoints []string) error {
	merged := slices.Clone(endpoints)
	for _, e := range peer.Spec.Endpoints {
		if !slices.Contains(merged, e) && len(merged) < maxEndpoints {
			merged = append(merged, e)
		}
	}
	if len(endpoints) == 0 || slices.Equal(merged, peer.Spec.Endpoints) {
		return nil
	}
	before := peer.DeepCopy()
	peer.Spec.Endpoints = merged
	return c.Patch(ctx, peer, client.MergeFrom(before))
}

// SetDNSName notes the name by which a Peer was added, to follow it.
func SetDNSName(ctx context.Context, c client.Client, peer *v1alpha1.Peer, name string) error {
	if peer.Spec.DNSName == name {
		return nil
	}
	before := peer.DeepCopy()
	peer.Spec.DNSName = name
	if err := c.Patch(ctx, peer, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("note the name of peer %s: %w", peer.Name, err)
	}
	return nil
}

// PatchStatus changes the status of a Peer by a merge patch: only the fields that change() touched are
// written, so that both directions and the linker can write theirs without waiting for each other.
func PatchStatus(ctx context.Context, c client.Client, peer *v1alpha1.Peer, change func(*v1alpha1.PeerStatus), opts ...client.MergeFromOption) error {
	before := peer.DeepCopy()
	change(&peer.Status)
	if equality.Semantic.DeepEqual(before.Status, peer.Status) {
		return nil
	}
	if err := c.Status().Patch(ctx, peer, client.MergeFromWithOptions(before, opts...)); err != nil {
		return fmt.Errorf("write the status of peer %s: %w", peer.Name, err)
	}
	return nil
}

// Step takes a direction through the table of transitions, with the reason for people. The time only moves when
// the state does, and a question is on its way no more. What cannot happen in a state, an echo of the past, changes nothing.
func Step(d *v1alpha1.DirectionStatus, event peering.Event, why string) {
	next, ok := peering.Next(peering.State(d.State), event)
	if !ok {
		return
	}
	if state := v1alpha1.RelationState(next); d.State != state || d.Since == nil {
		now := metav1.Now()
		d.State, d.Since = state, &now
	}
	d.Why, d.Asking = why, false
}

// StateOf reads a state; a fresh object has none.
func StateOf(d v1alpha1.DirectionStatus) v1alpha1.RelationState {
	if d.State == "" {
		return v1alpha1.StateNone
	}
	return d.State
}

// AcceptKey notes that the owner of this cluster compared the peer's key.
func AcceptKey(s *v1alpha1.PeerStatus, reason string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: reason,
		Message: "the owner of this cluster accepted the peer's key",
	})
}

// Finished tells whether a direction is at the end of a contract, or at no contract at all.
func Finished(d v1alpha1.DirectionStatus) bool {
	switch StateOf(d) {
	case v1alpha1.StateNone, v1alpha1.StateDeclined, v1alpha1.StateExpired, v1alpha1.StateEnding:
		return true
	}
	return false
}

// Calm is the end of a reconciler: somebody else's write in between is no error, it is looked at again.
func Calm(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return result, err
}

// maxName keeps "kith-<name>" and "<name>-<short id>" within a DNS label.
const maxName = 40

// Label makes a DNS label (RFC 1123) of a name that a peer gave itself, "laptop" when nothing is left of it.
func Label(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == maxName {
			break
		}
	}
	if label := strings.Trim(b.String(), "-"); label != "" {
		return label
	}
	return "laptop"
}

// NameFor gives the name under which the cluster id, which calls itself name, is known here: that name when
// nobody else has it, else with its short ID, and should somebody have called himself just that, the ID alone. taken tells
// whether another cluster has a name.
func NameFor(id identity.ID, name string, taken func(string) bool) string {
	label := Label(name)
	if !taken(label) {
		return label
	}
	if second := label + "-" + strings.ToLower(id.Short()); !taken(second) {
		return second
	}
	return "peer-" + id.Compact()[:32] // 160 bits: nobody else has that
}
