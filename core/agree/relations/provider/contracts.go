package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// How often a peer may list its contracts. While a contract ends here the peer asks twice a second, until everything is removed.
const (
	compareRate  = 4
	compareBurst = 20
)

// Contracts lists the contracts with the caller, also those that are ending, so that the caller can compare them with its own.
func (p *Provider) Contracts(_ context.Context, caller peering.Caller) ([]peering.ContractRef, error) {
	now := p.Client.Now()
	peer := now.Peer(caller.ID.String())
	if peer == nil {
		return nil, nil
	}
	limiter, _ := p.compares.LoadOrStore(caller.ID, rate.NewLimiter(compareRate, compareBurst))
	if !limiter.(*rate.Limiter).Allow() {
		return nil, peering.Refuse(peering.CodeRateLimited, "the contracts were asked for too often", "wait a second")
	}
	var refs []peering.ContractRef
	for _, ctr := range now.With(peer.Name, "") {
		role := contract.Provider
		if ctr.Spec.Role == v1alpha1.RoleConsumer {
			role = contract.Consumer
		}
		state := peering.State(ctr.Status.State)
		switch {
		case ctr.DeletionTimestamp != nil: // not cleared away yet
			state = api.StateEnding
		case state == "":
			state = api.StateContracted
		}
		ref := peering.ContractRef{ID: ctr.Spec.ID, Revision: ctr.Spec.Revision, Role: role, State: state}
		if role == contract.Provider {
			ref.Lowering = told(ctr, time.Now())
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// End ends a contract with the caller, whichever side it is on; what is not there has ended.
func (p *Provider) End(ctx context.Context, caller peering.Caller, id string) error {
	now := p.Client.Now()
	peer := now.Peer(caller.ID.String())
	if peer == nil {
		return nil
	}
	for _, ctr := range now.With(peer.Name, "") {
		if ctr.Spec.ID != id || ctr.DeletionTimestamp != nil {
			continue
		}
		p.Log.Info("peer ended the contract", "peer", peer.Name, "contract", id)
		return record.EndContract(ctx, p.Client, ctr, v1alpha1.EndedByPeer)
	}
	return nil
}

// Link agrees on the network with the caller.
func (p *Provider) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return p.Linker.Answer(ctx, caller, theirs)
}

// lastSigned is when something was signed with a consumer last; the zero time when that is longer ago than any contract is renewed.
func (p *Provider) lastSigned(consumer identity.ID) time.Time {
	at, _ := p.signed.Get(consumer)
	last, _ := at.(time.Time)
	return last
}

// Incoming keeps the direction in which this cluster provides.
func (p *Provider) Incoming(ctx context.Context, peer *v1alpha1.Peer, there presence.Presence, contracts []*v1alpha1.Contract, syncErr error) error {
	ctr := ledger.Live(contracts)
	switch {
	case ctr == nil && len(contracts) > 0: // the contract's own reconciler goes on
		return record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) { record.Step(&s.Incoming, peering.EventEnded, contracts[0].Status.Why) })
	case ctr == nil: // it went on while this one still saw the contract
		return record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) {
			if s.Incoming.State == v1alpha1.StateEnding {
				record.Step(&s.Incoming, peering.EventCleared, s.Incoming.Why)
			}
		})
	}
	if time.Now().After(ctr.Spec.NotAfter.Time) {
		return record.EndContract(ctx, p.Client, ctr, v1alpha1.EndRanOut)
	}
	if err := p.lower(ctx, peer, ctr); err != nil {
		return err
	}
	linked := peer.Status.Network != nil && peer.Status.Network.GuestsHere != "" && (peer.Status.Network.Linked() || sharing.NoNetwork(ctr))
	if linked {
		p.Host.SetHome(peer, there)
	}
	state, event, why := v1alpha1.StateContracted, peering.EventSigned, "signed, the link is being made"
	switch {
	case linked && there.Reachable() && syncErr == nil:
		state, event, why = v1alpha1.StateConnected, peering.EventLinkUp, ""
	case linked && !there.Reachable():
		state, event, why = v1alpha1.StateUnreachable, peering.EventLinkLost, there.Why
	}
	if err := record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) {
		if s.Incoming.Contract != ctr.Name || record.Finished(s.Incoming) { // what stands there is of a contract before this one
			s.Incoming = v1alpha1.DirectionStatus{}
			record.Step(&s.Incoming, peering.EventAsked, "")
			record.Step(&s.Incoming, peering.EventSigned, "")
		}
		record.Step(&s.Incoming, event, why)
		s.Incoming.Contract = ctr.Name
	}); err != nil {
		return err
	}
	return record.SetContract(ctx, p.Client, ctr, state, why)
}

// Tell leaves word of the end in the stream that the peer has open here. It gets through even when the peer did not
// answer a moment ago; should the stream break instead, the books are compared when there is a new one.
func (p *Provider) Tell(peer *v1alpha1.Peer, ctr *v1alpha1.Contract) {
	if id, err := identity.ParseID(peer.Spec.ID); err == nil {
		p.Notices.Send(id, peering.Notice{Type: peering.NoticeContractEnded, Contract: ctr.Spec.ID})
	}
}

// ClearAway tells the consumer, then takes its tenant away.
func (p *Provider) ClearAway(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	p.Tell(peer, ctr)
	if err := p.Host.EndContract(ctx, ctr); err != nil {
		return fmt.Errorf("clear away what %s had here: %w", peer.Name, err)
	}
	return nil
}

// noticeQueue bounds the notices queued for a peer that reads slowly; what it misses it learns from Contracts when it reconnects.
const noticeQueue = 16

// Notices hands what peers must know to the presence streams that are open to them. It outlives the Provider.
type Notices struct {
	mu     sync.Mutex
	listen map[identity.ID]map[chan peering.Notice]bool
}

// Subscribe gives the notices for one peer until ctx ends.
func (n *Notices) Subscribe(ctx context.Context, id identity.ID) <-chan peering.Notice {
	ch := make(chan peering.Notice, noticeQueue)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listen == nil {
		n.listen = map[identity.ID]map[chan peering.Notice]bool{}
	}
	if n.listen[id] == nil {
		n.listen[id] = map[chan peering.Notice]bool{}
	}
	n.listen[id][ch] = true
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listen[id], ch)
		if len(n.listen[id]) == 0 {
			delete(n.listen, id)
		}
	})
	return ch
}

// Send never blocks: a peer that misses a notice compares the contracts when it reconnects.
func (n *Notices) Send(id identity.ID, notice peering.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.listen[id] {
		select {
		case ch <- notice:
		default:
		}
	}
}
