package relations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/peering"
	"kith.dev/core/relations/record"
)

// revise goes on with what was asked on top of a contract in force, and renews the contract when its time comes. again says
// when that is.
func (r *PeerReconciler) revise(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (again time.Duration, err error) {
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

// Consuming is the contract in force under which this cluster consumes from a peer; nil when there is none.
func Consuming(ctx context.Context, c client.Reader, peer *v1alpha1.Peer) (*v1alpha1.Contract, error) {
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

// grounds are what a provider may sign a document on: a request that the owner accepted, or, for the next revision of
// a contract in force, what that grants already.
type grounds struct {
	request *v1alpha1.PeeringRequest // nil for a renewal
	old     *v1alpha1.Contract       // nil for a new contract
}

// groundsFor finds them; the error is a refusal when there are none.
func (p *Provider) groundsFor(ctx context.Context, caller peering.Caller, doc contract.Document) (g grounds, err error) {
	var old contract.Document
	if g.old, old, err = p.inForce(ctx, caller, doc); err != nil {
		return g, err
	}
	g.request, err = p.acceptedRequest(ctx, caller.ID)
	var refusal *peering.Problem
	switch {
	case g.old == nil:
	case errors.As(err, &refusal):
		err = p.mayRenew(caller.ID, g.old, old, doc)
	case err == nil && beside(g.request, old, doc) && p.mayRenew(caller.ID, g.old, old, doc) == nil:
		g.request = nil
	}
	return g, err
}

// beside reports whether a document is a renewal of the old one while a request for other amounts is accepted.
func beside(request *v1alpha1.PeeringRequest, old, doc contract.Document) bool {
	says, err := record.Quantities(doc.Resources)
	if err != nil || !reflect.DeepEqual(old.Terms, doc.Terms) {
		return false
	}
	for name, asked := range request.Spec.Resources {
		if q, ok := says[name]; !ok || q.Cmp(asked) != 0 {
			return true
		}
	}
	return false
}

// ofNobodyElse refuses the ID of another's contract for a new one: consumers choose the IDs, and what is kept by them here,
// tenants and their pods, must not be another's.
func (p *Provider) ofNobodyElse(ctx context.Context, peer, id string) error {
	var list v1alpha1.ContractList
	if err := p.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("see whose contracts there are: %w", err)
	}
	if slices.ContainsFunc(list.Items, func(c v1alpha1.Contract) bool { return c.Spec.ID == id && c.Spec.Peer != peer }) {
		return peering.Refuse(peering.CodeConflict, "there is a contract of that ID already", "draw another ID")
	}
	return nil
}

// inForce is the contract that doc is a revision of, and what it says; nil when it is a new one.
func (p *Provider) inForce(ctx context.Context, caller peering.Caller, doc contract.Document) (ctr *v1alpha1.Contract, old contract.Document, err error) {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	if err != nil {
		return nil, old, err
	}
	if peer == nil {
		return nil, old, p.ofNobodyElse(ctx, "", doc.ID)
	}
	contracts, err := record.Contracts(ctx, p.client, peer.Name, v1alpha1.RoleProvider)
	if err != nil {
		return nil, old, err
	}
	ctr = record.Live(contracts)
	if ctr == nil || ctr.Spec.ID != doc.ID {
		return nil, old, p.ofNobodyElse(ctx, peer.Name, doc.ID)
	}
	if old, err = contract.Parse(ctr.Spec.Document); err != nil {
		return nil, old, err
	}
	if err := doc.Follows(old); err != nil {
		return nil, old, peering.Refuse(peering.CodeConflict, err.Error(), "")
	}
	return ctr, old, nil
}
