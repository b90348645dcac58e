package link

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// say makes this side of the link after what the peer said, which is the zero value before it said anything; bound when the peer's WireGuard
// key is known. The caller has the turn.
func (l *Linker) say(ctx context.Context, peer *v1alpha1.Peer, p *plan, to identity.ID, theirs peering.Link) (peering.Link, error) {
	ours := peering.Link{
		PublicKey: l.cfg.Gateway.PublicKey().String(), Port: int(l.cfg.Port), Plan: peering.LinkPlan,
		Services: l.cfg.Network.Services, At: l.cfg.Network.Gateway(),
	}
	err := l.choose(ctx, peer, p, to, theirs, &ours)
	if err != nil {
		return ours, fmt.Errorf("addresses for guests of and at %s: %w", peer.Name, err)
	}
	ours.Onward = l.onward(peer)
	ours.Direct = l.Lets(peer)
	lets := theirs.Direct
	if theirs.PublicKey == "" { // it said nothing yet
		lets = peer.Status.Network != nil && peer.Status.Network.Direct
	}
	if ours.Others, err = l.introduce(peer, to, lets); err == nil && theirs.PublicKey != "" {
		ours.Binding, err = l.bind(to, theirs.PublicKey)
	}
	return ours, err
}

// choose completes a link by the ranges: the address space, those for guests, and, where guests here do not get their addresses from Kith,
// or pods are shared with the peer, aliases for the peer's address space. What it chooses is remembered at once, so that no other peer gets the same meanwhile.
func (l *Linker) choose(ctx context.Context, peer *v1alpha1.Peer, p *plan, to identity.ID, theirs peering.Link, ours *peering.Link) error {
	guestsHere, guestsThere, err := l.cfg.Guests(ctx, peer)
	if err != nil {
		return fmt.Errorf("see whether there are any: %w", err)
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, known, err := l.others(peer)
	if err != nil {
		return fmt.Errorf("see which are in use here: %w", err)
	}
	taken = append(taken, networksOf(peer.Status.Network)...)
	ours.Space = known.pods
	with := func(more ...netip.Prefix) room {
		r := l.room
		r.taken = slices.Concat(taken, theirs.Space, more)
		return r
	}

	// What the peer gives to our guests comes first to whoever provides: it is free at one side already.
	if l.cfg.Provides {
		ours.Here, err = p.here.name(theirs.There, l.guestBits(), guestsHere, with(theirs.Here, p.there.agreed), peer.Spec.ID+"here")
		if err != nil {
			return err
		}
		ours.AtHere = netplan.GuestGateway(ours.Here)
	}
	if said := theirs.Here; said.IsValid() || theirs.PublicKey == "" && p.there.agreed.IsValid() {
		ours.There, err = p.there.name(said, cmp.Or(said, p.there.agreed).Bits(), guestsThere, with(ours.Here), peer.Spec.ID+"there")
	}
	if l.ipv6() {
		ours.IPv6 = l.say6(p, to, known.pods6, taken, guestsHere || guestsThere)
	}
	if err != nil || !l.cfg.Provides {
		return err
	}
	if l.cfg.Links {
		if len(p.aliases) == 0 { // Share has some chosen when it needs them
			return nil
		}
		if !l.shares(peer) {
			p.aliases = nil
			return nil
		}
	} else if at, ok := (netplan.Mapping{Real: l.cfg.Network.Pods, Alias: ours.Here}).ToAlias(ours.At); ok {
		// The host answers by its own address in the pods' range, which is translated.
		ours.AtHere = at
	}
	if theirs.PublicKey == "" { // it did not say its address space yet
		return nil
	}
	return l.chooseAliases(p, peer, theirs.Space, slices.Concat(taken, []netip.Prefix{ours.Here, ours.There}), guestsHere)
}

func aliasesOf(list []netplan.Mapping) (ranges []netip.Prefix) {
	for _, m := range list {
		ranges = append(ranges, m.Alias)
	}
	return ranges
}

// guestBits is the length of a range for guests here.
func (l *Linker) guestBits() int {
	if l.cfg.Links {
		return netplan.GuestBits
	}
	return l.cfg.Network.Pods.Bits()
}

// Space is this cluster's address space as a peer hears of it: its pods first, then its guests at others than the peer. The zero value is that of
// who heard nothing.
type Space struct {
	pods, pods6 []netip.Prefix
	others      []v1alpha1.OtherProvider // to which it is introduced
	onward      []peering.Onward         // for whom it offers on what the peer grants
}

// Equal reports whether both are the same ranges.
func (s Space) Equal(other Space) bool {
	return slices.Equal(s.pods, other.pods) && slices.Equal(s.pods6, other.pods6) && reflect.DeepEqual(s.onward, other.onward) && equality.Semantic.DeepEqual(s.others, other.others)
}

// others gives the address ranges that this peer must not get: in use on this host, or by another peer, also by one that is not linked now
// and needs the same range again when it reconnects. known is what the peer is to hear of this cluster's. The caller holds choosing.
func (l *Linker) others(peer *v1alpha1.Peer) (taken []netip.Prefix, known Space, err error) {
	if taken, err = l.cfg.Gateway.Taken(peer.Spec.ID); err != nil {
		return nil, Space{}, err
	}
	for id, p := range l.plans {
		if id != peer.Spec.ID {
			taken = append(append(taken, aliasesOf(p.aliases)...), p.ipv6...) // not concatenated anew for each: a hub has a hundred
			taken = append(taken, p.here.agreed, p.here.named, p.there.agreed, p.there.named)
		}
	}
	pairs := l.pairs(peer)
	for _, pair := range pairs {
		taken = append(taken, pair.Ranges()...)
	}
	return taken, l.space(pairs), nil
}

// pairs are what was agreed on with the other peers.
func (l *Linker) pairs(but *v1alpha1.Peer) (list []netplan.Pair) {
	for _, other := range l.client.Now().Peers {
		if other.Name != but.Name {
			pair, _ := other.Status.Network.Pair(netip.Prefix{})
			list = append(list, pair)
		}
	}
	return list
}

// space is what a peer hears, given what was agreed on with the others.
func (l *Linker) space(others []netplan.Pair) Space {
	list := func(pods netip.Prefix, there func(netplan.Pair) netip.Prefix) []netip.Prefix {
		all := []netip.Prefix{pods}
		for _, pair := range others {
			if p := there(pair); p.IsValid() {
				all = append(all, p)
			}
		}
		slices.SortFunc(all[1:], netip.Prefix.Compare)
		return all[:min(len(all), netplan.MaxSpace)]
	}
	s := Space{pods: list(l.cfg.Network.Pods, func(p netplan.Pair) netip.Prefix { return p.There })}
	if l.ipv6() {
		s.pods6 = list(l.cfg.Network.IPv6.Pods, func(p netplan.Pair) netip.Prefix { return p.IPv6.There })
	}
	return s
}

// Space is what the peer hears when a link with it is proposed now.
func (l *Linker) Space(peer *v1alpha1.Peer) Space {
	s := l.space(l.pairs(peer))
	s.onward = l.onward(peer)
	s.others = l.introduced(peer, peer.Status.Network != nil && peer.Status.Network.Direct)
	return s
}

// Overlap is what of a peer's ranges is in use for something else here.
type Overlap struct {
	Ranges []netip.Prefix
	Kept   bool // of all of them guests have addresses: they stay until the last of those has ended
}

// Overlap tells of ranges of a peer that are in use for something else on the network that this laptop came to.
func (l *Linker) Overlap(ctx context.Context, peer *v1alpha1.Peer) Overlap {
	ranges := l.cfg.Gateway.Overlapping(peer.Spec.ID)
	if len(ranges) == 0 {
		return Overlap{}
	}
	pair, _ := peer.Status.Network.Pair(netip.Prefix{})
	here, there, err := l.cfg.Guests(ctx, peer)
	renewable := func(p netip.Prefix) bool {
		atPeer := p == pair.There || p == pair.IPv6.There
		return err == nil && !(atPeer && there) && !(!atPeer && here)
	}
	return Overlap{ranges, !slices.ContainsFunc(ranges, renewable)}
}
