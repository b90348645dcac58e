package virtualnode

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// A status that did not change is written as seldom as a kubelet writes its own, so nobody would notice for minutes.
func TestADeletedNodeIsMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientset()
		n := &Node{cfg: Config{Home: home, NodeName: "kith-bob", PeerName: "bob"}, log: slog.New(slog.DiscardHandler),
			state: state{reachable: true, published: true}}
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

// A node that ends while its status is written ends, and not all of kithd with it.
func TestAStatusThatIsInterruptedEndsQuietly(t *testing.T) {
	for _, verb := range []string{"get", "patch"} {
		synctest.Test(t, func(t *testing.T) {
			home := fake.NewClientset()
			n := &Node{cfg: Config{Home: home, NodeName: "kith-bob", PeerName: "bob"}, log: slog.New(slog.DiscardHandler),
				state: state{reachable: true, published: true}}
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
