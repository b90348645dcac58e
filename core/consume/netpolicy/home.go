package netpolicy

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// home is what a message is made from.
type home struct {
	policies   []networkingv1.NetworkPolicy
	namespaces map[string]labels.Set // labels by name
	abroad     map[string]bool       // those that have a twin at the peer
}

// message is what holds for the pods of home at the peer.
func (h home) message() *Policies {
	m := &Policies{}
	for i := range h.policies {
		p := &h.policies[i]
		if !h.abroad[p.Namespace] {
			continue
		}
		out := Policy{Namespace: p.Namespace, Name: p.Name, Pods: p.Spec.PodSelector}
		types := p.Spec.PolicyTypes
		if len(types) == 0 { // of before there was egress
			if types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}; len(p.Spec.Egress) > 0 {
				types = append(types, networkingv1.PolicyTypeEgress)
			}
		}
		if slices.Contains(types, networkingv1.PolicyTypeIngress) {
			out.Ingress = &Rules{}
			for _, r := range p.Spec.Ingress {
				out.Ingress.add(h.rule(p.Namespace, r.From, r.Ports))
			}
		}
		if slices.Contains(types, networkingv1.PolicyTypeEgress) {
			out.Egress = &Rules{}
			for _, r := range p.Spec.Egress {
				out.Egress.add(h.rule(p.Namespace, r.To, r.Ports))
			}
		}
		m.Policies = append(m.Policies, out)
	}
	slices.SortFunc(m.Policies, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return m
}

// add leaves out what allows nobody there: a rule without peers would be taken for one about all.
func (r *Rules) add(one Rule) {
	if one.Anybody || len(one.Peers) > 0 {
		r.Rules = append(r.Rules, one)
	}
}

func (h home) rule(namespace string, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) Rule {
	r := Rule{Anybody: len(from) == 0}
	for i := range from {
		r.Peers = append(r.Peers, h.peers(namespace, &from[i])...)
	}
	for _, p := range ports {
		out := Port{Protocol: string(corev1.ProtocolTCP)}
		if p.Protocol != nil && *p.Protocol != "" {
			out.Protocol = string(*p.Protocol)
		}
		switch {
		case p.Port == nil:
		case p.Port.Type == intstr.String:
			out.Name = p.Port.StrVal
		default:
			out.Port = p.Port.IntVal
		}
		if p.EndPort != nil {
			out.End = *p.EndPort
		}
		r.Ports = append(r.Ports, out)
	}
	return r
}

// dnsLabels are those of the pods that the cluster's DNS is to policies.
var dnsLabels = labels.Set{"k8s-app": "kube-dns"}

// peers gives those that are at the provider: pods of namespaces with a twin there, its DNS, and addresses. The others are home's matter.
func (h home) peers(namespace string, p *networkingv1.NetworkPolicyPeer) (list []Who) {
	if p.IPBlock != nil { // an address means there what it means here
		return []Who{{Block: p.IPBlock}}
	}
	names := []string{namespace}
	if p.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(p.NamespaceSelector)
		if err != nil {
			return nil
		}
		names = nil
		for name, set := range h.namespaces {
			if h.abroad[name] && selector.Matches(set) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if selector.Matches(h.namespaces[metav1.NamespaceSystem]) && matches(p.PodSelector, dnsLabels) {
			list = append(list, Who{DNS: true})
		}
	}
	if len(names) > 0 {
		pods := p.PodSelector
		if pods == nil {
			pods = &metav1.LabelSelector{}
		}
		list = append(list, Who{Pods: pods, Namespaces: names})
	}
	return list
}

func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}
