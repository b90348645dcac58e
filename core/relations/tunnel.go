package relations

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/relations/record"
)

// tunnelPatience is how long after the contact came about the first answer through the tunnel may take.
const tunnelPatience = 15 * time.Second

// tunnel says why nothing passes to a peer that can be reached. known is false when that cannot be said: the peer cannot be
// reached anyway, or the tunnel is still coming up; then again is when to look again.
func (l *Linker) tunnel(peer *v1alpha1.Peer, contact Contact, now time.Time) (why string, known bool, again time.Duration) {
	if !contact.Reachable || peer.Status.Network == nil {
		return "", false, 0
	}
	s, told := l.cfg.Gateway.Stats(peer.Spec.ID)
	switch left := contact.Since.Add(tunnelPatience).Sub(now); {
	case !told:
		return "", false, 0
	case s.Up:
		return "", true, 0
	case left > 0:
		return "", false, left
	}
	return "tunnel: " + s.Why(now), true, 0
}

// showTunnel keeps the condition of the Peer, and its node in step. That a tunnel is down shows in what packets are needed for;
// the relation is what it was, and nothing is evicted.
func (r *PeerReconciler) showTunnel(ctx context.Context, peer *v1alpha1.Peer, contact Contact) (again time.Duration, err error) {
	if r.linker == nil {
		return 0, nil
	}
	if peer.Status.Network == nil {
		if meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionTunnel) == nil {
			return 0, nil
		}
		return 0, record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) { meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionTunnel) })
	}
	why, known, again := r.linker.tunnel(peer, contact, time.Now())
	if !known {
		return again, nil
	}
	r.fleet.SetTunnel(peer.Name, why)
	condition := metav1.Condition{Type: v1alpha1.ConditionTunnel, Status: metav1.ConditionTrue, Reason: "Answers", Message: "the peer answers through it"}
	if why != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "NoAnswer", why
	}
	if was := meta.FindStatusCondition(peer.Status.Conditions, condition.Type); was != nil && was.Status == condition.Status {
		return 0, nil // how long it is down was said once, and goes on
	}
	if why != "" {
		r.log.Warn("nothing passes the tunnel", "peer", peer.Name, "why", why)
	}
	return 0, record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) { meta.SetStatusCondition(&s.Conditions, condition) })
}
