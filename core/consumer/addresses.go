package consumer

import (
	"net/netip"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
)

// outward maps addresses as home uses them to those by which the peer reaches them: its own pods by their real address,
// ours by the alias it gave them.
func outward(network *v1alpha1.NetworkStatus) func(netip.Addr) (netip.Addr, bool) {
	var theirs, ours []gateway.Mapping
	if network != nil {
		theirs, ours = ranges(network.Theirs), ranges(network.Ours)
	}
	return func(a netip.Addr) (netip.Addr, bool) {
		for _, m := range theirs {
			if there, ok := m.ToReal(a); ok {
				return there, true
			}
		}
		for _, m := range ours {
			if there, ok := m.ToAlias(a); ok {
				return there, true
			}
		}
		return netip.Addr{}, false
	}
}

// ranges leaves out what cannot be read; addresses in it are not translated.
func ranges(list []v1alpha1.RangeAlias) (out []gateway.Mapping) {
	for _, r := range list {
		real, err := netip.ParsePrefix(r.Real)
		alias, err2 := netip.ParsePrefix(r.Alias)
		if err == nil && err2 == nil {
			out = append(out, gateway.Mapping{Name: r.Name, Real: real, Alias: alias})
		}
	}
	return out
}
