package translate

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/trust/identity"
)

var addr = netip.MustParseAddr

func mapping(name, real, alias string) netplan.Mapping {
	return netplan.Mapping{Name: name, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

var here = fence.Config{
	Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"), DNS: addr("10.43.0.10"), NodeName: "n1", Self: "n1", Node: addr("192.0.2.11"),
}

func consumer(t *testing.T, seed byte) identity.ID {
	t.Helper()
	var id identity.ID
	id[0] = seed
	return id
}

func peer(id identity.ID, services string, aliases ...v1alpha1.RangeAlias) v1alpha1.Peer {
	return v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: id.String()}, Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{GuestsHere: "198.19.0.0/16", Services: services, Aliases: aliases}}}
}

func twin(consumer string) string { return v1alpha1.TwinName("shop", consumer[:v1alpha1.ShortIDs[0]]) }

func namespace(consumer string) corev1.Namespace {
	name := twin(consumer)
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer, v1alpha1.LabelHomeNamespace: "shop", v1alpha1.LabelContract: "c-" + consumer,
	}}}
}

func service(namespace, name, home, twin string, age int) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0)),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, Annotations: map[string]string{kinds.AnnotationClusterIP: home},
		},
		Spec: corev1.ServiceSpec{ClusterIP: twin, ClusterIPs: []string{twin}},
	}
}

func guest(consumer, node string, phase corev1.PodPhase, ips ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelConsumer: consumer}}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func TestWhatGuestsOnANodeReachByNumbers(t *testing.T) {
	alice, bella, carol := consumer(t, 1), consumer(t, 2), consumer(t, 3)
	pods := v1alpha1.RangeAlias{Name: "pods", Real: "10.99.0.0/16", Alias: "10.71.0.0/16"}
	host := guest(alice.Compact(), "n1", corev1.PodRunning, "192.0.2.11")
	host.Spec.HostNetwork = true
	o := objects{
		nodes: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.20.0.9"}}}},
		},
		peers: []v1alpha1.Peer{
			peer(alice, "10.43.0.0/16", pods, v1alpha1.RangeAlias{Name: "same", Real: "10.42.0.0/16", Alias: "10.72.0.0/16"}, v1alpha1.RangeAlias{Name: "alias", Real: "10.71.0.0/16", Alias: "10.73.0.0/16"},
				v1alpha1.RangeAlias{Name: "nodes", Real: "172.20.0.0/16", Alias: "10.74.0.0/16"}),
			peer(bella, "10.0.0.0/8", pods),
			{Spec: v1alpha1.PeerSpec{ID: "nonsense"}}, {Spec: v1alpha1.PeerSpec{ID: carol.String()}},
		},
		namespaces: []corev1.Namespace{namespace(alice.Compact()), namespace(bella.Compact()), {ObjectMeta: metav1.ObjectMeta{Name: "owners"}}},
		services: []corev1.Service{
			service(twin(alice.Compact()), "web", "10.43.9.9", "10.43.7.7", 5), service(twin(alice.Compact()), "late", "10.43.9.9", "10.43.7.9", 1), // an address that an older one has
			service(twin(alice.Compact()), "outside", "10.44.0.1", "10.43.7.10", 1), service(twin(alice.Compact()), kinds.APIServerAbroad, "10.43.0.10", "10.43.7.13", 1), service(twin(alice.Compact()), "dns", "10.43.0.10", "10.43.7.11", 1),
			service(twin(alice.Compact()), "six", "fd00::1", "fd00::2", 1), service(twin(alice.Compact()), "none", "10.43.9.10", "None", 1), service(twin(alice.Compact()), "said", "?", "10.43.7.12", 1),
			service(twin(bella.Compact()), "web", "10.43.9.9", "10.43.6.6", 1), service(twin(bella.Compact()), "pods", "10.42.0.9", "10.43.6.7", 1), service(twin(bella.Compact()), "alias", "10.71.0.9", "10.43.6.8", 1),
			service("owners", "web", "10.43.9.20", "10.43.9.9", 1),
		},
		pods: []corev1.Pod{
			guest(alice.Compact(), "n1", corev1.PodRunning, "10.42.1.5", "fd00::5"), guest(alice.Compact(), "n1", corev1.PodRunning, "10.42.1.4"), host,
			guest(alice.Compact(), "n2", corev1.PodRunning, "10.42.2.4"), guest(alice.Compact(), "n1", corev1.PodSucceeded, "10.42.1.6"),
			guest(alice.Compact(), "n1", corev1.PodRunning, "10.42.1.7"), guest(bella.Compact(), "n1", corev1.PodRunning, "10.42.1.7"), // claimed twice
			guest(bella.Compact(), "n1", corev1.PodRunning, "10.42.1.8"), guest(bella.Compact(), "n1", corev1.PodRunning, "172.20.0.9"), guest(bella.Compact(), "n1", corev1.PodRunning, "203.0.113.1"),
			guest(carol.Compact(), "n1", corev1.PodRunning, "10.42.1.9"), guest("Not an ID", "n1", corev1.PodRunning, "10.42.1.10"),
		},
	}
	as := func(real, alias string) netplan.Mapping { return mapping("", real, alias) }
	guests, real := as("198.19.0.0/16", "10.42.0.0/16"), as("10.99.0.0/16", "10.71.0.0/16")
	twins := func(of identity.ID) map[string]string { return map[string]string{"shop": twin(of.Compact())} }
	want := map[string]Tenant{
		alice.Compact(): {Guests: []netip.Addr{addr("10.42.1.4"), addr("10.42.1.5")}, All: []netip.Addr{addr("10.42.1.4"), addr("10.42.1.5"), addr("10.42.2.4")}, Services: guestnet.Services{addr("10.43.9.9"): addr("10.43.7.7")}, Ranges: []netplan.Mapping{guests, real, as("10.42.0.0/16", "10.72.0.0/16"), as("172.20.0.0/16", "10.74.0.0/16")}, Twins: twins(alice), APIServer: twin(alice.Compact())},
		bella.Compact(): {Guests: []netip.Addr{addr("10.42.1.8")}, All: []netip.Addr{addr("10.42.1.8")}, Services: guestnet.Services{addr("10.43.9.9"): addr("10.43.6.6")}, Ranges: []netplan.Mapping{guests, real}, Twins: twins(bella)},
	}
	got := tenants(here, o)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for _, is := range got {
		w := want[is.Consumer]
		if w.Consumer = is.Consumer; !reflect.DeepEqual(is, w) {
			t.Errorf("%+v\nwant %+v", is, w)
		}
	}
	if none := tenants(here, objects{}); none == nil || len(none) != 0 {
		t.Errorf("of nothing: %+v", none)
	}
}
