package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
)

// choose completes network by what this side decides: the ranges for guests, as it would have them after what the peer says, its handle
// and, where guests here do not get their addresses from Kith, aliases for the peer's address space. It remembers them, so that no other peer
// gets them meanwhile. theirs is the zero value before the peer has said anything.
func (l *Linker) choose(ctx context.Context, peer *v1alpha1.Peer, theirs peering.Link, network *v1alpha1.NetworkStatus) error {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil {
		return fmt.Errorf("see which addresses are in use here: %w", err)
	}
	others := l.others(ctx, peer)
	for _, other := range others {
		taken = append(taken, other.Ranges()...)
	}
	before := l.chosen[peer.Spec.ID]
	if before == nil {
		before = peer.Status.Network
	}
	was, _ := l.pair(before) // what cannot be read is chosen anew

	// Theirs come first: what a peer gives to our guests is free at one side already. A range that it does not want is not named again.
	here, err := l.guests(peer, "here", l.guestBits(), theirs.There, was.Here, append(taken, theirs.Here))
	if err != nil {
		return err
	}
	taken = append(taken, here)
	network.GuestsHere = here.String()
	if theirs.Here.IsValid() {
		there, err := l.guests(peer, "there", theirs.Here.Bits(), theirs.Here, was.There, taken)
		if err != nil {
			return err
		}
		taken = append(taken, there)
		network.GuestsThere = there.String()
	}
	network.Handle = handle(before, others)
	if !l.cfg.Links {
		for i, r := range theirs.Space {
			a, err := l.alias(peer, r, was.Aliases, taken)
			if err != nil {
				return err
			}
			taken = append(taken, a)
			network.Aliases = append(network.Aliases, v1alpha1.RangeAlias{Name: fmt.Sprintf("space-%d", i), Real: r.String(), Alias: a.String()})
		}
	}
	l.chosen[peer.Spec.ID] = &v1alpha1.NetworkStatus{GuestsHere: network.GuestsHere, GuestsThere: network.GuestsThere, Handle: network.Handle, Aliases: network.Aliases}
	return nil
}

// guestBits is the length of a range for guests here.
func (l *Linker) guestBits() int {
	if l.cfg.Links {
		return netplan.GuestBits
	}
	return l.cfg.Network.Pods.Bits()
}

// guests is a range of guests in one direction: what the peer says if that is free here; what was chosen before, unless the peer says something
// else; another.
func (l *Linker) guests(peer *v1alpha1.Peer, which string, bits int, said, before netip.Prefix, taken []netip.Prefix) (netip.Prefix, error) {
	free := func(p netip.Prefix) bool { return p.IsValid() && p.Bits() == bits && netplan.Free(p, taken) }
	switch {
	case free(said) && netplan.CheckGuests(said) == nil:
		return said, nil
	case free(before) && !said.IsValid():
		return before, nil
	}
	for _, p := range []netip.Prefix{said, before} { // one of the two is not free here, the other not at the peer's
		if p.IsValid() {
			taken = append(slices.Clip(taken), p)
		}
	}
	p, err := netplan.ChooseGuests(bits, taken, l.cfg.Pool, peer.Spec.ID+which)
	if err != nil {
		return p, fmt.Errorf("find free addresses for guests of and at %s: %w", peer.Name, err)
	}
	return p, nil
}

// alias keeps the one that was chosen before as long as it is free.
func (l *Linker) alias(peer *v1alpha1.Peer, r netip.Prefix, before []netplan.Mapping, taken []netip.Prefix) (netip.Prefix, error) {
	for _, was := range before {
		if was.Real == r && netplan.Free(was.Alias, taken) {
			return was.Alias, nil
		}
	}
	a, err := netplan.ChooseAlias(r, taken, l.cfg.Pool, peer.Spec.ID)
	if err != nil {
		return a, fmt.Errorf("find free addresses for %s of %s: %w", r, peer.Name, err)
	}
	return a, nil
}

// handle keeps what the peer is called inside WireGuard, or takes the first name that no other has.
func handle(before *v1alpha1.NetworkStatus, others []*v1alpha1.NetworkStatus) string {
	taken := map[string]bool{}
	for _, other := range others {
		taken[other.Handle] = true
	}
	if before != nil && before.Handle != "" && !taken[before.Handle] {
		return before.Handle
	}
	for n := uint32(0); ; n++ {
		if h := netplan.Handle(n).String(); !taken[h] {
			return h
		}
	}
}

// others are the networks of other peers, linked or not: they must find their ranges free when they come back. Callers hold choosing.
func (l *Linker) others(ctx context.Context, peer *v1alpha1.Peer) (list []*v1alpha1.NetworkStatus) {
	for id, chosen := range l.chosen {
		if id != peer.Spec.ID {
			list = append(list, chosen)
		}
	}
	var peers v1alpha1.PeerList
	if l.client.List(ctx, &peers) != nil {
		return list
	}
	for i := range peers.Items {
		if other := &peers.Items[i]; other.Name != peer.Name && other.Status.Network != nil {
			list = append(list, other.Status.Network)
		}
	}
	return list
}

// space is this cluster's address space as the peer must know it: its pods, and its guests at others.
func (l *Linker) space(ctx context.Context, peer *v1alpha1.Peer) []netip.Prefix {
	space := []netip.Prefix{l.cfg.Network.Pods}
	var peers v1alpha1.PeerList
	if l.client.List(ctx, &peers) != nil {
		return space
	}
	for i := range peers.Items {
		other := &peers.Items[i]
		if other.Name == peer.Name || other.Status.Network == nil || len(space) == netplan.MaxSpace {
			continue
		}
		if p, err := netip.ParsePrefix(other.Status.Network.GuestsThere); err == nil {
			space = append(space, p)
		}
	}
	slices.SortFunc(space[1:], func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return space
}

// Outdated names the peers that know this cluster's address space as it was: its guests at another peer came to it, or left.
func (l *Linker) Outdated(ctx context.Context) (names []string) {
	var peers v1alpha1.PeerList
	if l.client.List(ctx, &peers) != nil {
		return nil
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	for i := range peers.Items {
		told, ok := l.told[peers.Items[i].Spec.ID]
		if ok && !slices.Equal(told, l.space(ctx, &peers.Items[i])) {
			names = append(names, peers.Items[i].Name)
		}
	}
	return names
}

// Overlapped reports whether a range of the peer's is in use for something else here, and has to be chosen anew.
func (l *Linker) Overlapped(peer *v1alpha1.Peer) bool {
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil || peer.Status.Network == nil {
		return false
	}
	return slices.ContainsFunc(peer.Status.Network.Ranges(), func(p netip.Prefix) bool { return !netplan.Free(p, taken) })
}
