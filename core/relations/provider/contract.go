package provider

import (
	"context"
	"fmt"
	"time"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// Incoming keeps the direction in which this cluster provides.
func (p *Provider) Incoming(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, contracts []v1alpha1.Contract, syncErr error) error {
	ctr := record.Live(contracts)
	switch {
	case ctr == nil && len(contracts) > 0: // the contract's own reconciler goes on
		return record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) { record.Step(&s.Incoming, peering.EventEnded, contracts[0].Status.Why) })
	case ctr == nil:
		return nil
	}
	if time.Now().After(ctr.Spec.NotAfter.Time) {
		return record.EndContract(ctx, p.Client, ctr, "the contract ran out")
	}
	linked := peer.Status.Network != nil && len(peer.Status.Network.Ours) > 0
	if linked {
		p.Host.SetHome(peer, contact.Reachable)
	}
	state, event, why := v1alpha1.StateContracted, peering.EventSigned, "signed, the link is being made"
	switch {
	case linked && contact.Reachable && syncErr == nil:
		state, event, why = v1alpha1.StateConnected, peering.EventLinkUp, ""
	case linked && !contact.Reachable:
		state, event, why = v1alpha1.StateUnreachable, peering.EventLinkLost, contact.Why
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
