package fence

import (
	"crypto/sha256"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/trust/identity"
)

const nodeIP = "10.42.255.1"

var testConfig = Config{
	Tunnel: "kith0", Group: guestnet.Group, Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"),
	Node: netip.MustParseAddr(nodeIP), DNS: netip.MustParseAddr("10.43.0.10"),
}

func ranges(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func idOf(name string) identity.ID { return identity.ID(sha256.Sum256([]byte(name))) }

// peerAt has guests of its own here, and ours there.
func peerAt(name, here, there string) v1alpha1.Peer {
	p := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: idOf(name).String()}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}} // policies know it by its name
	if here != "" {
		p.Status.Network = &v1alpha1.NetworkStatus{
			GuestsHere: here, GuestsThere: there, Space: []string{"10.42.0.0/16", "10.65.8.0/24"},
			Aliases: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.76.0.0/16"}},
		}
	}
	return p
}

func with(peer string, role v1alpha1.Role) v1alpha1.Contract {
	return v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Peer: peer, Role: role}}
}

func podOf(consumer, uid, ip string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	if consumer != "" {
		p.Labels = map[string]string{v1alpha1.LabelConsumer: consumer}
	}
	if ip != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func TestRelationsFollowTheCluster(t *testing.T) {
	alice, bob := idOf("alice").Compact(), idOf("bob").Compact()
	space := ranges("10.42.0.0/16", "10.65.8.0/24")
	offline := v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "offline"}, Spec: v1alpha1.SharingPolicySpec{
		Peers: []string{"alice"}, Network: &v1alpha1.GuestNetwork{Internet: v1alpha1.AccessDeny},
	}}
	slow := v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: v1alpha1.SharingPolicySpec{
		Network: &v1alpha1.GuestNetwork{Bandwidth: &v1alpha1.GuestBandwidth{Egress: "20M", Ingress: "fast"}},
	}}
	byPeer := func(list ...Provider) []Provider {
		slices.SortFunc(list, func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
		return list
	}
	deleted := func(c v1alpha1.Contract) v1alpha1.Contract {
		c.DeletionTimestamp = &metav1.Time{}
		return c
	}
	both := peerAt("alice", "10.65.1.0/24", "10.65.2.0/24")
	both.Status.Network.IPv6 = &v1alpha1.NetworkIPv6{GuestsHere: "fd65:1::/64", GuestsThere: "fd65:2::/64", Space: []string{"2001:cafe:42::/56"}}
	shares := peerAt("alice", "10.65.1.0/24", "")
	shares.Status.Network.Shared = []v1alpha1.SharedPod{
		{Address: "10.65.1.200", Pod: "10.42.0.5", Ports: []v1alpha1.SharedPort{{Protocol: corev1.ProtocolUDP, Port: 53}, {Protocol: "X", Port: 1}}},
		{Address: "10.65.1.201", Pod: testConfig.Node.String(), Ports: []v1alpha1.SharedPort{{Protocol: corev1.ProtocolTCP, Port: 22}}}, {Address: "10.65.1.202", Pod: "192.0.2.1"},
	}
	for _, tt := range []struct {
		name string
		in   objects
		want Relations
	}{
		{
			"one with whom a pod is shared, and neither the node nor what is none",
			objects{peers: []v1alpha1.Peer{shares}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: space, Guests: ranges("10.65.1.0/24"), Aliases: ranges("10.76.0.0/16"), Shared: []Shared{{netip.MustParseAddr("10.42.0.5"), 17, 53}}}}},
		},
		{
			"both families",
			objects{peers: []v1alpha1.Peer{both}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider), with("alice", v1alpha1.RoleConsumer)}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: slices.Concat(space, ranges("2001:cafe:42::/56")), Guests: ranges("10.65.1.0/24", "fd65:1::/64")}},
				Providers: []Provider{{Peer: alice, Guests: ranges("10.65.2.0/24")[0], Guests6: ranges("fd65:2::/64")[0]}}},
		},
		{"nobody", objects{peers: []v1alpha1.Peer{peerAt("alice", "10.65.1.0/24", "10.65.2.0/24")}}, Relations{}},
		{
			"a consumer",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.65.1.0/24", "10.65.2.0/24")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: space, Guests: ranges("10.65.1.0/24")}}},
		},
		{
			"no tunnel yet, no internet by the policy",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "", "")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)}, policies: []v1alpha1.SharingPolicy{offline}},
			Relations{Tenants: []Tenant{{Consumer: alice}}},
		},
		{
			"a policy that bounds what guests send",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "", "")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)}, policies: []v1alpha1.SharingPolicy{slow}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Bounds: Bounds{Of: "slow", Egress: 20e6}}}},
		},
		{
			"what cannot be read is closed",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.65.1.0", "10.65.2")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider), with("alice", v1alpha1.RoleConsumer)}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: space}}},
		},
		{
			"a contract that ends counts until it is gone",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.65.1.0/24", "")}, contracts: []v1alpha1.Contract{deleted(with("alice", v1alpha1.RoleProvider))}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: space, Guests: ranges("10.65.1.0/24")}}},
		},
		{
			"a provider of ours, and one that is both",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.65.1.0/24", "10.65.2.0/24"), peerAt("bob", "10.65.3.0/24", "10.65.4.0/24")},
				contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleConsumer), with("bob", v1alpha1.RoleConsumer), with("bob", v1alpha1.RoleProvider)}},
			Relations{Tenants: []Tenant{{Consumer: bob, Internet: true, Home: space, Guests: ranges("10.65.3.0/24")}},
				Providers: byPeer(Provider{Peer: alice, Guests: ranges("10.65.2.0/24")[0]}, Provider{Peer: bob, Guests: ranges("10.65.4.0/24")[0]})},
		},
	} {
		if got := testConfig.relations(tt.in); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n%+v, want\n%+v", tt.name, got, tt.want)
		}
	}
}

func TestWithoutLinksGuestsHaveTheAddressesOfTheirStatus(t *testing.T) {
	alice, bob := idOf("alice").Compact(), idOf("bob").Compact()
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	ofHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	cfg := testConfig
	cfg.Group, cfg.NodeName = 0, "corp-1"
	all := objects{
		peers:     []v1alpha1.Peer{peerAt("alice", "10.65.1.0/24", "10.65.2.0/24")},
		contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)},
		pods: []corev1.Pod{
			podOf(alice, "1", "10.42.0.5"), podOf(alice, "2", ""), podOf(alice, "3", "10.42.0.6", ended), podOf(alice, "4", nodeIP, ofHost), podOf(alice, "5", nodeIP),
			podOf(alice, "6", "192.168.1.1"), podOf("../x", "7", "10.42.0.7"), podOf("", "8", "10.42.0.8"), podOf(bob, "9", "10.42.0.9"),
			podOf(alice, "10", "fd00::5", func(p *corev1.Pod) { p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "10.42.0.10"}) }),
		},
		nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "corp-1"}, Spec: corev1.NodeSpec{PodCIDR: "10.42.0.0/24"}}},
	}
	for i := range all.pods {
		on("corp-1")(&all.pods[i])
	}
	got := cfg.relations(all)
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	want := Relations{
		Tenants: []Tenant{{Consumer: alice, Internet: true, Home: ranges("10.76.0.0/16"), Guests: ranges("10.42.0.5/32", "10.42.0.10/32")}, {Consumer: bob, Guests: ranges("10.42.0.9/32")}},
		// What is of no range, or of nobody who could be a consumer, is closed, by IPv6 too; a node's address never is, and its guest is awaited.
		Plugin: Plugin{
			Closed: ranges("192.168.1.1/32", "10.42.0.7/32", "fd00::5/128"), Here: addrs("10.42.0.5", "192.168.1.1", "10.42.0.7", "10.42.0.9", "10.42.0.10"),
			Ranges: ranges("10.42.0.0/24"), Awaited: true, Own: addrs("10.42.0.8"),
		},
	}
	slices.SortFunc(want.Tenants, func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}

	// Where each node has a fence.
	cfg.Self, cfg.NodeName = "corp-1", "corp-1"
	got = cfg.relations(objects{pods: []corev1.Pod{
		podOf(alice, "1", "10.42.0.5", on("corp-1")), podOf(alice, "2", "10.42.1.5", on("corp-2")), podOf(alice, "3", "10.42.2.5"), podOf(alice, "4", "", on("corp-2")),
		podOf(alice, "5", "10.99.1.5", on("corp-2")),
	}})
	want = Relations{
		Tenants: []Tenant{{Consumer: alice, Guests: ranges("10.42.0.5/32", "10.42.1.5/32", "10.42.2.5/32"), Apart: ranges("10.42.1.5/32", "10.42.2.5/32")}},
		Plugin:  Plugin{Closed: ranges("10.99.1.5/32"), Apart: ranges("10.99.1.5/32"), Here: addrs("10.42.0.5")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	// A guest is awaited from when it is bound to this node, until it has an address.
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"not bound yet": {podOf(alice, "1", ""), false}, "bound": {podOf(alice, "1", "", on("corp-1")), true}, "elsewhere": {podOf(alice, "1", "", on("corp-2")), false},
		"here": {podOf(alice, "1", "10.42.0.5", on("corp-1")), false}, "of no range": {podOf(alice, "1", "10.99.0.5", on("corp-1")), false},
		"with a new sandbox": {podOf(alice, "1", "10.42.0.5", on("corp-1"), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
		}), true},
		"of IPv6 alone": {podOf(alice, "1", "fd00::5", on("corp-1")), true}, "the node's": {podOf(alice, "1", nodeIP, on("corp-1")), true},
		"ended": {podOf(alice, "1", "", on("corp-1"), ended), false}, "the owner's": {podOf("", "1", "", on("corp-1")), false},
	} {
		if got := cfg.relations(objects{pods: []corev1.Pod{c.pod}}).Plugin.Awaited; got != c.want {
			t.Errorf("%s: awaited %t, want %t", name, got, c.want)
		}
	}
}

func TestWhoHasAddressesOutOfTheRange(t *testing.T) {
	node := func(name string, ranges ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	}
	named := func(name, node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Namespace, p.Name, p.Spec.NodeName = "shop", name, node }
	}
	ofHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	pods := testConfig.Pods
	held := OutOfRange(pods, []corev1.Node{node("a", "10.42.1.0/24", "fd00:1::/64"), node("b"), node("kith-peer", "10.99.0.0/24")}, []corev1.Pod{
		podOf("", "1", "10.42.1.5", named("web", "a")), podOf("", "2", "192.168.1.7", named("proxy", "a"), ofHost), podOf("", "3", "10.77.0.5", named("away", "kith-peer")),
		podOf("", "4", "fd00:1::5", named("six", "a")), podOf("", "5", "", named("new", "a")),
	})
	if len(held) > 0 {
		t.Errorf("%v, and the range holds", held)
	}
	got := OutOfRange(pods, []corev1.Node{node("a", "10.99.1.0/24"), node("b", "10.0.0.0/8")}, []corev1.Pod{podOf("alice", "1", "10.98.1.5", named("web", "a"))})
	if want := []string{
		"node a gives its pods addresses of 10.99.1.0/24 (spec.podCIDR)", "node b gives its pods addresses of 10.0.0.0/8 (spec.podCIDR)", "pod shop/web on node a has 10.98.1.5",
	}; len(got) != 3 || got[0].String() != want[0] || got[1].String() != want[1] || got[2].String() != want[2] {
		t.Errorf("%v, want %v", got, want)
	}
}
