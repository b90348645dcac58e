package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"kith.dev/core/api"
)

// taken is a range of addresses in use by somebody else than Kith.
type taken struct {
	prefix netip.Prefix
	by     string // in words: "the route by way of tun0"
	vital  bool   // the default gateway, a DNS server: without it there is no network
}

// overlaps tells what of others lies in the ranges of this cluster and in those agreed on with peers.
func (m Machine) overlaps(others []taken) []api.Finding {
	in := about{area: api.AreaAddresses}
	var found []api.Finding
	clash := func(name, whose string, own netip.Prefix, do string) {
		var vital, usual []string
		for _, t := range others {
			if !t.prefix.Overlaps(own) || t.prefix.Bits() == 0 {
				continue
			}
			text := fmt.Sprintf("%s, %s", t.prefix, t.by)
			if t.vital {
				vital = append(vital, text)
			} else if !slices.Contains(usual, text) {
				usual = append(usual, text)
			}
		}
		what := fmt.Sprintf("%s, %s, overlaps another network of this machine", whose, own)
		switch {
		case len(vital) > 0:
			found = append(found, in.fail(name, what, strings.Join(vital, "; ")+": this machine may lose its network", do))
		case len(usual) > 0:
			found = append(found, in.warn(name, what, strings.Join(usual, "; ")+": addresses in both reach only one of the two", do))
		default:
			found = append(found, in.ok(name, "%s, %s, overlaps nothing", whose, own))
		}
	}
	if m.RunsCluster() { // else the ranges are the affair of whoever runs the cluster
		clash("pod-range", "the pods' range", m.PodRange, "set podRange to a free one, before pods run")
		clash("service-range", "the services' range", m.ServiceRange, "set serviceRange to a free one, before pods run")
	}
	for _, peer := range slices.Sorted(maps.Keys(m.Guests)) {
		for _, guests := range m.Guests[peer] {
			clash("guest-range", "a range of guests of or at "+peer, guests,
				"another one is agreed on when no pod has an address of it any more and "+peer+" answers; aliasPools says out of which")
		}
	}
	return found
}
