package fence

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// objects are what the fence reads in the cluster.
type objects struct {
	contracts []v1alpha1.Contract
	peers     []v1alpha1.Peer
	policies  []v1alpha1.SharingPolicy
	pods      []corev1.Pod  // where links do not tell guests: those of consumers, and all on this node
	nodes     []corev1.Node // likewise
}

// relations says which addresses are whose guests', and who may come through the tunnel for what. A contract counts as long as it
// exists: until the last guest left, its answers must find the way.
func (c Config) relations(o objects) (rel Relations) {
	guests := map[string]guestAddresses{}
	if c.Group == 0 {
		guests, rel.Plugin = c.addresses(o)
	}
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
		policy := sharing.Select(o.policies, &p)
		t := Tenant{Consumer: id.Compact(), Internet: sharing.Internet(policy), Bounds: bounds(policy)}
		if c.Group != 0 {
			t.Home = slices.Concat(pair.Space, pair.IPv6.Space)
			var gone []netip.Prefix // on from here: to guests here these are as any others of their home elsewhere
			for _, r := range pair.Relayed {
				gone = append(gone, r.Guests)
			}
			t.Home = append(t.Home, gone...)
			if pair.Here.IsValid() {
				t.Guests = append(t.Guests, netplan.Without(pair.Here, gone...)...)
			}
			if pair.IPv6.Here.IsValid() {
				t.Guests = append(t.Guests, pair.IPv6.Here)
			}
			for _, o := range pair.Onward { // a home of its own, by way of the peer
				rel.Tenants = append(rel.Tenants, Tenant{
					Consumer: fmt.Sprintf("%s-%x", t.Consumer, o.Network.Addr().As4()), Guests: []netip.Prefix{o.Guests}, Home: o.Elsewhere(), Internet: t.Internet, Bounds: t.Bounds,
				})
			}
		} else {
			for _, m := range pair.Aliases {
				t.Home = append(t.Home, m.Alias)
			}
			t.Guests, t.Apart = guests[t.Consumer].all, guests[t.Consumer].apart
			delete(guests, t.Consumer)
		}
		if t.Shared = c.shared(p.Status.Network); len(t.Shared) > 0 {
			for _, m := range pair.Aliases {
				t.Aliases = append(t.Aliases, m.Alias)
			}
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

// bounds are those of a policy; the zero value where it has none.
func bounds(policy *v1alpha1.SharingPolicy) Bounds {
	ingress, egress := sharing.Bandwidth(policy)
	if ingress == 0 && egress == 0 {
		return Bounds{}
	}
	return Bounds{Of: policy.Name, Ingress: ingress, Egress: egress}
}

// shared are the ports of pods that a consumer reaches.
func (c Config) shared(network *v1alpha1.NetworkStatus) (list []Shared) {
	if network == nil {
		return nil
	}
	for _, s := range network.Shared {
		pod, err := netip.ParseAddr(s.Pod)
		if err != nil || !c.Pods.Contains(pod) || pod == c.Node {
			continue
		}
		for _, p := range s.Ports {
			if number, known := map[corev1.Protocol]byte{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}[p.Protocol]; known { // IANA's
				list = append(list, Shared{pod, number, uint16(p.Port)})
			}
		}
	}
	return list
}

// guestAddresses are those of a tenant's guests, as Tenant has them.
type guestAddresses struct{ all, apart []netip.Prefix }

// addresses of guests, by consumer, as their pods' status says; and what else that says. One on the host's network has the node's, and is not let
// in. An address of a node's own is nobody's guest's, whoever claims it: closed, it would cut the node off. Who claims it is awaited as one without
// an address is.
func (c Config) addresses(o objects) (map[string]guestAddresses, Plugin) {
	list, plugin, nodes := map[string]guestAddresses{}, Plugin{}, AddressesOf(o.nodes)
	nodes[c.Node] = true
	for _, n := range o.nodes {
		if n.Name == c.NodeName {
			plugin.Ranges = podRanges(&n)
		}
	}
	var own []netip.Addr
	for i := range o.pods {
		pod := &o.pods[i]
		consumer, here := pod.Labels[v1alpha1.LabelConsumer], c.isHere(pod)
		if v1alpha1.Ended(pod.Status.Phase) || pod.Spec.HostNetwork {
			continue
		}
		known := false
		for _, a := range podAddresses(pod) {
			guest, apart := netip.PrefixFrom(a, a.BitLen()), c.Self != "" && pod.Spec.NodeName != c.Self
			switch {
			case nodes[a]:
				continue
			case consumer == "":
				if here && a.Is4() {
					own = append(own, a)
				}
				continue
			case isConsumer(consumer) && c.Pods.Contains(a):
				is := list[consumer]
				if is.all = append(is.all, guest); apart {
					is.apart = append(is.apart, guest)
				}
				list[consumer] = is
			default:
				if plugin.Closed = append(plugin.Closed, guest); apart {
					plugin.Apart = append(plugin.Apart, guest)
				}
			}
			if known = known || a.Is4() && !isRemade(pod); here && a.Is4() {
				plugin.Here = append(plugin.Here, a)
			}
		}
		plugin.Awaited = plugin.Awaited || consumer != "" && here && !known
	}
	if plugin.guestsHere() { // else nobody asks
		plugin.Own = own
	}
	return list, plugin
}

// Guests are addresses of a consumer's guests.
type Guests struct{ All, Here []netip.Addr } // in the cluster, and of these on this node

// GuestsOf gives the addresses of each consumer's guests, by compact ID. One that two of them claim is nobody's, as to the fence.
func (c Config) GuestsOf(pods []corev1.Pod, nodes []corev1.Node) map[string]Guests {
	all, plugin := c.addresses(objects{pods: pods, nodes: nodes})
	claims := map[netip.Prefix]int{}
	for _, is := range all {
		for _, a := range slices.Compact(slices.SortedFunc(slices.Values(is.all), netip.Prefix.Compare)) {
			claims[a]++
		}
	}
	guests := map[string]Guests{}
	for consumer, is := range all {
		for _, a := range slices.Compact(slices.SortedFunc(slices.Values(is.all), netip.Prefix.Compare)) {
			if claims[a] > 1 || !a.Addr().Is4() {
				continue
			}
			of := guests[consumer]
			if of.All = append(of.All, a.Addr()); slices.Contains(plugin.Here, a.Addr()) {
				of.Here = append(of.Here, a.Addr())
			}
			guests[consumer] = of
		}
	}
	return guests
}

// isRemade reports whether a pod that has an address is about to have another: its sandbox is gone, as after the machine was started anew, and the
// kubelet said so before it makes the next.
func isRemade(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse
	})
}

// isHere reports whether a pod is to run on this node, as soon as the scheduler says so. Of a cluster of which no node's name is known, all are.
func (c Config) isHere(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && (c.NodeName == "" || pod.Spec.NodeName == c.NodeName)
}

func podAddresses(pod *corev1.Pod) (list []netip.Addr) {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			list = append(list, a.Unmap().WithZone(""))
		}
	}
	return list
}

// AddressesOf are the nodes' own addresses, which are nobody's guests'.
func AddressesOf(nodes []corev1.Node) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, n := range nodes {
		for _, is := range n.Status.Addresses {
			if a, err := netip.ParseAddr(is.Address); err == nil {
				all[a] = true
			}
		}
	}
	return all
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
