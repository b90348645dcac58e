package netplan

import (
	"fmt"
	"net/netip"
)

// Relayed is a part of the range for a peer's guests here whose addresses those have that went on from here to another cluster.
type Relayed struct {
	ID     string // of that cluster
	Guests netip.Prefix
}

// Onward is a home whose guests come here by way of a peer, which offers on what we grant it. They have the addresses that they would have at the
// peer: Network is the range there, Guests the part of it for those here.
type Onward struct {
	ID       string
	Network  netip.Prefix
	Guests   netip.Prefix
	Space    []netip.Prefix // what else means something in the home's address space
	Services netip.Prefix
}

const (
	// MaxRelayed is to how many clusters guests of one home may go on: each has RelayedBits of the lower half of the home's range here, and the
	// first half of that half stays for those here.
	MaxRelayed  = 2
	RelayedBits = 27

	// MaxOnward is how many homes may come by way of one peer, and MaxOnwardSpace how many ranges the address space of each may consist of.
	MaxOnward, MaxOnwardSpace = 8, 64
)

// RelayedPart is the n-th part of a range of 256 for guests that go on.
func RelayedPart(guests netip.Prefix, n int) netip.Prefix {
	return netip.PrefixFrom(nth(guests, uint32(64+32*n)), RelayedBits)
}

// StayingPart is where guests have addresses that do not go on, while others of that home do.
func StayingPart(guests netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(guests.Masked().Addr(), 26)
}

// Elsewhere is all that means something to guests of the home besides those here: its address space, and the rest of its range at the peer.
func (o Onward) Elsewhere() []netip.Prefix { return append(Without(o.Network, o.Guests), o.Space...) }

// Without is a range less parts of it, as few ranges as it takes.
func Without(p netip.Prefix, parts ...netip.Prefix) (rest []netip.Prefix) {
	p = p.Masked()
	if Free(p, parts) {
		return []netip.Prefix{p}
	}
	for _, part := range parts {
		if part.Bits() <= p.Bits() && part.Overlaps(p) {
			return nil
		}
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(addrOf(Number(p.Addr())|1<<(31-p.Bits())), p.Bits()+1)
	return append(Without(low, parts...), Without(high, parts...)...)
}

// validateOnward reports what is wrong with what goes on: of it the peer said what is of homes.
func (p Pair) validateOnward() (errs []error) {
	wrong := func(is bool, format string, about ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, about...))
		}
	}
	wrong(len(p.Relayed) > MaxRelayed, "guests go on to %d clusters, at most %d can be", len(p.Relayed), MaxRelayed)
	wrong(len(p.Relayed) > 0 && p.Here.Bits() != GuestBits, "no part of %s goes on", p.Here)
	for i, r := range p.Relayed {
		wrong(r.ID == "" || r.Guests.Bits() != RelayedBits || r.Guests != r.Guests.Masked() || !p.Here.Contains(r.Guests.Addr()), "%s is no part of %s that goes on", r.Guests, p.Here)
		for _, other := range p.Relayed[:i] {
			wrong(other.ID == r.ID || other.Guests.Overlaps(r.Guests), "%s and %s go on to one cluster, or are one", other.Guests, r.Guests)
		}
	}
	if len(p.Onward) > MaxOnward {
		return append(errs, fmt.Errorf("%d homes come by way of the peer, at most %d can", len(p.Onward), MaxOnward))
	}
	for i, o := range p.Onward {
		err := CheckGuests(o.Network)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("range of guests that come by way of the peer: %w", err))
			continue
		case len(o.Space) == 0 || len(o.Space) > MaxOnwardSpace:
			errs = append(errs, fmt.Errorf("the address space of %s has %d ranges, want 1 to %d", o.ID, len(o.Space), MaxOnwardSpace))
			continue
		}
		wrong(o.ID == "" || o.Network.Bits() != GuestBits || o.Guests.Bits() != RelayedBits || o.Guests != o.Guests.Masked() || !o.Network.Contains(o.Guests.Addr()),
			"%s is no part of %s for guests that come by way of the peer", o.Guests, o.Network)
		wrong(o.Network.Overlaps(p.Here) || o.Network.Overlaps(p.There), "%s overlaps another of the pair's ranges", o.Network)
		for _, m := range p.Aliases {
			wrong(m.Alias.Overlaps(o.Network), "%s overlaps the alias %s", o.Network, m.Alias)
		}
		for _, other := range p.Onward[:i] {
			wrong(other.ID == o.ID || other.Network.Overlaps(o.Network), "%s and %s are of one home, or overlap", other.Network, o.Network)
		}
		for j, r := range o.Space {
			err := CheckRange(r)
			wrong(err != nil, "address space of %s: %w", o.ID, err)
			wrong(err == nil && (!Free(r, o.Space[:j]) || r.Overlaps(o.Network)), "address space of %s: %s overlaps another of its ranges", o.ID, r)
		}
		err = CheckRange(o.Services)
		wrong(o.Services.IsValid() && err != nil, "range of services of %s: %w", o.ID, err)
	}
	return errs
}
