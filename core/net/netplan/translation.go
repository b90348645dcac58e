package netplan

import "net/netip"

// Translation is how a provider that does not give guests their addresses itself knows those of one home: Real is home's name of a range,
// Alias the one here. With no ranges in it addresses are the same at both.
type Translation []Mapping

// Here gives the name here of an address as home has it; false when home has no such address.
func (t Translation) Here(home netip.Addr) (netip.Addr, bool) { return t.move(home, Mapping.ToAlias) }

// Home gives home's name of an address as it is here; false when it is none of home's.
func (t Translation) Home(here netip.Addr) (netip.Addr, bool) { return t.move(here, Mapping.ToReal) }

func (t Translation) move(a netip.Addr, by func(Mapping, netip.Addr) (netip.Addr, bool)) (netip.Addr, bool) {
	for _, m := range t {
		if to, ok := by(m, a); ok {
			return to, true
		}
	}
	return a, len(t) == 0
}
