package discovery

import (
	"net/netip"
	"slices"

	"kith.dev/core/netplan"
)

// onLink gives those of the announced addresses that are neighbours on the interface the announcement came in on. Anybody on
// the LAN can announce anything, and what is announced is dialled: an address elsewhere would have this laptop knock at doors
// that only it can reach, its own services, a VPN, the office next door. A laptop of the same LAN has an address of the LAN.
func (i lanInterface) onLink(announced []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range announced {
		if slices.ContainsFunc(i.prefixes, func(p netip.Prefix) bool { return neighbour(a.Addr(), p) }) && !i.has(a.Addr()) {
			out = append(out, a)
		}
	}
	return out
}

// neighbour reports whether an address can be another machine's in the network of a prefix, which is one of this machine's own
// addresses with its length.
func neighbour(a netip.Addr, own netip.Prefix) bool {
	if !dialable(a) || a.Is4In6() || a.Zone() != "" || !own.Contains(a) {
		return false
	}
	if a.Is4() && own.Bits() < 31 { // neither the network's name nor its broadcast address (RFC 3021: shorter ones have none)
		return a != own.Masked().Addr() && a != netplan.Last(own)
	}
	return true
}
