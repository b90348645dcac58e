package leader

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const ns = "kith-system"

func cluster(pods ...string) *fake.Clientset {
	all := fake.NewClientset()
	for _, name := range pods {
		_ = all.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	// What was changed meanwhile is not overwritten. The fake lets everybody.
	var version atomic.Int64
	all.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		u := action.(clienttesting.UpdateAction)
		l := u.GetObject().(*coordinationv1.Lease).DeepCopy()
		is, err := all.Tracker().Get(u.GetResource(), ns, l.Name)
		if err != nil {
			return true, nil, err
		}
		if is.(*coordinationv1.Lease).ResourceVersion != l.ResourceVersion {
			return true, nil, apierrors.NewConflict(u.GetResource().GroupResource(), l.Name, errors.New("it was changed"))
		}
		l.ResourceVersion = strconv.FormatInt(version.Add(1), 10)
		return true, l, all.Tracker().Update(u.GetResource(), l, ns)
	})
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

// writes reports whether a kithd may write in the cluster now.
func (k *kithd) writes() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	return k.term.Load().Wait(ctx) == nil
}

// unreachable has a cluster's API server not answer while cut says so.
func unreachable(all *fake.Clientset, cut *atomic.Bool) {
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
		unreachable(all, &cut)
		alice := start(t, config(all, "alice"))
		alice.asked.Store(true)
		time.Sleep(time.Minute)
		if !alice.writes() {
			t.Error("alice does not know that she has the lease")
		}
		cut.Store(true)
		time.Sleep(14 * time.Second)
		if alice.writes() {
			t.Error("alice may write although another may have the lease soon")
		}
		time.Sleep(10 * time.Minute)
		if !alice.works.Load() {
			t.Fatal("packets stopped")
		}
		waits := make(chan error, 1)
		go func() { waits <- alice.term.Load().Wait(t.Context()) }()
		cut.Store(false)
		if err := <-waits; err != nil {
			t.Error("what waited for the lease was not done when it was there:", err)
		}
		if !alice.works.Load() || !alice.writes() || held(t, all) != "alice" {
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
	for range 5 { // else it is whoever looks first
		synctest.Test(t, func(t *testing.T) {
			all := cluster("kith-alice", "kith-bob")
			var cut atomic.Bool
			unreachable(all, &cut)
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
		unreachable(all, &cut)
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
		of.ResourceVersion = "bob's"
		of.Spec.HolderIdentity, of.Spec.RenewTime = new("bob_kith-bob"), new(metav1.NowMicro())
		if err := all.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), of, ns); err != nil {
			t.Fatal(err)
		}
		cut.Store(false)
		if err := <-alice.ended; !errors.Is(err, ErrLost) || alice.works.Load() || alice.writes() {
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

// silent is a lease of an API server that answers nobody, after a while.
type silent struct {
	resourcelock.Interface
	is atomic.Bool
}

func (s *silent) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, s.Update(ctx, resourcelock.LeaderElectionRecord{})
}

func (s *silent) Update(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	if !s.is.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestWhoIsNotAnsweredKnowsInTimeThatTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{}
		l := &lock{Interface: s, term: &Term{good: 10 * time.Second}, log: slog.New(slog.DiscardHandler)}
		me := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
		if err := l.Update(t.Context(), me); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.is.Store(true)
		if err := l.Update(t.Context(), me); err == nil {
			t.Error("it was renewed")
		}
		if after := time.Since(began); after != 10*time.Second {
			t.Errorf("known after %s", after)
		}
		if _, _, err := l.Get(t.Context()); !errors.Is(err, ErrLost) || time.Since(began) != 10*time.Second {
			t.Errorf("%v, after %s: the end of the work waits for an answer that does not come", err, time.Since(began))
		}
	})
}
