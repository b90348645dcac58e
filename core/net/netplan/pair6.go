package netplan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
)

// Pair6 is what two clusters that both have IPv6 use of it beside IPv4, as a Pair has it of that; the zero value: IPv4 alone.
// There is no translation: guests whose addresses somebody else gives have none of IPv6.
type Pair6 struct {
	There netip.Prefix   // the range of our guests at the peer
	Here  netip.Prefix   // the range of its guests here
	Space []netip.Prefix // what else means something in the peer's address space

	Services netip.Prefix // the peer's

	AtThere, AtHome netip.Addr // of the peer's host, in There and in Space
}

// GuestBits6 is the length of an IPv6 range for guests.
const GuestBits6 = 64

// Guests6 is the IPv6 range of a home's guests at a provider. It is not negotiated: it follows from both IDs, a unique local one that no
// network will have. Where one side's host has it all the same, that side says so and they have IPv4 alone.
func Guests6(home, provider [sha256.Size]byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16(unique("kith guests", home, provider)), GuestBits6)
}

// On reports whether there are guests of either side that have IPv6 addresses.
func (p Pair6) On() bool { return p.There.IsValid() || p.Here.IsValid() }

// none reports whether nothing was said of IPv6.
func (p Pair6) none() bool {
	return p.There == netip.Prefix{} && p.Here == netip.Prefix{} && len(p.Space) == 0 && p.Services == netip.Prefix{} && p.AtThere == netip.Addr{} && p.AtHome == netip.Addr{}
}

// validate says what is wrong with it, as Pair.Validate does of IPv4. Which directions the pair has is up to IPv4.
func (p Pair6) validate(of Pair) (errs []error) {
	if p.none() {
		return nil
	}
	wrong := func(is bool, format string, about ...any) {
		if is {
			errs = append(errs, fmt.Errorf("IPv6: "+format, about...))
		}
	}
	for _, g := range []struct{ p, ipv4 netip.Prefix }{{p.There, of.There}, {p.Here, of.Here}} {
		wrong(g.p != netip.Prefix{} && (!g.p.IsValid() || g.p.Bits() != GuestBits6 || g.p != g.p.Masked() || !uniqueLocal.Contains(g.p.Addr())),
			"range for guests: %s is no /%d of unique local addresses (%s)", g.p, GuestBits6, uniqueLocal)
		wrong(g.p.IsValid() && !g.ipv4.IsValid(), "range for guests: there is %s, and none of IPv4", g.p)
	}
	wrong(p.There.Overlaps(p.Here), "ranges for guests: both are %s", p.There)
	wrong(p.Here.IsValid() && of.Guests.Real.IsValid(), "guests whose addresses Kith does not give have none of %s", p.Here)
	wrong(p.There.IsValid() != p.AtThere.IsValid() || p.There.IsValid() && !p.There.Contains(p.AtThere),
		"address %s of the peer is not in the range %s for guests", p.AtThere, p.There)
	wrong(p.AtThere.Zone() != "" || p.AtHome.Zone() != "", "address %s or %s of the peer has a zone", p.AtThere, p.AtHome)
	wrong(p.Here.IsValid() && (!p.AtHome.Is6() || Free(netip.PrefixFrom(p.AtHome, 128), p.Space)), "address %s of the peer is not in its address space", p.AtHome)
	if len(p.Space) > MaxSpace {
		wrong(true, "the address space has %d ranges, at most %d are taken", len(p.Space), MaxSpace)
		return errs
	}
	for i, r := range p.Space {
		err := CheckRange6(r)
		wrong(err != nil, "address space: %w", err)
		wrong(err == nil && (!Free(r, p.Space[:i]) || r.Overlaps(p.Here) || r.Overlaps(p.There)), "address space: %s overlaps another of the pair's ranges", r)
	}
	err := CheckRange6(p.Services)
	wrong(p.Services != netip.Prefix{} && err != nil, "range of services: %w", err)
	return errs
}
