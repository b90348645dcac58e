package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	asked atomic.Bool // by other nodes
	term  atomic.Pointer[Term]
	ended chan error
}

func start(t *testing.T, cfg Config) *kithd {
	ctx, stop := context.WithCancel(t.Context())
	k := &kithd{stop: stop, ended: make(chan error, 1)}
	go func() {
		k.ended <- Run(ctx, cfg, func(ctx context.Context, term *Term) error {
			k.term.Store(term)
			term.StayWhile(func() func() bool { return k.asked.Load })
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

// away has a cluster's API server not answer some, by the name of their pods, while cut says so.
func away(all *fake.Clientset, cut *atomic.Bool) {
	all.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if cut.Load() {
			return true, nil, errors.New("no route to host")
		}
		return false, nil, nil
	})
}

func TestPacketsGoOnWhileNobodyElseCanHaveTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice", "kith-bob")
		var cut atomic.Bool
		away(all, &cut)
		alice := start(t, config(all, "alice"))
		alice.asked.Store(true)
		time.Sleep(time.Minute)
		if !alice.term.Load().Held() {
			t.Error("alice does not know that she has the lease")
		}
		cut.Store(true)
		time.Sleep(14 * time.Second)
		if alice.term.Load().Held() {
			t.Error("alice may write although another may have the lease soon")
		}
		time.Sleep(10 * time.Minute)
		if !alice.works.Load() {
			t.Fatal("packets stopped")
		}
		cut.Store(false)
		time.Sleep(15 * time.Second)
		if !alice.works.Load() || !alice.term.Load().Held() || held(t, all) != "alice" {
			t.Errorf("alice works: %v, the lease is %s's", alice.works.Load(), held(t, all))
		}
		cut.Store(true) // and once more, as long as she is asked for
		time.Sleep(time.Minute)
		alice.asked.Store(false)
		if err := <-alice.ended; !errors.Is(err, ErrLost) || alice.works.Load() {
			t.Errorf("alice: %v, works: %v", err, alice.works.Load())
		}
	})
}

func TestWhoWorkedHasTheLeaseFirstWhenTheAPIServerIsBack(t *testing.T) {
	for range 20 { // else it is whoever looks first
		synctest.Test(t, func(t *testing.T) {
			all := cluster("kith-alice", "kith-bob")
			var cut atomic.Bool
			away(all, &cut)
			alice := start(t, config(all, "alice"))
			alice.asked.Store(true)
			time.Sleep(time.Minute)
			bob := start(t, config(all, "bob"))
			time.Sleep(time.Minute)
			cut.Store(true)
			time.Sleep(time.Minute)
			cut.Store(false)
			time.Sleep(time.Minute)
			if !alice.works.Load() || bob.works.Load() || held(t, all) != "alice" {
				t.Errorf("alice works: %v, bob works: %v, the lease is %s's", alice.works.Load(), bob.works.Load(), held(t, all))
			}
			alice.stop()
			<-alice.ended
			bob.stop()
			<-bob.ended
		})
	}
}

func TestWhoSeesThatAnotherHasTheLeaseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cluster("kith-alice", "kith-bob")
		var cut atomic.Bool
		away(all, &cut)
		alice := start(t, config(all, "alice"))
		alice.asked.Store(true)
		time.Sleep(time.Minute)
		cut.Store(true)
		time.Sleep(time.Minute)
		l, err := all.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), ns, "kith")
		if err != nil {
			t.Fatal(err)
		}
		of := l.(*coordinationv1.Lease).DeepCopy()
		of.Spec.HolderIdentity, of.Spec.RenewTime = new("bob_kith-bob"), new(metav1.NowMicro())
		if err := all.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), of, ns); err != nil {
			t.Fatal(err)
		}
		cut.Store(false)
		if err := <-alice.ended; !errors.Is(err, ErrLost) || alice.works.Load() || alice.term.Load().Held() {
			t.Errorf("alice: %v, works: %v", err, alice.works.Load())
		}
		if held(t, all) != "bob" {
			t.Errorf("the lease is %s's", held(t, all))
		}
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
		err := Run(t.Context(), config(all, "alice"), func(context.Context, *Term) error { return broken })
		if !errors.Is(err, broken) || held(t, all) != "" {
			t.Errorf("%v, the lease is %q", err, held(t, all))
		}
	})
}
