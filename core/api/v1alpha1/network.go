package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"

	"kith.dev/core/netplan"
)

// Pair is what this cluster and the peer agreed on of addresses, as far as it can be read; of no network, the zero value. Pods is
// this cluster's own range, from which the peer's guests here get their addresses when that is not for Kith to say; else the zero value.
func (n *NetworkStatus) Pair(pods netip.Prefix) (p netplan.Pair, err error) {
	if n == nil {
		return p, nil
	}
	var errs []error
	prefix := func(field, s string) (r netip.Prefix) {
		if s != "" {
			var err error
			if r, err = netip.ParsePrefix(s); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", field, err))
			}
		}
		return r
	}
	addr := func(field, s string) (a netip.Addr) {
		if s != "" {
			var err error
			if a, err = netip.ParseAddr(s); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", field, err))
			}
		}
		return a
	}
	p.There, p.Here = prefix("guestsThere", n.GuestsThere), prefix("guestsHere", n.GuestsHere)
	for _, s := range n.Space {
		p.Space = append(p.Space, prefix("space", s))
	}
	p.Services = prefix("services", n.Services)
	p.AtThere, p.AtHome = addr("atThere", n.AtThere), addr("atHome", n.AtHome)
	p.Handle, p.Called = addr("handle", n.Handle), addr("called", n.Called)
	for _, a := range n.Aliases {
		m, err := netplan.ParseMapping(a.Name, a.Real, a.Alias)
		if err != nil {
			errs = append(errs, fmt.Errorf("aliases: %w", err))
			continue
		}
		p.Aliases = append(p.Aliases, m)
	}
	if pods.IsValid() && p.Here.IsValid() {
		p.Guests = netplan.Mapping{Name: "guests", Real: pods, Alias: p.Here}
	}
	return p, errors.Join(errs...)
}

// Ranges are all that was agreed on of the addresses of this host's networks, as far as it can be read.
func (n *NetworkStatus) Ranges() []netip.Prefix {
	p, _ := n.Pair(netip.Prefix{})
	return p.Ranges()
}
