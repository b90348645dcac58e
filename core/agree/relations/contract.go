package relations

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// contractsOf are those with a Peer.
func (r *Reconciler) contractsOf(_ context.Context, peer client.Object) (all []ctrl.Request) {
	for _, ctr := range r.Client.Now().With(peer.GetName(), "") {
		all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ctr)})
	}
	return all
}

// contract clears away what belongs to a contract that was deleted: only what is local is waited for.
func (r *Reconciler) contract(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ctr v1alpha1.Contract
	if err := r.Client.Get(ctx, req.NamespacedName, &ctr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var peer v1alpha1.Peer
	err := r.Client.Get(ctx, client.ObjectKey{Name: ctr.Spec.Peer}, &peer)
	if apierrors.IsNotFound(err) { // the API server has the word: somebody may have put both back, and what ends now ends for good
		err = r.Fresh.Get(ctx, client.ObjectKey{Name: ctr.Spec.Peer}, &peer)
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	forgotten := apierrors.IsNotFound(err) || record.OfAnotherKey(&ctr, &peer)
	if forgotten {
		peer = record.ForgottenPeer(&ctr)
	}
	switch {
	case ctr.DeletionTimestamp == nil && ctr.Status.State == v1alpha1.StateEnding: // whoever said so did not get further
		return ctrl.Result{}, record.EndContract(ctx, r.Client, &ctr, record.EndReason(&ctr))
	case ctr.DeletionTimestamp == nil && forgotten:
		return ctrl.Result{}, record.EndContract(ctx, r.Client, &ctr, v1alpha1.EndPeerForgotten)
	case ctr.DeletionTimestamp == nil: // when it is over the Peer's reconciler ends it
		return ctrl.Result{RequeueAfter: untilOver(&ctr)}, nil
	case !controllerutil.ContainsFinalizer(&ctr, v1alpha1.FinalizerContract):
		return ctrl.Result{}, nil
	case ctr.Spec.Role == v1alpha1.RoleProvider:
		err = r.Provider.ClearAway(ctx, &peer, &ctr)
	default:
		if err = r.Consumer.End(ctx, &peer, &ctr); err == nil {
			r.Provider.Tell(&peer, &ctr)
		}
	}
	if err == nil {
		err = r.buried(ctx, &peer, &ctr, forgotten)
	}
	return record.Calm(ctrl.Result{}, err)
}

// buried drops link, state and finalizer: nothing of the contract is left.
func (r *Reconciler) buried(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, forgotten bool) error {
	if err := r.Linker.Drop(ctx, peer); err != nil {
		return err
	}
	if !forgotten {
		if err := client.IgnoreNotFound(record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
			d, node := &s.Incoming, s.Node
			if ctr.Spec.Role == v1alpha1.RoleConsumer {
				d, node = &s.Outgoing, ""
			}
			if d.Contract != "" && d.Contract != ctr.Name {
				return // a newer contract has the place
			}
			s.Node = node
			record.Step(d, peering.EventEnded, "")
			record.Step(d, peering.EventCleared, ctr.Status.Why)
			d.Contract = ""
			if ctr.Spec.Role == v1alpha1.RoleConsumer {
				meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionGrantedInFull)
			}
		})); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(ctr, v1alpha1.FinalizerContract)
	if err := r.Client.Update(ctx, ctr); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Log.Info("contract ended", "peer", peer.Name, "contract", ctr.Spec.ID, "why", ctr.Status.Why)
	direction, kept := api.Incoming, ""
	if ctr.Spec.Role == v1alpha1.RoleConsumer {
		direction = api.Outgoing
		if api.Lends(record.Amounts(ctr.Spec.Resources)) {
			kept = "; volumes that are left there are kept for " + api.Span(record.Keeps(ctr))
		}
	}
	r.Announce(api.Event{Type: api.EventPeeringEnded, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name,
		Message:   "the contract with " + peer.Name + " is over: " + ctr.Status.Why + kept,
		Direction: direction, ByPeer: record.EndReason(ctr) == v1alpha1.EndedByPeer})
	return nil
}
