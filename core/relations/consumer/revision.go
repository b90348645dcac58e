package consumer

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/relations/record"
)

// revise goes on with what was asked on top of a contract in force, and renews the contract when its time comes. again says
// when that is.
func (r *Consumer) revise(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (again time.Duration, err error) {
	switch out := peer.Status.Outgoing; {
	case peer.Spec.Request.Attempt > out.Attempt && record.StateOf(out) == v1alpha1.StateConnected:
		return 0, r.ask(ctx, peer)
	case out.RequestID != "" || Asking(out): // what is in force does not wait for it
		if err := r.pend(ctx, peer); err != nil {
			return 0, err
		}
	default:
		r.stopWaiting(peer.Name)
	}
	return r.renew(ctx, peer, ctr)
}

// Wanted is all that the request of a Peer asks for. What it does not name stays as the contract in force has it, which may be
// nil: then it is up to the provider.
func Wanted(peer *v1alpha1.Peer, inForce *v1alpha1.Contract) corev1.ResourceList {
	wanted := corev1.ResourceList{}
	if inForce != nil {
		maps.Copy(wanted, inForce.Spec.Resources)
	}
	if peer.Spec.Request != nil {
		maps.Copy(wanted, peer.Spec.Request.Resources)
	}
	return wanted
}

// InForce is the contract in force under which this cluster consumes from a peer; nil when there is none.
func InForce(ctx context.Context, c client.Reader, peer *v1alpha1.Peer) (*v1alpha1.Contract, error) {
	name := peer.Status.Outgoing.Contract
	if name == "" {
		return nil, nil
	}
	var ctr v1alpha1.Contract
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &ctr); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if ctr.Spec.Role != v1alpha1.RoleConsumer || record.OfAnotherKey(&ctr, peer) {
		return nil, nil
	}
	return record.Live([]v1alpha1.Contract{ctr}), nil
}
