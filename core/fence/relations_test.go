package fence

import (
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
)

func idOf(name string) identity.ID { return identity.ID(sha256.Sum256([]byte(name))) }

func peerAt(name, alias string) v1alpha1.Peer {
	p := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: v1alpha1.PeerSpec{ID: idOf(name).String()}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}} // policies know it by its name
	if alias != "" {
		p.Status.Network = &v1alpha1.NetworkStatus{Theirs: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: alias}}}
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
	offline := v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "offline"}, Spec: v1alpha1.SharingPolicySpec{
		Peers: []string{"alice"}, Network: &v1alpha1.GuestNetwork{Internet: v1alpha1.AccessDeny},
	}}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	ofHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	at := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	byPeer := func(list ...Provider) []Provider {
		slices.SortFunc(list, func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
		return list
	}
	deleted := func(c v1alpha1.Contract) v1alpha1.Contract {
		c.DeletionTimestamp = &metav1.Time{}
		return c
	}
	for _, tt := range []struct {
		name string
		in   objects
		want Relations
	}{
		{"nobody", objects{peers: []v1alpha1.Peer{peerAt("alice", "10.76.0.0/16")}}, Relations{}},
		{
			"a consumer with guests",
			objects{
				peers: []v1alpha1.Peer{peerAt("alice", "10.76.0.0/16")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)},
				pods: []corev1.Pod{podOf(alice, "1", "10.42.0.5"), podOf(alice, "2", "")},
			},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: ranges("10.76.0.0/16"), Guests: []Guest{{UID: "1", Addresses: addrs("10.42.0.5")}, {UID: "2"}}}}},
		},
		{
			"no tunnel yet, no internet by the policy",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleProvider)}, policies: []v1alpha1.SharingPolicy{offline}},
			Relations{Tenants: []Tenant{{Consumer: alice}}},
		},
		{
			"a contract that ends counts until it is gone",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.76.0.0/16")}, contracts: []v1alpha1.Contract{deleted(with("alice", v1alpha1.RoleProvider))}},
			Relations{Tenants: []Tenant{{Consumer: alice, Internet: true, Home: ranges("10.76.0.0/16")}}},
		},
		{
			"a guest whose contract is gone reaches nothing but its like",
			objects{pods: []corev1.Pod{podOf(alice, "1", "10.42.0.5")}},
			Relations{Tenants: []Tenant{{Consumer: alice, Guests: []Guest{{UID: "1", Addresses: addrs("10.42.0.5")}}}}},
		},
		{
			"a provider of ours, and one that is both",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.76.0.0/16"), peerAt("bob", "10.77.0.0/16")},
				contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleConsumer), with("bob", v1alpha1.RoleConsumer), with("bob", v1alpha1.RoleProvider)}},
			Relations{Tenants: []Tenant{{Consumer: bob, Internet: true, Home: ranges("10.77.0.0/16")}},
				Providers: byPeer(Provider{Peer: alice, Ranges: ranges("10.76.0.0/16")}, Provider{Peer: bob, Ranges: ranges("10.77.0.0/16")})},
		},
		{
			"own pods at a provider are known by their status: none that ended, is of the host's network, elsewhere, or claims what is not there",
			objects{peers: []v1alpha1.Peer{peerAt("alice", "10.76.0.0/16")}, contracts: []v1alpha1.Contract{with("alice", v1alpha1.RoleConsumer)},
				pods: []corev1.Pod{podOf("", "1", "10.76.255.130", at("kith-alice")), podOf("", "2", "10.76.255.131", at("kith-alice"), ended),
					podOf("", "3", "10.76.255.1", at("kith-alice"), ofHost), podOf("", "4", "10.76.255.132", at("alice")),
					podOf("", "5", "192.168.1.1", at("kith-alice")), podOf("", "6", "", at("kith-alice"))}},
			Relations{Providers: []Provider{{Peer: alice, Ranges: ranges("10.76.0.0/16"), Pods: addrs("10.76.255.130")}}},
		},
		{
			"pods that ended or are of the host's network have no address, odd labels no tenant",
			objects{pods: []corev1.Pod{podOf(alice, "1", "10.42.0.5", ended), podOf(alice, "2", "10.42.255.1", ofHost), podOf("../x", "3", "10.42.0.6")}},
			Relations{Tenants: []Tenant{{Consumer: alice, Guests: []Guest{{UID: "2"}}}}},
		},
	} {
		if got := tt.in.relations(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n%+v, want\n%+v", tt.name, got, tt.want)
		}
	}
}
