package node

import (
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/overlay"
	"kith.dev/core/provide/fence"
	"kith.dev/daemon/leader"
)

func machine(name, ip, pods string, labels map[string]string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{PodCIDR: pods},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}, {Type: corev1.NodeInternalIP, Address: ip},
		}},
	}
}

func TestWhatOfTheClusterConcernsNodes(t *testing.T) {
	nodes := []corev1.Node{
		machine("a", "192.0.2.11", "10.42.0.0/24", nil), machine("b", "192.0.2.12", "", nil),
		machine("kith-alice", "192.0.2.11", "", nil), machine("serverless", "192.0.2.11", "", map[string]string{"type": "virtual-kubelet"}),
	}
	peers := []v1alpha1.Peer{
		{Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{
			GuestsThere: "198.18.1.0/24", GuestsHere: "198.19.0.0/16", Space: []string{"10.42.0.0/16"},
			Aliases: []v1alpha1.RangeAlias{{Name: "space", Real: "10.42.0.0/16", Alias: "10.64.0.0/16"}},
		}}}, {}, {Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{GuestsThere: "?"}}},
	}
	want := overlay.World{Gateway: "a", Nodes: []overlay.Node{
		{Name: "a", IP: netip.MustParseAddr("192.0.2.11"), Pods: netip.MustParsePrefix("10.42.0.0/24")}, {Name: "b", IP: netip.MustParseAddr("192.0.2.12")},
	}, Peers: []netip.Prefix{netip.MustParsePrefix("198.18.1.0/24"), netip.MustParsePrefix("10.64.0.0/16")}} // not where peers know guests here: nobody here asks for that
	if got := world("a", nodes, peers); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTheGatewayIsWhereTheKithdIsThatWorks(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kith-system", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	}
	works := map[string]string{leader.Label: "true"}
	n := New(Config{Node: "a", DaemonSet: "kith-system/kith-nodes"})
	for want, pods := range map[string][]*corev1.Pod{
		"":  {pod("k1", "a", corev1.PodRunning, nil), pod("k2", "b", corev1.PodFailed, works)},
		"b": {pod("k1", "a", corev1.PodRunning, nil), pod("k2", "b", corev1.PodRunning, works)},
	} {
		b := fake.NewClientBuilder()
		for _, p := range pods {
			b.WithObjects(p)
		}
		if got, err := n.gateway(t.Context(), b.Build()); err != nil || got != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
}

// By this alone kithd knows where guests may run: it is said of what is in the kernel, not of a process that lives.
func TestANodeIsReadyWhenItsGuestsAreFenced(t *testing.T) {
	n := New(Config{Node: "a", DaemonSet: "kith-system/kith-nodes", Log: slog.New(slog.DiscardHandler)})
	is := func(when string, ready bool) {
		t.Helper()
		if why := n.Ready(); (why == "") != ready {
			t.Errorf("%s: %q", when, why)
		}
	}
	is("at first", false)
	n.inSync.Store(true)
	is("the way is there, no fence", false)
	around, err := fence.New(fence.Config{
		Tunnel: overlay.Device, Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"), DNS: netip.MustParseAddr("10.43.0.10"),
		Self: "a", Kernel: &n.kernel, Log: n.cfg.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.around.Store(around)
	is("a fence that was told of no guests", false)
	n.around.Store(nil)
	n.here.Store(true)
	is("kithd keeps the fence here", true)
	n.inSync.Store(false)
	is("the cluster is read anew", false)
}

// What a process leaves on its node while its pod is merely replaced, connections need.
func TestOnlyTheEndOfAllIsCleanedUp(t *testing.T) {
	now := metav1.NewTime(time.Now())
	of := schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	for what, c := range map[string]struct {
		set  appsv1.DaemonSet
		err  error
		gone bool
	}{
		"it is there":                    {gone: false},
		"it is being deleted":            {set: appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, gone: true},
		"it is gone":                     {err: apierrors.NewNotFound(of, "kith-nodes"), gone: true},
		"its rights are gone":            {err: apierrors.NewForbidden(of, "kith-nodes", errors.New("no")), gone: true},
		"its account is gone":            {err: apierrors.NewUnauthorized("no"), gone: true},
		"the API server does not answer": {err: errors.New("connection refused"), gone: false},
	} {
		if got := gone(&c.set, c.err); got != c.gone {
			t.Errorf("%s: %v", what, got)
		}
	}
}
