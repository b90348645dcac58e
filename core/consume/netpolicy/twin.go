package netpolicy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// At makes the NetworkPolicy for a twin. twins gives the twin of a home namespace, if there is one; homes is home's address space: its
// pods and its guests elsewhere, whose traffic home itself holds to its policies.
func (p *Policy) At(twin string, twins func(home string) (string, bool), homes []string) *networkingv1.NetworkPolicy {
	out := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: p.Name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: p.Pods},
	}
	home := make([]networkingv1.NetworkPolicyPeer, 0, len(homes))
	for _, cidr := range homes {
		home = append(home, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	if p.Ingress != nil {
		out.Spec.PolicyTypes = append(out.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		p.Ingress.each(twins, func(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
			out.Spec.Ingress = append(out.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
		})
		if len(home) > 0 {
			out.Spec.Ingress = append(out.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: home})
		}
	}
	if p.Egress != nil {
		out.Spec.PolicyTypes = append(out.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		p.Egress.each(twins, func(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
			out.Spec.Egress = append(out.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
		})
		if len(home) > 0 {
			out.Spec.Egress = append(out.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: home})
		}
	}
	if len(out.Spec.PolicyTypes) == 0 { // it limits nothing, and to say nothing would mean ingress
		return nil
	}
	return out
}

// each gives the rules that are about anybody here. One about nobody is left out, for without peers it would be about all.
func (r *Rules) each(twins func(string) (string, bool), add func([]networkingv1.NetworkPolicyPeer, []networkingv1.NetworkPolicyPort)) {
	for i := range r.Rules {
		rule := &r.Rules[i]
		var peers []networkingv1.NetworkPolicyPeer
		for j := range rule.Peers {
			if peer, ok := rule.Peers[j].at(twins); ok {
				peers = append(peers, peer)
			}
		}
		switch {
		case rule.Anybody:
			add(nil, ports(rule.Ports))
		case len(peers) > 0:
			add(peers, ports(rule.Ports))
		}
	}
}

func named(namespaces ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
	}}}
}

func (p *Who) at(twins func(string) (string, bool)) (networkingv1.NetworkPolicyPeer, bool) {
	switch {
	case p.Block != nil:
		return networkingv1.NetworkPolicyPeer{IPBlock: p.Block}, true
	case p.DNS:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: named(metav1.NamespaceSystem), PodSelector: &metav1.LabelSelector{MatchLabels: dnsLabels}}, true
	}
	var names []string
	for _, home := range p.Namespaces {
		if twin, there := twins(home); there {
			names = append(names, twin)
		}
	}
	slices.Sort(names)
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: named(slices.Compact(names)...), PodSelector: p.Pods}, len(names) > 0
}

func ports(list []Port) (out []networkingv1.NetworkPolicyPort) {
	for _, p := range list {
		protocol := corev1.Protocol(p.Protocol)
		one := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch {
		case p.Name != "":
			one.Port = new(intstr.FromString(p.Name))
		case p.Port != 0:
			one.Port = new(intstr.FromInt32(p.Port))
		}
		if p.End != 0 {
			one.EndPort = new(p.End)
		}
		out = append(out, one)
	}
	return out
}
