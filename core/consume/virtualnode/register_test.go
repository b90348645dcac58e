package virtualnode

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"kith.dev/core/agree/presence"
)

// A status that did not change is written as seldom as a kubelet writes its own, so nobody would notice for minutes.
func TestADeletedNodeIsMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientset()
		n := &Node{face: face{cfg: Config{Home: home, NodeName: "kith-bob", PeerName: "bob"}, log: slog.New(slog.DiscardHandler), state: state{there: presence.Presence{State: presence.Reachable}}}}
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer stop()
		work.Go(func() { _ = n.register(ctx, "v1") })
		work.Go(func() { _ = n.watchOwnNode(ctx) })
		synctest.Wait()
		for range 3 {
			if err := home.CoreV1().Nodes().Delete(t.Context(), "kith-bob", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			node, err := home.CoreV1().Nodes().Get(t.Context(), "kith-bob", metav1.GetOptions{})
			if err != nil || node.Status.Conditions[0].Type != corev1.NodeReady {
				t.Fatalf("%v: %v", err, node)
			}
		}
		n.Leave()
		if err := home.CoreV1().Nodes().Delete(t.Context(), "kith-bob", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if node, err := home.CoreV1().Nodes().Get(t.Context(), "kith-bob", metav1.GetOptions{}); err == nil {
			t.Errorf("who leaves is back: %v", node)
		}
	})
}

// What an administrator did with a node is still so after the peer was away, and after kithd started anew.
func TestWhatAnAdministratorDidWithANodeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientset()
		theirs := corev1.Taint{Key: "corp.example/maintenance", Value: "now", Effect: corev1.TaintEffectNoSchedule}
		run := func(then func()) {
			n := &Node{face: face{cfg: Config{Home: home, NodeName: "kith-bob", PeerName: "bob", Labels: map[string]string{"kith.dev/virtual": "true"}}, log: slog.New(slog.DiscardHandler), state: state{there: presence.Presence{State: presence.Reachable}}}}
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			work.Go(func() { _ = n.register(ctx, "v1") })
			synctest.Wait()
			if err := n.ensureLabelsAndTaints(ctx, n.node("v1")); err != nil {
				t.Fatal(err)
			}
			then()
			for _, there := range []presence.State{presence.Unreachable, presence.Reachable} {
				n.mu.Lock()
				n.state.there = presence.Presence{State: there}
				n.mu.Unlock()
				n.changed.Notify()
				time.Sleep(2 * statusEvery)
			}
			stop()
			work.Wait()
		}
		get := func() *corev1.Node {
			node, err := home.CoreV1().Nodes().Get(t.Context(), "kith-bob", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
		run(func() {
			node := get()
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, theirs)
			node.Labels["corp.example/team"] = "blue"
			if _, err := home.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		run(func() {})
		node := get()
		if !node.Spec.Unschedulable || !slices.Contains(node.Spec.Taints, theirs) || node.Labels["corp.example/team"] != "blue" || len(node.Spec.Taints) != 3 {
			t.Errorf("%+v %v", node.Spec, node.Labels)
		}
	})
}

// A node that ends while its status is written ends, and not all of kithd with it.
func TestAStatusThatIsInterruptedEndsQuietly(t *testing.T) {
	for _, verb := range []string{"get", "patch"} {
		synctest.Test(t, func(t *testing.T) {
			home := fake.NewClientset()
			n := &Node{face: face{cfg: Config{Home: home, NodeName: "kith-bob", PeerName: "bob"}, log: slog.New(slog.DiscardHandler), state: state{there: presence.Presence{State: presence.Reachable}}}}
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			work.Go(func() { _ = n.register(ctx, "v1") })
			synctest.Wait()
			home.PrependReactor(verb, "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
				stop()
				return true, nil, fmt.Errorf("%s of the node: %w", verb, context.Canceled)
			})
			n.changed.Notify()
			work.Wait()
		})
	}
}

func TestANodeBehindAnEgressSelectorShowsNoInternalIP(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.7")
	hostname := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "192.0.2.7"}
	for noTunnel, want := range map[bool][]corev1.NodeAddress{false: {{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, hostname}, true: {hostname}} {
		n := &Node{face: face{cfg: Config{NodeIP: ip, NoTunnel: noTunnel}}}
		if got := n.addresses(); !slices.Equal(got, want) {
			t.Errorf("no tunnel %t: %v, want %v", noTunnel, got, want)
		}
	}
}
