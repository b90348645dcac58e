package link

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"

	"kith.dev/core/api/v1alpha1"
)

// Apart keeps this side of contracts without a network: there is no tunnel to the peer, and nothing is agreed on with it. Its guests here, if there may be
// any, have addresses all the same, for the internet and for each other: of a range that this cluster chooses alone and the peer never hears of.
func (l *Linker) Apart(ctx context.Context, peer *v1alpha1.Peer, guests bool) error {
	p := l.plan(peer)
	p.turn.Lock()
	defer p.turn.Unlock()
	if !l.related(peer, "") { // since a moment ago
		return nil
	}
	if err := l.cfg.Gateway.RemovePeer(peer.Spec.ID); err != nil { // of a contract before; most often there is none
		return fmt.Errorf("take the tunnel to %s down: %w", peer.Name, err)
	}
	var network *v1alpha1.NetworkStatus
	if guests && l.cfg.Provides {
		here, err := l.alone(ctx, peer, p)
		if err != nil {
			return fmt.Errorf("addresses for guests of %s: %w", peer.Name, err)
		}
		network = &v1alpha1.NetworkStatus{GuestsHere: text(here)}
	}
	if equality.Semantic.DeepEqual(network, peer.Status.Network) {
		return nil
	}
	return l.write(ctx, peer, network)
}

// alone chooses the range of a peer's guests without asking the peer: that which they have, while it is free or in use by them. The caller has the turn.
func (l *Linker) alone(ctx context.Context, peer *v1alpha1.Peer, p *plan) (netip.Prefix, error) {
	held, _, err := l.cfg.Guests(ctx, peer)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("see whether there are any: %w", err)
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	p.there, p.aliases, p.ipv6 = direction{}, nil, nil
	r := l.room
	if r.taken, _, err = l.others(peer); err != nil {
		return netip.Prefix{}, fmt.Errorf("see which are in use here: %w", err)
	}
	here, err := p.here.name(netip.Prefix{}, l.guestBits(), held, r, peer.Spec.ID+"here")
	if err == nil {
		p.here.agree(here)
	}
	return here, err
}
