package grants

import (
	"net/netip"
	"slices"
	"strings"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

// Network is what was agreed on of addresses with a consumer, as text; the zero value before there is a link, or when it cannot be read.
type Network struct {
	Guests   string // the range of its guests here
	Space    string // the other ranges of its address space, with commas between them: of its pods, and of its guests elsewhere
	Services string // the range of its services

	// Part is what of Guests those have that are really here, where others of the range are at other clusters; "" when all are.
	Part string

	// Shared are the pods of this cluster that it reaches: its address for each, =, the address here, with commas between them.
	Shared string

	// The same of IPv6, where both clusters have that beside IPv4; there it is never translated.
	Guests6, Space6, Services6 string

	// Where guests get their addresses from somebody else: the names that Guests and, in their order, the ranges of Space have here.
	GuestsHere, SpaceHere string
}

// NetworkOf reads a Peer. pods is the range from which guests here get their addresses, where that is not for Kith to say.
func NetworkOf(peer *v1alpha1.Peer, pods netip.Prefix) (n Network) {
	pair, err := peer.Status.Network.Pair(pods)
	if err != nil || !pair.Here.IsValid() {
		return Network{}
	}
	n.Guests = pair.Here.String()
	if pair.Services.IsValid() {
		n.Services = pair.Services.String()
	}
	var here []netip.Prefix
	if translated := pair.Guests.Real.IsValid(); translated {
		n.GuestsHere, pair.Space = pair.Guests.Real.String(), nil
		for _, m := range pair.Aliases {
			pair.Space, here = append(pair.Space, m.Real), append(here, m.Alias)
		}
	} else {
		for _, s := range pair.Shared {
			n.Shared = joined(n.Shared, s.As.String()+"="+s.Pod.String())
		}
	}
	if len(pair.Relayed) > 0 {
		n.Part = netplan.StayingPart(pair.Here).String()
	}
	n.Space, n.SpaceHere = text(pair.Space), text(here)
	if six := pair.IPv6; six.Here.IsValid() {
		n.Guests6, n.Space6 = six.Here.String(), text(six.Space)
		if six.Services.IsValid() {
			n.Services6 = six.Services.String()
		}
	}
	return n
}

// SharedPods leads from the address that a pod of this cluster has for the consumer to its own; nil where there is none.
func (n Network) SharedPods() (pods map[netip.Addr]netip.Addr) {
	for one := range strings.SplitSeq(n.Shared, ",") {
		as, pod, _ := strings.Cut(one, "=")
		a, wrong := netip.ParseAddr(as)
		p, err := netip.ParseAddr(pod)
		if wrong != nil || err != nil {
			continue
		}
		if pods == nil {
			pods = map[netip.Addr]netip.Addr{}
		}
		pods[a] = p
	}
	return pods
}

// AddressSpace is the consumer's whole address space, by the names that it has here, as kinds.AnnotationSpace has it: the range of its guests here comes first.
func (n Network) AddressSpace() string {
	if n.GuestsHere != "" {
		n.Guests, n.Space = n.GuestsHere, n.SpaceHere
	}
	return joined(n.Guests, n.Space, n.Guests6, n.Space6)
}

// joined is several of them as one.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ",")
}

// Elsewhere are the ranges of the consumer's pods that are not here, by the names that they have here.
func (n Network) Elsewhere() []netip.Prefix {
	if n.GuestsHere != "" {
		return ranges(n.SpaceHere)
	}
	return ranges(joined(n.Space, n.Space6))
}

// Translation leads between the addresses of the consumer and their names here.
func (n Network) Translation() (t netplan.Translation) {
	home, here := ranges(n.Guests+","+n.Space), ranges(n.GuestsHere+","+n.SpaceHere)
	if n.GuestsHere == "" {
		return nil
	}
	for i := range min(len(home), len(here)) {
		t = append(t, netplan.Mapping{Real: home[i], Alias: here[i]})
	}
	return t
}

func text(ranges []netip.Prefix) string {
	var list []string
	for _, r := range ranges {
		list = append(list, r.String())
	}
	return strings.Join(list, ",")
}

func ranges(text string) (list []netip.Prefix) {
	for one := range strings.SplitSeq(text, ",") {
		if p, err := netip.ParsePrefix(one); err == nil {
			list = append(list, p)
		}
	}
	return list
}
