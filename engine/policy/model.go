package policy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Pod is what rules need to know of a pod. One without an address, on the host's network, or that has ended is none.
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
	DNS        netip.Addr // service address of the cluster's DNS
	Node       netip.Addr // where it runs
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

const (
	addressType = "ipv4_addr"
	pairType    = "ipv4_addr . ipv4_addr"
	askType     = "ipv4_addr . inet_proto"
	portType    = "inet_proto . inet_service"
	namedType   = "ipv4_addr . inet_proto . inet_service"
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
