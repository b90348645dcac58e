package v1alpha1

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"

	"kith.dev/core/net/netplan"
)

// Pair is what this cluster and the peer agreed on of addresses, as far as it can be read; of no network, the zero value. Pods is
// this cluster's own range, from which the peer's guests here get their addresses when that is not for Kith to say; else the zero value.
func (n *NetworkStatus) Pair(pods netip.Prefix) (p netplan.Pair, err error) {
	if n == nil {
		return p, nil
	}
	var errs []error
	read := func(field, text string, into encoding.TextUnmarshaler) { // an empty text is the zero value
		if err := into.UnmarshalText([]byte(text)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	read("guestsThere", n.GuestsThere, &p.There)
	read("guestsHere", n.GuestsHere, &p.Here)
	space := func(texts []string) (list []netip.Prefix) {
		for _, text := range texts {
			var r netip.Prefix
			read("space", text, &r)
			list = append(list, r)
		}
		return list
	}
	p.Space = space(n.Space)
	read("services", n.Services, &p.Services)
	read("atThere", n.AtThere, &p.AtThere)
	read("atHome", n.AtHome, &p.AtHome)
	for _, a := range n.Aliases {
		m := netplan.Mapping{Name: a.Name}
		read("aliases", a.Real, &m.Real)
		read("aliases", a.Alias, &m.Alias)
		p.Aliases = append(p.Aliases, m)
	}
	for _, s := range n.Shared {
		var is netplan.Shared
		read("shared", s.Address, &is.As)
		read("shared", s.Pod, &is.Pod)
		p.Shared = append(p.Shared, is)
	}
	for _, r := range n.Relayed {
		is := netplan.Relayed{ID: r.ID}
		read("relayed", r.Guests, &is.Guests)
		p.Relayed = append(p.Relayed, is)
	}
	for _, o := range n.Onward {
		is := netplan.Onward{ID: o.ID, Space: space(o.Space)}
		read("onward", o.Network, &is.Network)
		read("onward", o.Guests, &is.Guests)
		read("onward", o.Services, &is.Services)
		p.Onward = append(p.Onward, is)
	}
	if pods.IsValid() && p.Here.IsValid() {
		p.Guests = netplan.Mapping{Name: "guests", Real: pods, Alias: p.Here}
	}
	if six := n.IPv6; six != nil {
		read("ipv6.guestsThere", six.GuestsThere, &p.IPv6.There)
		read("ipv6.guestsHere", six.GuestsHere, &p.IPv6.Here)
		p.IPv6.Space = space(six.Space)
		read("ipv6.services", six.Services, &p.IPv6.Services)
		read("ipv6.atThere", six.AtThere, &p.IPv6.AtThere)
		read("ipv6.atHome", six.AtHome, &p.IPv6.AtHome)
	}
	return p, errors.Join(errs...)
}

// Linked reports whether there is a tunnel: else what stands here is, at most, the range of guests that no tunnel leads to.
func (n *NetworkStatus) Linked() bool { return n != nil && n.PublicKey != "" }

// Ranges are all that was agreed on of the addresses of this host's networks, as far as it can be read.
func (n *NetworkStatus) Ranges() []netip.Prefix {
	p, _ := n.Pair(netip.Prefix{})
	return p.Ranges()
}
