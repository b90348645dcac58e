package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
)

// say makes this side of the link after what the peer said, which is the zero value before it said anything; bound when the peer's WireGuard
// key is known. The caller has the turn.
func (l *Linker) say(ctx context.Context, peer *v1alpha1.Peer, p *plan, to identity.ID, theirs peering.Link) (peering.Link, error) {
	ours := peering.Link{
		PublicKey: l.cfg.Gateway.PublicKey().String(), Port: int(l.cfg.Port), Plan: peering.LinkPlan,
		Space: l.space(ctx, peer), Services: l.cfg.Network.Services, At: l.cfg.Network.Gateway(),
	}
	if err := l.choose(ctx, peer, p, theirs, &ours); err != nil {
		return ours, fmt.Errorf("addresses for guests of and at %s: %w", peer.Name, err)
	}
	if theirs.PublicKey == "" {
		return ours, nil
	}
	var err error
	ours.Binding, err = l.bind(to, theirs.PublicKey)
	return ours, err
}

// choose completes a link by what this side decides: the ranges for guests and the handle, and, where guests here do not get their
// addresses from Kith, aliases for the peer's address space. It is remembered at once, so that no other peer gets the same meanwhile.
func (l *Linker) choose(ctx context.Context, peer *v1alpha1.Peer, p *plan, theirs peering.Link, ours *peering.Link) error {
	guestsHere, guestsThere, err := l.cfg.Guests(ctx, peer)
	if err != nil {
		return fmt.Errorf("see whether there are any: %w", err)
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil {
		return fmt.Errorf("see which are in use here: %w", err)
	}
	ranges, handles := l.others(ctx, peer)
	taken = append(taken, ranges...)
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
	switch said := theirs.Here; {
	case said.IsValid():
		ours.There, err = p.there.name(said, said.Bits(), guestsThere, with(ours.Here), peer.Spec.ID+"there")
	case theirs.PublicKey == "" && p.there.agreed.IsValid():
		ours.There, err = p.there.name(said, p.there.agreed.Bits(), guestsThere, with(ours.Here), peer.Spec.ID+"there")
	}
	if err != nil {
		return err
	}
	if !p.handle.IsValid() || slices.Contains(handles, p.handle) {
		p.handle = handle(handles)
	}
	ours.Handle = p.handle
	if l.cfg.Links || !l.cfg.Provides {
		return nil
	}
	// The host answers by its own address in the pods' range, which is translated.
	if at, ok := (netplan.Mapping{Real: l.cfg.Network.Pods, Alias: ours.Here}).ToAlias(ours.At); ok {
		ours.AtHere = at
	}
	if theirs.PublicKey == "" { // it did not say its address space yet
		return nil
	}
	var chosen []netplan.Mapping
	for _, r := range theirs.Space {
		a, err := alias(r, p.aliases, guestsHere, room{taken: slices.Concat(taken, aliasesOf(chosen), []netip.Prefix{ours.Here, ours.There}), pool: l.room.pool}, peer.Spec.ID)
		if err != nil {
			return err
		}
		chosen = append(chosen, netplan.Mapping{Name: r.String(), Real: r, Alias: a})
	}
	p.aliases = chosen
	return nil
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

// others are the ranges and handles of other peers, linked or not: they must find them free when they come back. The caller has choosing.
func (l *Linker) others(ctx context.Context, peer *v1alpha1.Peer) (ranges []netip.Prefix, handles []netip.Addr) {
	add := func(handle netip.Addr, more ...netip.Prefix) {
		ranges = append(ranges, more...)
		if handle.IsValid() {
			handles = append(handles, handle)
		}
	}
	for id, p := range l.plans {
		if id != peer.Spec.ID {
			add(p.handle, append(aliasesOf(p.aliases), p.here.agreed, p.here.named, p.there.agreed, p.there.named)...)
		}
	}
	var peers v1alpha1.PeerList
	if l.client.List(ctx, &peers, client.UnsafeDisableDeepCopy) != nil {
		return ranges, handles
	}
	for i := range peers.Items {
		if other := &peers.Items[i]; other.Name != peer.Name {
			was, _ := l.pair(other.Status.Network)
			add(was.Handle, was.Ranges()...)
		}
	}
	return ranges, handles
}

// space is this cluster's address space as the peer must know it: its pods, and its guests at others.
func (l *Linker) space(ctx context.Context, peer *v1alpha1.Peer) []netip.Prefix {
	space := []netip.Prefix{l.cfg.Network.Pods}
	var peers v1alpha1.PeerList
	if l.client.List(ctx, &peers, client.UnsafeDisableDeepCopy) != nil {
		return space
	}
	for i := range peers.Items {
		other := &peers.Items[i]
		if other.Name == peer.Name || other.Status.Network == nil {
			continue
		}
		if p, err := netip.ParsePrefix(other.Status.Network.GuestsThere); err == nil {
			space = append(space, p)
		}
	}
	slices.SortFunc(space[1:], func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return space[:min(len(space), netplan.MaxSpace)]
}

// Outdated reports whether a provider knows this cluster's address space as it was: its guests at another one came to it, or left.
func (l *Linker) Outdated(ctx context.Context, peer *v1alpha1.Peer) bool {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	p := l.plans[peer.Spec.ID]
	return p != nil && p.told != nil && !slices.Equal(p.told, l.space(ctx, peer))
}

// Overlap is what of a peer's ranges is in use for something else here.
type Overlap struct {
	Ranges []netip.Prefix
	Kept   bool // of all of them guests have addresses: they stay until the last of those has ended
}

// Overlap looks for ranges of a peer that are in use for something else on the network that this laptop came to.
func (l *Linker) Overlap(ctx context.Context, peer *v1alpha1.Peer) Overlap {
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil || peer.Status.Network == nil {
		return Overlap{}
	}
	pair, _ := l.pair(peer.Status.Network)
	lap := Overlap{Ranges: filter(pair.Ranges(), func(p netip.Prefix) bool { return !netplan.Free(p, taken) })}
	if len(lap.Ranges) == 0 {
		return lap
	}
	here, there, err := l.cfg.Guests(ctx, peer)
	lap.Kept = err != nil || !slices.ContainsFunc(lap.Ranges, func(p netip.Prefix) bool {
		return !(p == pair.There && there) && !(p != pair.There && here)
	})
	return lap
}
