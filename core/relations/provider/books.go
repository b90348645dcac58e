package provider

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/record"
)

// How often a peer may compare the books. One whose contract ends here asks twice a second until all is cleared away.
const (
	compareRate  = 4
	compareBurst = 20
)

// Contracts are the contracts with the caller, those that are ending too, for comparing the books.
func (p *Provider) Contracts(ctx context.Context, caller peering.Caller) ([]peering.ContractRef, error) {
	peer, err := record.PeerByID(ctx, p.Client, caller.ID)
	lately := peer == nil && p.signedLately(caller.ID) // its Peer may be younger than the cache: not to know it ends the contract
	if err != nil || peer == nil && !lately {
		return nil, err
	}
	if !p.mayCompare(caller.ID) {
		return nil, peering.Refuse(peering.CodeRateLimited, "the contracts were asked for too often", "wait a second")
	}
	if lately {
		if peer, err = record.PeerByID(ctx, p.Fresh, caller.ID); err != nil || peer == nil {
			return nil, err
		}
	}
	var list v1alpha1.ContractList
	if err := p.Fresh.List(ctx, &list); err != nil { // a cache that is behind would end a contract signed just now
		return nil, err
	}
	var refs []peering.ContractRef
	for _, ctr := range list.Items {
		if ctr.Spec.Peer != peer.Name {
			continue
		}
		role := contract.Provider
		if ctr.Spec.Role == v1alpha1.RoleConsumer {
			role = contract.Consumer
		}
		state := peering.State(ctr.Status.State)
		switch {
		case ctr.DeletionTimestamp != nil: // not cleared away yet
			state = peering.Ending
		case state == "":
			state = peering.Contracted
		}
		refs = append(refs, peering.ContractRef{ID: ctr.Spec.ID, Revision: ctr.Spec.Revision, Role: role, State: state})
	}
	return refs, nil
}

// End ends a contract with the caller, whichever side it is on; what is not there has ended.
func (p *Provider) End(ctx context.Context, caller peering.Caller, id string) error {
	peer, err := record.PeerByID(ctx, p.Client, caller.ID)
	if err != nil || peer == nil {
		return err
	}
	var list v1alpha1.ContractList
	if err := p.Client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		ctr := &list.Items[i]
		if ctr.Spec.Peer != peer.Name || ctr.Spec.ID != id || ctr.DeletionTimestamp != nil {
			continue
		}
		p.Log.Info("peer ended the contract", "peer", peer.Name, "contract", id)
		return record.EndContract(ctx, p.Client, ctr, record.EndedBy(peer.Name))
	}
	return nil
}

// Link agrees on the network with the caller.
func (p *Provider) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return p.Linker.Answer(ctx, caller, theirs)
}

// signedWith notes that something was signed with a consumer.
func (p *Provider) signedWith(consumer identity.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, at := range p.last {
		if now.Sub(at) > record.Validity/record.RenewalPause {
			delete(p.last, other)
		}
	}
	p.last[consumer] = now
}

// signedLately reports whether something was signed with a consumer so short a time ago that a cache may not have it yet.
func (p *Provider) signedLately(consumer identity.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.last[consumer]
	return ok && time.Since(at) < record.Young
}

// mayCompare reports whether a peer may have the books read once more: that is a read of the API server itself.
func (p *Provider) mayCompare(id identity.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.books[id]
	if limiter == nil {
		limiter = rate.NewLimiter(compareRate, compareBurst)
		p.books[id] = limiter
	}
	return limiter.Allow()
}
