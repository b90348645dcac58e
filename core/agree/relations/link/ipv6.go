package link

import (
	"fmt"
	"net/netip"
	"slices"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// ipv6 reports whether this cluster has IPv6, and Kith gives guests their addresses.
func (l *Linker) ipv6() bool { return l.cfg.Links && l.cfg.Network.IPv6 != netplan.Cluster6{} }

// say6 is what this side says of IPv6. Of what was agreed on, a range of which guests have addresses stays, whatever network this laptop came
// to. The caller has choosing.
func (l *Linker) say6(p *plan, to identity.ID, space, taken []netip.Prefix, held bool) *peering.LinkIPv6 {
	own, me := l.cfg.Network.IPv6, l.cfg.Identity.ID()
	ours := &peering.LinkIPv6{Space: space, Services: own.Services, At: own.Gateway()}
	for _, guests := range []netip.Prefix{netplan.Guests6(to, me), netplan.Guests6(me, to)} {
		free := netplan.Free(guests, append(slices.Clone(taken), own.Pods, own.Services))
		if !free && !(held && slices.Contains(p.ipv6, guests)) {
			ours.Taken = append(ours.Taken, guests)
		}
	}
	return ours
}

// agree6 is what follows of IPv6 from what both said; none where this cluster has IPv4 alone.
func (l *Linker) agree6(peer *v1alpha1.Peer, ours, theirs peering.Link) *v1alpha1.NetworkIPv6 {
	switch {
	case ours.IPv6 == nil:
		return nil
	case theirs.IPv6 == nil:
		return &v1alpha1.NetworkIPv6{Message: fmt.Sprintf("IPv4 alone: %.64s has no IPv6 for pods, or a Kith from before there was any", peer.Name)}
	case len(ours.IPv6.Taken) > 0:
		return &v1alpha1.NetworkIPv6{Message: fmt.Sprintf("IPv4 alone: %v, for guests, is in use on this host or its network", ours.IPv6.Taken)}
	case len(theirs.IPv6.Taken) > 0:
		return &v1alpha1.NetworkIPv6{Message: fmt.Sprintf("IPv4 alone: %v, for guests, is in use where %.64s is", theirs.IPv6.Taken, peer.Name)}
	}
	six := &v1alpha1.NetworkIPv6{Services: text(theirs.IPv6.Services), AtHome: text(theirs.IPv6.At)}
	for _, r := range theirs.IPv6.Space {
		six.Space = append(six.Space, r.String())
	}
	me := l.cfg.Identity.ID()
	they, _ := identity.ParseID(peer.Spec.ID) // by which the caller found it
	if ours.Here.IsValid() {
		six.GuestsHere = netplan.Guests6(they, me).String()
	}
	if ours.There.IsValid() {
		there := netplan.Guests6(me, they)
		six.GuestsThere, six.AtThere = there.String(), netplan.GuestGateway(there).String()
	}
	return six
}

// ranges6 are those for guests that a pair has.
func ranges6(p netplan.Pair) (list []netip.Prefix) {
	for _, r := range []netip.Prefix{p.IPv6.Here, p.IPv6.There} {
		if r.IsValid() {
			list = append(list, r)
		}
	}
	return list
}
