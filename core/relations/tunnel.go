package relations

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// showTunnel keeps the condition of the Peer, and its node in step. That a tunnel is down shows in what packets are needed for;
// the relation is what it was, and nothing is evicted.
func (r *Reconciler) showTunnel(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact) (again time.Duration, err error) {
	if r.Linker == nil {
		return 0, nil
	}
	if peer.Status.Network == nil {
		if meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionTunnel) == nil {
			return 0, nil
		}
		return 0, record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionTunnel) })
	}
	why, known, again := r.Linker.Tunnel(peer, contact, time.Now())
	if !known {
		return again, nil
	}
	r.Fleet.SetTunnel(peer.Name, why)
	condition := metav1.Condition{Type: v1alpha1.ConditionTunnel, Status: metav1.ConditionTrue, Reason: "Answers", Message: "the peer answers through it"}
	if why != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "NoAnswer", why
	}
	if was := meta.FindStatusCondition(peer.Status.Conditions, condition.Type); was != nil && was.Status == condition.Status {
		return 0, nil // how long it is down was said once, and goes on
	}
	if why != "" {
		r.Log.Warn("nothing passes the tunnel", "peer", peer.Name, "why", why)
	}
	return 0, record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { meta.SetStatusCondition(&s.Conditions, condition) })
}
