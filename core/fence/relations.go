package fence

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/sharing"
)

// objects are what the fence reads in the cluster.
type objects struct {
	pods      []corev1.Pod // guests, and the owner's
	contracts []v1alpha1.Contract
	peers     []v1alpha1.Peer
	policies  []v1alpha1.SharingPolicy
}

// relations says who is whose guest, and who may come through the tunnel for what. A contract counts as long as it
// exists: until the last guest left, its answers must find the way.
func (o objects) relations() Relations {
	var rel Relations
	tenants := map[string]*Tenant{}
	tenant := func(consumer string) *Tenant {
		if tenants[consumer] == nil {
			tenants[consumer] = &Tenant{Consumer: consumer}
		}
		return tenants[consumer]
	}
	for _, p := range o.peers {
		consumes, provides := o.roles(p.Name)
		id, err := identity.ParseID(p.Spec.ID)
		if err != nil {
			continue
		}
		if provides {
			rel.Providers = append(rel.Providers, Provider{Peer: id.Compact(), Ranges: p.Status.Network.Aliases(), Pods: o.abroad(p)})
		}
		if !consumes {
			continue
		}
		t := tenant(id.Compact())
		t.Home, t.Internet = p.Status.Network.Aliases(), sharing.Internet(sharing.Select(o.policies, &p))
	}
	for _, pod := range o.pods {
		consumer := pod.Labels[v1alpha1.LabelConsumer]
		if !isConsumer(consumer) || v1alpha1.Ended(pod.Status.Phase) {
			continue
		}
		t := tenant(consumer)
		t.Guests = append(t.Guests, guestOf(&pod))
	}
	for _, t := range tenants {
		rel.Tenants = append(rel.Tenants, *t)
	}
	slices.SortFunc(rel.Tenants, func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	slices.SortFunc(rel.Providers, func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
	return rel
}

// abroad are the addresses of the owner's pods that run at a provider. One on the host's network there has the address of
// that laptop, of which more than the pod would speak.
func (o objects) abroad(p v1alpha1.Peer) (list []netip.Addr) {
	ranges := p.Status.Network.Aliases()
	for _, pod := range o.pods {
		if pod.Spec.NodeName != v1alpha1.VirtualNodePrefix+p.Name || pod.Labels[v1alpha1.LabelConsumer] != "" ||
			v1alpha1.Ended(pod.Status.Phase) || pod.Spec.HostNetwork {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err == nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
				list = append(list, a)
			}
		}
	}
	return list
}

// roles of a peer: does it consume here, does it provide for us?
func (o objects) roles(peer string) (consumes, provides bool) {
	for _, c := range o.contracts {
		if c.Spec.Peer == peer {
			consumes = consumes || c.Spec.Role == v1alpha1.RoleProvider
			provides = provides || c.Spec.Role == v1alpha1.RoleConsumer
		}
	}
	return consumes, provides
}

// isConsumer keeps what cannot be a compact ID out of the names of chains. Only the owner can write that label.
func isConsumer(label string) bool {
	return label != "" && len(label) <= 64 && strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func guestOf(pod *corev1.Pod) Guest {
	g := Guest{UID: string(pod.UID)}
	if pod.Spec.HostNetwork { // its address is the node's
		return g
	}
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			g.Addresses = append(g.Addresses, a)
		}
	}
	return g
}
