package netplan

import (
	"errors"
	"fmt"
	"net/netip"
)

// Pair is what a cluster and its peer agreed on, for both directions. What there is none of is the zero value.
type Pair struct {
	There netip.Prefix   // the range of our guests at the peer
	Here  netip.Prefix   // the range of its guests here
	Space []netip.Prefix // what else means something in the peer's address space: its pods, its guests at others

	Services netip.Prefix // the peer's: the addresses of its services

	// Addresses of the peer's host that answer: to us, in There, and to its guests here, in Space.
	AtThere, AtHome netip.Addr

	// Where the peer's guests here have addresses that somebody else gives: Guests leads from those (Real) to the range that the
	// peer knows them by (Alias, which is Here), Aliases from each range of Space (Real) to one by which guests here know it.
	Guests  Mapping
	Aliases []Mapping

	// Shared are pods of ours, none of them a guest, that the peer reaches, under addresses in Here. They know the peer's by Aliases.
	Shared []Shared

	Relayed []Relayed // parts of Here that are at clusters which provide for us
	Onward  []Onward  // homes to which the peer offers on what we grant it

	IPv6 Pair6 // beside all that is above, where both have it
}

// GuestBits is the length of a range for guests: as many as a node may have pods, and twice as many.
const GuestBits = 24

// MaxSpace is how many ranges the address space of a peer may consist of: one for each provider it has, and its own. A peer keeps a route for each.
const MaxSpace = 160

// Handle is what we call the peer inside WireGuard (datapath.Header): by a range for guests, which no other peer has a part of.
func (p Pair) Handle() netip.Addr { return handle(p.Here, p.There) }

// Called is what the peer calls us there.
func (p Pair) Called() netip.Addr { return handle(p.There, p.Here) }

// handle is the start of the first range that there is, moved into a block that no network has (RFC 1112, section 4). The longest
// range that CheckRange takes is a /28, so others have others.
func handle(ranges ...netip.Prefix) netip.Addr {
	for _, r := range ranges {
		if r.IsValid() {
			return addrOf(0xf<<28 | Number(r.Addr())>>4)
		}
	}
	return netip.Addr{}
}

// GuestGateway is the address in a range of guests, of either family, that its provider's host has: the first.
func GuestGateway(guests netip.Prefix) netip.Addr { return nth(guests, 1) }

// MinGuestBits is the length of the widest range for guests: the default pool has 64 of them in its first block, and a peer that takes more
// would leave nothing to others.
const MinGuestBits = 16

// CheckGuests reports why a range that a peer names cannot be one for guests: CheckRange, and it must be of private use and not
// wider than a /16.
func CheckGuests(p netip.Prefix) error {
	if err := CheckRange(p); err != nil {
		return err
	}
	if p.Bits() < MinGuestBits {
		return fmt.Errorf("%s is wider than the /%d that guests of one cluster may have", p, MinGuestBits)
	}
	if !Private(p) {
		return fmt.Errorf("%s is not of private use", p)
	}
	return nil
}

// Validate says what is wrong with what two clusters agreed on. Most of it was said by the peer.
func (p Pair) Validate() error {
	var errs []error
	wrong := func(is bool, format string, about ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, about...))
		}
	}
	wrong(!p.There.IsValid() && !p.Here.IsValid(), "neither side takes guests of the other in")
	for _, g := range []netip.Prefix{p.There, p.Here} {
		err := CheckGuests(g)
		wrong(g.IsValid() && err != nil, "range for guests: %w", err)
	}
	wrong(p.There.Overlaps(p.Here), "ranges for guests: %s and %s overlap", p.There, p.Here)
	wrong(!p.Guests.Real.IsValid() && p.Here.Bits() > GuestBits, // so much of it has a table of routes of its own
		"range for guests: %s is smaller than a /%d", p.Here, GuestBits)
	wrong(p.There.IsValid() != p.AtThere.IsValid() || p.There.IsValid() && !p.There.Contains(p.AtThere),
		"address %s of the peer is not in the range %s for guests", p.AtThere, p.There)
	wrong(p.Here.IsValid() && Free(netip.PrefixFrom(p.AtHome, 32), p.Space), "address %s of the peer is not in its address space", p.AtHome)
	if len(p.Space) > MaxSpace {
		wrong(true, "the address space has %d ranges, at most %d are taken", len(p.Space), MaxSpace)
		return errors.Join(errs...)
	}
	for i, r := range p.Space {
		err := CheckRange(r)
		wrong(err != nil, "address space: %w", err)
		wrong(err == nil && (!Free(r, p.Space[:i]) || r.Overlaps(p.Here) || r.Overlaps(p.There)), "address space: %s overlaps another of the pair's ranges", r)
	}
	err := CheckRange(p.Services)
	wrong(p.Services.IsValid() && err != nil, "range of services: %w", err)
	if p.Guests.Real.IsValid() {
		errs = append(errs, p.Guests.validate())
		wrong(p.Guests.Alias != p.Here, "guests at %s are not those of %s", p.Guests.Alias, p.Here)
	}
	for i, m := range p.Aliases {
		errs = append(errs, m.validate())
		for _, other := range p.Aliases[:i] {
			wrong(m.Alias.Overlaps(other.Alias), "aliases %s and %s overlap", m.Alias, other.Alias)
		}
	}
	errs = append(append(errs, p.validateShared()...), p.validateOnward()...)
	return errors.Join(append(errs, p.IPv6.validate(p)...)...)
}

// Ranges are all that the pair takes of the addresses of this host's networks, of both families.
func (p Pair) Ranges() (list []netip.Prefix) {
	for _, r := range []netip.Prefix{p.There, p.Here, p.IPv6.There, p.IPv6.Here} {
		if r.IsValid() {
			list = append(list, r)
		}
	}
	for _, m := range p.Aliases {
		list = append(list, m.Alias)
	}
	for _, o := range p.Onward {
		list = append(list, o.Network)
	}
	return list
}
