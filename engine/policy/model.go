package policy

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"

	"kith.dev/core/net/netplan"
)

// Pod is what rules need to know of a pod at one of its addresses. One without an address, on the host's network, or that has ended is
// none; one that has addresses of both families is there twice.
type Pod struct {
	Namespace string
	Labels    map[string]string
	Address   netip.Addr
	Ports     []corev1.ContainerPort // those with a name count
}

// State is all that rules are made from. Each address is one pod's.
type State struct {
	Policies   []*networkingv1.NetworkPolicy
	Namespaces map[string]map[string]string // labels by name
	Pods       []Pod
	DNS        []netip.Addr // service addresses of the cluster's DNS, one of each family that the cluster has
	Node       []netip.Addr // where it runs
}

// family is IPv4 or IPv6, in the words that nft has for it. Each has a table of its own: what one allows says nothing of the other.
type family struct {
	table   knftables.Family
	ip      string // as in "ip saddr"
	address string // type of its addresses
	icmp    string // the protocol
	reject  string // how it is told that something is forbidden
	// links are rules that come before all others, of what two on one link say to each other beside what they send to addresses.
	links []string
}

var (
	ipv4 = family{
		table: knftables.IPv4Family, ip: "ip", address: "ipv4_addr", icmp: "icmp", reject: "reject with icmp type admin-prohibited",
	}
	// Neighbour discovery is to IPv6 what ARP is to IPv4, which passes no rule of a table of ours: nobody has it from another link (its hop limit
	// is 255, RFC 4861). All else that has an address of the link alone is no pod's by any policy: pods of one bridge could meet by it
	// beside all rules.
	ipv6 = family{
		table: knftables.IPv6Family, ip: "ip6", address: "ipv6_addr", icmp: "ipv6-icmp", reject: "reject with icmpv6 type admin-prohibited",
		links: []string{
			"ip6 hoplimit 255 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
			fmt.Sprintf("iifname %q ip6 saddr { ::, fe80::/10 } counter drop", netplan.Bridge),
			fmt.Sprintf("iifname %q ip6 daddr { fe80::/10, ff00::/8 } counter drop", netplan.Bridge),
		},
	}
)

// has reports whether an address is of this family.
func (f family) has(a netip.Addr) bool {
	return a.IsValid() && a.Is4() == (f.table == knftables.IPv4Family)
}

// of gives that one of some addresses which is of this family; the zero value for none.
func (f family) of(list []netip.Addr) netip.Addr {
	for _, a := range list {
		if f.has(a) {
			return a
		}
	}
	return netip.Addr{}
}

// rangeOf gives that one of some ranges which is of this family; the zero value for none.
func (f family) rangeOf(list []netip.Prefix) netip.Prefix {
	for _, p := range list {
		if f.has(p.Addr()) {
			return p
		}
	}
	return netip.Prefix{}
}

// table is an nftables table as a value, but for what is always in it.
type table struct {
	sets   map[string]set
	chains map[string][]string // rules as nft reads them
}

// set is a set or, with verdicts, a verdict map.
type set struct {
	of       string // type of the keys, such as "ipv4_addr . inet_proto"
	ranges   bool
	verdicts bool
	elements map[string]string // to the chain, or to nothing
}

// Names that are always there.
const (
	egressMap  = "egress"  // chain by the address of a pod whose egress is limited
	ingressMap = "ingress" // chain by the address of a pod whose ingress is limited
	podsSet    = "pods"    // all that are known
	selfSet    = "self"    // address pairs of pods that talk to themselves
	dnsSet     = "dns"     // which pods in egressMap may ask the cluster's DNS, by protocol
)

// Types of keys.
const (
	protocolType = "inet_proto"
	portType     = "inet_proto . inet_service"
)

// add notes an element in the set, which it makes if there is none.
func (t table) add(name string, like set, elements ...string) {
	s, there := t.sets[name]
	if !there {
		s = like
		s.elements = map[string]string{}
		t.sets[name] = s
	}
	for _, e := range elements {
		s.elements[e] = ""
	}
}
