package relations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/peering"
)

// revise goes on with what was asked on top of a contract in force, and renews the contract when the last third of its
// time begins.
func (r *PeerReconciler) revise(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	switch out := peer.Status.Outgoing; {
	case peer.Spec.Request.Attempt > out.Attempt && stateOf(out) == v1alpha1.StateConnected:
		return r.ask(ctx, peer)
	case out.RequestID != "" || Asking(out):
		return r.pend(ctx, peer)
	}
	r.stopWaiting(peer.Name)
	old, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return fmt.Errorf("the contract with %s: %w", peer.Name, err)
	}
	if lasts := old.NotAfter.Sub(old.NotBefore); time.Until(old.NotAfter) > lasts/3 {
		return nil
	}
	to, err := r.directory.Client(peer)
	if err != nil {
		return err
	}
	doc := renewed(old, time.Now())
	signed, err := r.signWith(ctx, to, &doc)
	var problem *peering.Problem
	if errors.As(err, &problem) {
		r.log.Info("contract not renewed, it goes on to its end", "peer", peer.Name, "contract", old.ID, "until", old.NotAfter, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	return r.record(ctx, peer, ctr, signed, doc)
}

// renewed is the next revision of a document: the same amounts for the same time again, from now.
func renewed(old contract.Document, now time.Time) contract.Document {
	doc := old
	now = now.UTC().Truncate(time.Second)
	doc.Revision++
	doc.Created, doc.NotBefore = now, now.Add(-clockSkew)
	doc.NotAfter = doc.NotBefore.Add(old.NotAfter.Sub(old.NotBefore))
	return doc
}

// putContract makes a contract, or puts its next revision in the place of the old one.
func putContract(ctx context.Context, c client.Client, old, ctr *v1alpha1.Contract) error {
	if old == nil {
		return c.Create(ctx, ctr)
	}
	before := old.DeepCopy()
	ctr.Name, old.Spec = old.Name, ctr.Spec
	return c.Patch(ctx, old, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// grounds are what a provider may sign a document on: a request that the owner accepted, or, for the next revision of
// a contract in force, what that grants already.
type grounds struct {
	request *v1alpha1.PeeringRequest // nil for a renewal
	old     *v1alpha1.Contract       // nil for a new contract
}

// groundsFor finds them; the error is a refusal when there are none.
func (p *Provider) groundsFor(ctx context.Context, caller peering.Caller, doc contract.Document) (g grounds, err error) {
	if g.old, err = p.inForce(ctx, caller, doc); err != nil {
		return g, err
	}
	g.request, err = p.acceptedRequest(ctx, caller.ID)
	var refusal *peering.Problem
	if g.old != nil && errors.As(err, &refusal) {
		err = p.mayRenew(g.old, doc)
	}
	return g, err
}

// inForce is the contract that doc is a revision of; nil when it is a new one.
func (p *Provider) inForce(ctx context.Context, caller peering.Caller, doc contract.Document) (*v1alpha1.Contract, error) {
	peer, err := PeerByID(ctx, p.client, caller.ID)
	if err != nil || peer == nil {
		return nil, err
	}
	contracts, err := contractsWith(ctx, p.client, peer.Name, v1alpha1.RoleProvider)
	if err != nil {
		return nil, err
	}
	ctr := live(contracts)
	if ctr == nil || ctr.Spec.ID != doc.ID {
		return nil, nil
	}
	old, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return nil, err
	}
	if err := doc.Follows(old); err != nil {
		return nil, refuse(peering.CodeConflict, err.Error(), "")
	}
	return ctr, nil
}

// mayRenew lets a contract go on without a question as long as nobody gets more by it.
func (p *Provider) mayRenew(old *v1alpha1.Contract, doc contract.Document) error {
	want, err := quantities(doc.Resources)
	if err != nil {
		return refuse(peering.CodeBadRequest, err.Error(), "")
	}
	if over := exceeds(want, old.Spec.Resources); over != "" {
		return refuse(peering.CodeNoContract, "the revision grants more "+over+" than the contract, and nothing more was accepted", "ask first")
	}
	return nil
}
