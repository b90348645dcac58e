package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

// direction of traffic, as the pod that a policy selects sees it.
type direction struct {
	name string // also of the map
	kind networkingv1.PolicyType
	peer string // the field of a packet that names the other end
}

var (
	ingress = direction{ingressMap, networkingv1.PolicyTypeIngress, "saddr"}
	egress  = direction{egressMap, networkingv1.PolicyTypeEgress, "daddr"}
)

// end is what comes of a packet that no policy allows.
func (d direction) end(f family) []string {
	if d.kind == networkingv1.PolicyTypeEgress {
		return []string{"counter " + f.reject}
	}
	return []string{f.ip + " saddr @" + podsSet + " counter " + f.reject, "counter drop"}
}

// rule is one of a policy, in either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// rulesOf says whether a policy limits a direction, and what it allows there.
func (d direction) rulesOf(p *networkingv1.NetworkPolicy) (list []rule, limits bool) {
	types := p.Spec.PolicyTypes
	if len(types) == 0 { // of before there was egress
		if types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}; len(p.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	if !slices.Contains(types, d.kind) {
		return nil, false
	}
	if d.kind == networkingv1.PolicyTypeIngress {
		for _, r := range p.Spec.Ingress {
			list = append(list, rule{r.From, r.Ports})
		}
		return list, true
	}
	for _, r := range p.Spec.Egress {
		list = append(list, rule{r.To, r.Ports})
	}
	return list, true
}

// compile makes the table of a family that holds pods to the policies.
func compile(f family, s State) table {
	s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p Pod) bool { return !f.has(p.Address) })
	t := table{sets: map[string]set{}, chains: map[string][]string{}}
	for _, name := range []string{ingressMap, egressMap} {
		t.add(name, set{of: f.address, verdicts: true})
	}
	t.add(podsSet, set{of: f.address})
	t.add(selfSet, set{of: f.address + " . " + f.address})
	t.add(dnsSet, set{of: f.address + " . " + protocolType})
	for _, p := range s.Pods {
		t.add(podsSet, set{}, p.Address.String())
	}
	c := compiler{State: s, family: f, table: t, selectors: map[*metav1.LabelSelector]labels.Selector{}, in: map[string][]Pod{}}
	for _, p := range s.Pods {
		c.in[p.Namespace] = append(c.in[p.Namespace], p)
	}
	for _, d := range []direction{ingress, egress} {
		c.direct(d)
	}
	return t
}

type compiler struct {
	State
	family    family
	table     table
	selectors map[*metav1.LabelSelector]labels.Selector
	in        map[string][]Pod // by namespace
}

// selector of labels; one that the API server would not have taken selects nothing.
func (c *compiler) selector(s *metav1.LabelSelector) labels.Selector {
	if known, there := c.selectors[s]; there {
		return known
	}
	made, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		made = labels.Nothing()
	}
	c.selectors[s] = made
	return made
}

// direct makes what holds in one direction. Pods that the same policies select share a chain.
func (c *compiler) direct(d direction) {
	by := map[netip.Addr][]*networkingv1.NetworkPolicy{}
	for _, p := range sorted(c.Policies) {
		rules, limits := d.rulesOf(p)
		if !limits {
			continue
		}
		var selected []Pod
		for _, pod := range c.in[p.Namespace] {
			if c.selects(&p.Spec.PodSelector, pod.Labels) {
				selected = append(selected, pod)
				by[pod.Address] = append(by[pod.Address], p)
			}
		}
		if len(selected) > 0 {
			c.policy(d, p, rules, selected)
		}
	}
	for address, policies := range by {
		c.limit(d, address, policies)
	}
}

func sorted(list []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	return slices.SortedFunc(slices.Values(list), func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// limit sends a pod's packets to the chain of its policies.
func (c *compiler) limit(d direction, address netip.Addr, policies []*networkingv1.NetworkPolicy) {
	var jumps, names []string
	for _, p := range policies {
		names = append(names, d.chain(p))
		if len(c.table.chains[d.chain(p)]) > 0 {
			jumps = append(jumps, "jump "+d.chain(p))
		}
	}
	chain := d.name + "-" + short(strings.Join(names, " "))
	c.table.chains[chain] = slices.Concat([]string{c.self()}, jumps, d.end(c.family))
	c.table.sets[d.name].elements[address.String()] = "goto " + chain
	c.table.add(selfSet, set{}, fmt.Sprintf("%s . %s", address, address))
}

// self is the rule for what a pod sends to itself.
func (c *compiler) self() string {
	return fmt.Sprintf("%[1]s saddr . %[1]s daddr @%[2]s accept", c.family.ip, selfSet)
}

// short is a name of fixed length for a long one.
func short(long string) string {
	sum := sha256.Sum256([]byte(long))
	return hex.EncodeToString(sum[:8])
}

// chain is the name of a policy's: readable as long as it fits beside the names of its sets.
func (d direction) chain(p *networkingv1.NetworkPolicy) string {
	name := p.Namespace + "/" + p.Name
	if len(name) > 120 {
		name = short(name)
	}
	return d.name + "/" + name
}

// policy makes the chain of one, which accepts what it allows.
func (c *compiler) policy(d direction, p *networkingv1.NetworkPolicy, rules []rule, selected []Pod) {
	chain, peer := d.chain(p), c.family.ip+" "+d.peer
	for i, r := range rules {
		name := fmt.Sprintf("%s/%d", chain, i)
		to := c.peersOf(p.Namespace, r.peers)
		var whose []string // which peers a packet may be from, or for
		switch {
		case to.all:
			whose = []string{""}
		default:
			if to.selects {
				c.table.add(name+"/pods", set{of: c.family.address}, to.addresses()...)
				whose = append(whose, peer+" @"+name+"/pods ")
			}
			if blocks := join(to.blocks); len(blocks) > 0 {
				c.table.add(name+"/blocks", set{of: c.family.address, ranges: true})
				for _, b := range blocks {
					c.table.add(name+"/blocks", set{}, b.String())
				}
				whose = append(whose, c.abroad(d, p.Namespace)+peer+" @"+name+"/blocks ")
			}
		}
		receivers := selected
		if d.kind == networkingv1.PolicyTypeEgress {
			if receivers = to.pods; to.all || len(to.blocks) > 0 {
				receivers = c.Pods
			}
		}
		for _, who := range whose {
			for _, which := range c.ports(name, r.ports, receivers) {
				c.table.chains[chain] = append(c.table.chains[chain], who+which+"accept")
			}
		}
		if d.kind == networkingv1.PolicyTypeEgress {
			c.dns(r.ports, to, selected)
		}
	}
}

// peers are who may be at the other end.
type peers struct {
	all     bool
	selects bool // some are named by selectors, even if there is none just now
	pods    []Pod
	blocks  []span[netip.Addr]
	dns     bool // the cluster's DNS is among them
}

func (p peers) addresses() (list []string) {
	for _, pod := range p.pods {
		list = append(list, pod.Address.String())
	}
	return list
}

// dnsPod is what the cluster's DNS is to selectors.
var dnsPod = Pod{Namespace: metav1.NamespaceSystem, Labels: map[string]string{"k8s-app": "kube-dns"}}

func (c *compiler) peersOf(namespace string, list []networkingv1.NetworkPolicyPeer) (p peers) {
	if len(list) == 0 {
		return peers{all: true, dns: true}
	}
	for _, peer := range list {
		if peer.IPBlock != nil {
			p.blocks = append(p.blocks, c.family.blockSpans(peer.IPBlock)...)
			continue
		}
		p.selects = true
		for _, name := range c.namespaces(namespace, peer.NamespaceSelector) {
			for _, pod := range c.in[name] {
				if c.selects(peer.PodSelector, pod.Labels) {
					p.pods = append(p.pods, pod)
				}
			}
		}
		system := namespace == dnsPod.Namespace
		if peer.NamespaceSelector != nil {
			system = c.selects(peer.NamespaceSelector, c.Namespaces[dnsPod.Namespace])
		}
		p.dns = p.dns || system && c.selects(peer.PodSelector, dnsPod.Labels)
	}
	dns, node := c.family.of(c.DNS), c.family.of(c.Node) // a zero value is in no range
	for _, b := range p.blocks {
		p.dns = p.dns || b.contains(dns) || b.contains(node) && c.tenant(namespace) == ""
	}
	return p
}

// tenant is whose guests are in a namespace.
func (c *compiler) tenant(namespace string) string {
	return c.Namespaces[namespace][v1alpha1.LabelConsumer]
}

// abroad matches what neither comes from the owner's pods nor goes to this node, to which the ranges of a guest's policy do not refer: they
// are of its home's address space, where those addresses may be others. What goes to this node leaves by no device, so no rule about the
// one that it leaves by matches.
func (c *compiler) abroad(d direction, namespace string) string {
	switch {
	case c.tenant(namespace) == "":
		return ""
	case d.kind == networkingv1.PolicyTypeEgress:
		return "meta oiftype != loopback "
	}
	return fmt.Sprintf("iifname != %q ", netplan.Bridge)
}

// selects reports whether a selector, if there is one, selects what has these labels.
func (c *compiler) selects(s *metav1.LabelSelector, has map[string]string) bool {
	return s == nil || c.selector(s).Matches(labels.Set(has))
}

// namespaces are those that a policy's peer may be in. A policy in a namespace of guests is about its own consumer's pods, and DNS.
func (c *compiler) namespaces(own string, s *metav1.LabelSelector) (list []string) {
	if s == nil {
		return []string{own}
	}
	tenant, selector := c.tenant(own), c.selector(s)
	for name, of := range c.Namespaces {
		if (tenant == "" || of[v1alpha1.LabelConsumer] == tenant) && selector.Matches(labels.Set(of)) {
			list = append(list, name)
		}
	}
	return list
}

var protocols = map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp", corev1.ProtocolSCTP: "sctp"}

func protocolOf(p *corev1.Protocol) corev1.Protocol {
	if p == nil || *p == "" {
		return corev1.ProtocolTCP
	}
	return *p
}

// ports gives the matches for the ports of a rule; receivers are the pods whose names of ports count.
func (c *compiler) ports(name string, list []networkingv1.NetworkPolicyPort, receivers []Pod) (matches []string) {
	if len(list) == 0 {
		return []string{""}
	}
	numbers := map[string][]span[port]{}
	named := false
	for _, p := range list {
		protocol := protocols[protocolOf(p.Protocol)]
		switch {
		case protocol == "":
		case p.Port == nil:
			numbers[protocol] = append(numbers[protocol], span[port]{0, 65535})
		case p.Port.Type == intstr.String:
			named = true
			c.table.add(name+"/named", set{of: c.family.address + " . " + portType})
			for _, pod := range receivers {
				for _, at := range pod.Ports {
					if at.Name == p.Port.StrVal && protocolOf(&at.Protocol) == protocolOf(p.Protocol) {
						c.table.add(name+"/named", set{}, fmt.Sprintf("%s . %s . %d", pod.Address, protocol, at.ContainerPort))
					}
				}
			}
		default:
			s := span[port]{port(p.Port.IntVal), port(p.Port.IntVal)}
			if p.EndPort != nil {
				s.last = port(max(*p.EndPort, p.Port.IntVal))
			}
			numbers[protocol] = append(numbers[protocol], s)
		}
	}
	if len(numbers) > 0 {
		c.table.add(name+"/ports", set{of: portType, ranges: true})
		for protocol, spans := range numbers {
			for _, s := range join(spans) {
				c.table.add(name+"/ports", set{}, protocol+" . "+s.String())
			}
		}
		matches = append(matches, "meta l4proto . th dport @"+name+"/ports ")
	}
	if named {
		matches = append(matches, c.family.ip+" daddr . meta l4proto . th dport @"+name+"/named ")
	}
	return matches
}

const dnsPort = 53

// dns lets pods ask the cluster's DNS if a rule allows them what they would need were it a pod.
func (c *compiler) dns(ports []networkingv1.NetworkPolicyPort, to peers, selected []Pod) {
	if !to.dns {
		return
	}
	for protocol, name := range map[corev1.Protocol]string{corev1.ProtocolUDP: "dns", corev1.ProtocolTCP: "dns-tcp"} {
		if !slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
			switch {
			case protocolOf(p.Protocol) != protocol:
				return false
			case p.Port == nil:
				return true
			case p.Port.Type == intstr.String:
				return p.Port.StrVal == name
			case p.EndPort != nil:
				return p.Port.IntVal <= dnsPort && dnsPort <= *p.EndPort
			}
			return p.Port.IntVal == dnsPort
		}) && len(ports) > 0 {
			continue
		}
		for _, pod := range selected {
			c.table.add(dnsSet, set{}, fmt.Sprintf("%s . %s", pod.Address, protocols[protocol]))
		}
	}
}
