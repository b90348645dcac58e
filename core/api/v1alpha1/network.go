package v1alpha1

import (
	"net/netip"

	"kith.dev/core/netplan"
)

// Pair is how this cluster and the peer see each other's addresses, as far as it can be read; of no network, the zero value.
func (n *NetworkStatus) Pair() (p netplan.Pair) {
	if n != nil {
		p.Theirs, _ = Mappings(n.Theirs)
		p.Ours, _ = Mappings(n.Ours)
	}
	return p
}

// Aliases are the peer's ranges under the addresses they have here.
func (n *NetworkStatus) Aliases() (list []netip.Prefix) {
	for _, m := range n.Pair().Theirs {
		list = append(list, m.Alias)
	}
	return list
}

// Mappings reads the ranges that can be read. The error is about the last of the others.
func Mappings(ranges []RangeAlias) (list []netplan.Mapping, failed error) {
	for _, r := range ranges {
		m, err := netplan.ParseMapping(r.Name, r.Real, r.Alias)
		if err != nil {
			failed = err
			continue
		}
		list = append(list, m)
	}
	return list, failed
}
