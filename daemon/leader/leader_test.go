package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const ns = "kith-system"

func cluster(pods ...string) *fake.Clientset {
	all := fake.NewClientset()
	for _, name := range pods {
		_ = all.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	return all
}

func config(all *fake.Clientset, node string) Config {
	return Config{Client: all, Namespace: ns, Name: "kith", Node: node, Pod: "kith-" + node, Duration: 15 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

func leads(t *testing.T, all *fake.Clientset, pod string) bool {
	t.Helper()
	p, err := all.CoreV1().Pods(ns).Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Labels[Label] == "true"
}

func held(t *testing.T, all *fake.Clientset) string {
	t.Helper()
	l, err := all.CoordinationV1().Leases(ns).Get(context.Background(), "kith", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return Node(*l.Spec.HolderIdentity)
}

// kithd is one that was started: what it does, and how it ended.
type kithd struct {
	stop  func()
	works atomic.Bool
	ended chan error
}

func start(t *testing.T, cfg Config) *kithd {
	ctx, stop := context.WithCancel(t.Context())
	k := &kithd{stop: stop, ended: make(chan error, 1)}
	go func() {
		k.ended <- Run(ctx, cfg, func(ctx context.Context) error {
			k.works.Store(true)
			<-ctx.Done()
			time.Sleep(time.Second) // says goodbye
			k.works.Store(false)
			return nil
		})
	}()
	return k
}

func TestOneWorksAndTheOtherStandsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice", "kith-bob")
		alice := start(t, config(all, "alice"))
		time.Sleep(time.Minute)
		bob := start(t, config(all, "bob"))
		time.Sleep(time.Minute)
		if !alice.works.Load() || bob.works.Load() || held(t, all) != "alice" || !leads(t, all, "kith-alice") || leads(t, all, "kith-bob") {
			t.Fatalf("alice works: %v, bob works: %v, the lease is %s's", alice.works.Load(), bob.works.Load(), held(t, all))
		}
		alice.stop()
		if err := <-alice.ended; err != nil || alice.works.Load() {
			t.Errorf("alice ended with %v, and works: %v", err, alice.works.Load())
		}
		time.Sleep(4 * time.Second) // she gave it back: nobody waits until it runs out
		if !bob.works.Load() || held(t, all) != "bob" || leads(t, all, "kith-alice") || !leads(t, all, "kith-bob") {
			t.Errorf("bob works: %v, the lease is %s's", bob.works.Load(), held(t, all))
		}
		bob.stop()
		<-bob.ended
	})
}

func TestWhoStandsByEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice", "kith-bob")
		alice := start(t, config(all, "alice"))
		time.Sleep(time.Minute)
		bob := start(t, config(all, "bob"))
		time.Sleep(time.Minute)
		bob.stop()
		if err := <-bob.ended; err != nil || held(t, all) != "alice" {
			t.Errorf("%v, the lease is %s's", err, held(t, all))
		}
		alice.stop()
		<-alice.ended
	})
}

func TestWhoCannotRenewStopsBeforeAnotherStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice", "kith-bob")
		var cut atomic.Bool
		all.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if u, is := a.(clienttesting.UpdateAction); is && cut.Load() {
				if l, err := all.Tracker().Get(u.GetResource(), ns, "kith"); err == nil && l != nil {
					return true, nil, errors.New("no route to host")
				}
			}
			return false, nil, nil
		})
		alice := start(t, config(all, "alice"))
		time.Sleep(time.Minute)
		cut.Store(true)
		began := time.Now()
		err := <-alice.ended
		if !errors.Is(err, ErrLost) || alice.works.Load() {
			t.Errorf("alice: %v, works: %v", err, alice.works.Load())
		}
		if after := time.Since(began); after >= 15*time.Second {
			t.Errorf("stopped after %s, when another may work already", after)
		}
	})
}

func TestTheEndOfTheWorkIsToldAndGivesTheLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice")
		broken := errors.New("the port is taken")
		err := Run(t.Context(), config(all, "alice"), func(context.Context) error { return broken })
		if !errors.Is(err, broken) || held(t, all) != "" {
			t.Errorf("%v, the lease is %q", err, held(t, all))
		}
	})
}
