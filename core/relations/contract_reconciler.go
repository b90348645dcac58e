package relations

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/queue"
	"kith.dev/core/relations/record"
)

// farewell bounds telling a peer that a contract ended; one that does not hear it finds out from the books.
const farewell = 3 * time.Second

// SetupWithManager registers what reacts to requests and to the end of contracts.
func (p *Provider) SetupWithManager(mgr ctrl.Manager, peers *PeerReconciler) error {
	grants := handler.EnqueueRequestsFromMapFunc(p.waiting)
	if err := ctrl.NewControllerManagedBy(mgr).Named("peeringrequest").
		For(&v1alpha1.PeeringRequest{}).
		Watches(&v1alpha1.SharingPolicy{}, grants).
		Watches(&v1alpha1.Contract{}, grants, builder.WithPredicates(promising)).
		Watches(&corev1.Node{}, grants, builder.WithPredicates(allocatable)).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(p.requests()); err != nil {
		return err
	}
	forgotten := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
	return ctrl.NewControllerManagedBy(mgr).Named("contract").
		For(&v1alpha1.Contract{}).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(p.contractsOf), forgotten).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, NewQueue: queue.New}).
		Complete(p.contracts(peers))
}

// contractsOf are those with a Peer.
func (p *Provider) contractsOf(ctx context.Context, peer client.Object) []ctrl.Request {
	var list v1alpha1.ContractList
	if err := p.client.List(ctx, &list); err != nil {
		p.log.Warn("the contracts with a peer that was forgotten may stand on", "peer", peer.GetName(), "err", err)
	}
	var all []ctrl.Request
	for _, ctr := range list.Items {
		if ctr.Spec.Peer == peer.GetName() {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&ctr)})
		}
	}
	return all
}

// contracts clears away what belongs to a contract that was deleted: only what is local is waited for.
func (p *Provider) contracts(peers *PeerReconciler) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		var ctr v1alpha1.Contract
		if err := p.client.Get(ctx, req.NamespacedName, &ctr); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		var peer v1alpha1.Peer
		err := p.client.Get(ctx, client.ObjectKey{Name: ctr.Spec.Peer}, &peer)
		if apierrors.IsNotFound(err) { // of a contract signed just now the Peer may be younger than the cache
			err = p.fresh.Get(ctx, client.ObjectKey{Name: ctr.Spec.Peer}, &peer)
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
			return ctrl.Result{}, record.EndContract(ctx, p.client, &ctr, ctr.Status.Why)
		case ctr.DeletionTimestamp == nil && forgotten:
			return ctrl.Result{}, record.EndContract(ctx, p.client, &ctr, "the peer was forgotten")
		case ctr.DeletionTimestamp == nil:
			if ctr.Spec.NotAfter != nil { // the Peer's reconciler ends it
				return ctrl.Result{RequeueAfter: time.Until(ctr.Spec.NotAfter.Time) + time.Second}, nil
			}
			return ctrl.Result{}, nil
		case !controllerutil.ContainsFinalizer(&ctr, v1alpha1.FinalizerContract):
			return ctrl.Result{}, nil
		case ctr.Spec.Role == v1alpha1.RoleProvider:
			err = p.endProviding(ctx, &peer, &ctr)
		default:
			if err = peers.endConsuming(ctx, &peer, &ctr); err == nil {
				p.tell(&peer, &ctr)
			}
		}
		if err == nil {
			err = p.buried(ctx, &peer, &ctr, forgotten)
		}
		return record.Calm(ctrl.Result{}, err)
	}
}

// tell leaves word of the end in the stream that the peer has open here. It gets through even when the peer did not
// answer a moment ago; should the stream break instead, the books are compared when there is a new one.
func (p *Provider) tell(peer *v1alpha1.Peer, ctr *v1alpha1.Contract) {
	if id, err := identity.ParseID(peer.Spec.ID); err == nil {
		p.notices.Send(id, peering.Notice{Type: peering.NoticeContractEnded, Contract: ctr.Spec.ID})
	}
}

// endProviding tells the consumer, then takes its tenant away.
func (p *Provider) endProviding(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	p.tell(peer, ctr)
	if err := p.host.EndContract(ctx, ctr); err != nil {
		return fmt.Errorf("clear away what %s had here: %w", peer.Name, err)
	}
	return nil
}

// endConsuming brings the pods home, takes the node away and tells the provider.
func (r *PeerReconciler) endConsuming(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	to := r.answering(ctx, peer)
	if to != nil && peer.Status.Network != nil {
		// The node is what ends the pods abroad; in a daemon that was just started it does not run yet.
		if err := r.fleet.Ensure(ctx, peer, ctr); err != nil {
			return err
		}
		r.fleet.SetReachable(peer.Name)
	}
	retiring, done := context.WithCancel(ctx)
	err := r.fleet.Retire(ctx, peer.Name, to != nil, r.left(retiring, peer, ctr, to))
	done()
	if err != nil {
		return fmt.Errorf("bring the pods home from %s: %w", peer.Name, err)
	}
	if to != nil {
		bounded, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		if err := to.End(bounded, ctr.Spec.ID); err != nil {
			r.log.Info("the peer will find out later that the contract ended", "peer", peer.Name, "contract", ctr.Spec.ID, "err", err)
		}
	}
	adv := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: peer.Name}}
	return client.IgnoreNotFound(r.client.Delete(ctx, adv))
}

// askEvery is how often a peer that ended a contract is asked whether all under it is cleared away.
const askEvery = 500 * time.Millisecond

// left gives a channel that is closed when the peer has cleared away what was under the contract, because it ended
// the contract too, or cannot be reached any more: its door is shut then, and nobody tells that a pod has ended.
func (r *PeerReconciler) left(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, to *peering.Client) <-chan struct{} {
	if to == nil {
		return nil
	}
	left := make(chan struct{})
	go func() {
		for {
			bounded, cancel := context.WithTimeout(ctx, farewell)
			refs, err := to.Contracts(bounded)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && !slices.ContainsFunc(refs, func(ref peering.ContractRef) bool { return ref.ID == ctr.Spec.ID }),
				err != nil && !r.directory.Contact(peer).Reachable:
				close(left)
				return
			}
			select {
			case <-time.After(askEvery):
			case <-ctx.Done():
				return
			}
		}
	}()
	return left
}

// answering is the client of a peer that answers at this moment, else nil: a contact whose laptop lost its power
// looks alive for some seconds more.
func (r *PeerReconciler) answering(ctx context.Context, peer *v1alpha1.Peer) *peering.Client {
	if !r.directory.Contact(peer).Reachable {
		return nil
	}
	to, err := r.directory.Client(peer)
	if err != nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if _, err := to.Hello(bounded); err != nil {
		return nil
	}
	return to
}

// buried drops link, state and finalizer: nothing of the contract is left.
func (p *Provider) buried(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, forgotten bool) error {
	if err := p.linker.Drop(ctx, peer); err != nil {
		return err
	}
	if !forgotten {
		if err := client.IgnoreNotFound(record.PatchStatus(ctx, p.client, peer, func(s *v1alpha1.PeerStatus) {
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
	if err := p.client.Update(ctx, ctr); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.log.Info("contract ended", "peer", peer.Name, "contract", ctr.Spec.ID, "why", ctr.Status.Why)
	direction := api.Incoming
	if ctr.Spec.Role == v1alpha1.RoleConsumer {
		direction = api.Outgoing
	}
	p.announce(api.Event{Type: api.EventPeeringEnded, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name,
		Message:   "the contract with " + peer.Name + " is over: " + ctr.Status.Why,
		Direction: direction, ByPeer: ctr.Status.Why == record.EndedBy(peer.Name)})
	return nil
}
