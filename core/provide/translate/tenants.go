package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// Tenant is a home that has guests on this node.
type Tenant struct {
	Consumer string              // compact cluster ID
	Guests   []netip.Addr        // on this node
	All      []netip.Addr        // of its guests in this cluster: whoever asks for one of these means it
	Services guestnet.Services   // of IPv4, from the address at home to that of the twin here
	Ranges   netplan.Translation // Real is home's name of a range, Alias the one here

	Twins     map[string]string // the name of a namespace here, by that at home
	APIServer string            // the twin with the service of home's API server; "" is none
}

// objects are what this room reads in the cluster.
type objects struct {
	pods       []corev1.Pod // of consumers
	nodes      []corev1.Node
	peers      []v1alpha1.Peer
	namespaces []corev1.Namespace
	services   []corev1.Service
}

// tenants says what whose guests reach by home's addresses.
func tenants(cfg fence.Config, o objects) []Tenant {
	list := []Tenant{}
	networks := map[string]netplan.Pair{} // by consumer
	for i := range o.peers {
		id, err := identity.ParseID(o.peers[i].Spec.ID)
		pair, wrong := o.peers[i].Status.Network.Pair(cfg.Pods)
		if err == nil && wrong == nil && pair.Here.IsValid() {
			networks[id.Compact()] = pair
		}
	}
	consumers, twins := map[string]string{}, map[string]map[string]string{} // by namespace, and the other way
	for i := range o.namespaces {
		if tw, ok := grants.TwinOf(&o.namespaces[i]); ok {
			if consumers[tw.Name] = tw.Consumer; twins[tw.Consumer] == nil {
				twins[tw.Consumer] = map[string]string{}
			}
			twins[tw.Consumer][tw.Home] = tw.Name
		}
	}
	servers := map[string]string{} // by consumer
	for i := range o.services {
		of, at := consumers[o.services[i].Namespace], o.services[i].Namespace
		if o.services[i].Name == kinds.APIServerAbroad && (servers[of] == "" || at < servers[of]) {
			servers[of] = at
		}
	}
	leads, _, _ := guestnet.Believe(o.services, func(namespace string) (string, guestnet.Range) {
		consumer := consumers[namespace]
		return consumer, guestnet.Range{networks[consumer].Services}
	})
	nodes := fence.AddressesOf(o.nodes)
	for consumer, guests := range cfg.GuestsOf(o.pods, o.nodes) {
		pair, known := networks[consumer]
		if !known || len(guests.Here) == 0 {
			continue
		}
		var aliases []netip.Prefix
		for _, m := range pair.Aliases {
			aliases = append(aliases, m.Alias)
		}
		t := Tenant{Consumer: consumer, Guests: guests.Here, All: guests.All, Services: maps.Clone(leads[consumer]), Twins: twins[consumer], APIServer: servers[consumer]}
		maps.DeleteFunc(t.Services, func(home, _ netip.Addr) bool {
			return nodes[home] || home == cfg.DNS || cfg.Pods.Contains(home) || slices.ContainsFunc(aliases, func(p netip.Prefix) bool { return p.Contains(home) })
		})
		for _, m := range append([]netplan.Mapping{{Real: pair.Guests.Alias, Alias: pair.Guests.Real}}, pair.Aliases...) {
			if m.Real.IsValid() && m.Real.Addr().Is4() && m.Alias.IsValid() && m.Real.Bits() == m.Alias.Bits() && !m.Real.Overlaps(cfg.Services) && !slices.ContainsFunc(aliases, m.Real.Overlaps) {
				t.Ranges = append(t.Ranges, netplan.Mapping{Real: m.Real.Masked(), Alias: m.Alias.Masked()})
			}
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	return list
}
