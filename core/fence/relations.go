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
	contracts []v1alpha1.Contract
	peers     []v1alpha1.Peer
	policies  []v1alpha1.SharingPolicy
	pods      []corev1.Pod // of consumers, where links do not tell guests
}

// relations says which addresses are whose guests', and who may come through the tunnel for what. A contract counts as long as it
// exists: until the last guest left, its answers must find the way.
func (c Config) relations(o objects) (rel Relations) {
	guests := c.addresses(o.pods)
	for _, p := range o.peers {
		consumes, provides := o.roles(p.Name)
		id, err := identity.ParseID(p.Spec.ID)
		if err != nil {
			continue
		}
		pair, _ := p.Status.Network.Pair(netip.Prefix{}) // what cannot be read of it stays closed
		if provides && pair.There.IsValid() {
			rel.Providers = append(rel.Providers, Provider{Peer: id.Compact(), Guests: pair.There, Guests6: pair.IPv6.There})
		}
		if !consumes {
			continue
		}
		t := Tenant{Consumer: id.Compact(), Internet: sharing.Internet(sharing.Select(o.policies, &p))}
		if c.Group != 0 {
			t.Home = slices.Concat(pair.Space, pair.IPv6.Space)
			for _, here := range []netip.Prefix{pair.Here, pair.IPv6.Here} {
				if here.IsValid() {
					t.Guests = append(t.Guests, here)
				}
			}
		} else {
			for _, m := range pair.Aliases {
				t.Home = append(t.Home, m.Alias)
			}
			t.Guests, t.Apart = guests[t.Consumer].all, guests[t.Consumer].apart
			delete(guests, t.Consumer)
		}
		rel.Tenants = append(rel.Tenants, t)
	}
	for consumer, list := range guests { // their contract is gone: they are guests all the same
		rel.Tenants = append(rel.Tenants, Tenant{Consumer: consumer, Guests: list.all, Apart: list.apart})
	}
	slices.SortFunc(rel.Tenants, func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	slices.SortFunc(rel.Providers, func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
	return rel
}

// guestAddresses are those of a tenant's guests, as Tenant has them.
type guestAddresses struct{ all, apart []netip.Prefix }

// addresses of guests, by consumer, as their pods' status says. One on the host's network has the node's.
func (c Config) addresses(pods []corev1.Pod) map[string]guestAddresses {
	list := map[string]guestAddresses{}
	for _, pod := range pods {
		consumer := pod.Labels[v1alpha1.LabelConsumer]
		if !isConsumer(consumer) || v1alpha1.Ended(pod.Status.Phase) || pod.Spec.HostNetwork {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err != nil || !c.Pods.Contains(a) || a == c.Node {
				continue
			}
			is, guest := list[consumer], netip.PrefixFrom(a, 32)
			is.all = append(is.all, guest)
			if c.Self != "" && pod.Spec.NodeName != c.Self {
				is.apart = append(is.apart, guest)
			}
			list[consumer] = is
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
