package mode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// story begins with an autonomous laptop.
func story(t *testing.T, objects []client.Object, tell func(*world, *life)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, objects...)
		l := w.begin(nil, 0, false)
		tell(w, l)
		l.stop()
	})
}

func TestTheOwnerComparesTheCode(t *testing.T) {
	story(t, nil, func(w *world, l *life) {
		w.silent = true
		var said []api.Progress
		result := make(chan error, 1)
		go func() {
			result <- l.Machine.Tether(l.ctx, w.peer(), api.TetherOptions{}, func(p api.Progress) { said = append(said, p) })
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, status := l.Status(); status.Code != "123456" || status.Step != "asking" {
			t.Errorf("%+v", status)
		}
		if !slices.ContainsFunc(said, func(p api.Progress) bool { return p.Code == "123456" && p.Peer == "corp" }) {
			t.Errorf("reported: %+v", said)
		}
		second := l.tether(api.TetherOptions{}) // the same wish
		w.set(func() {
			peer := w.peer()
			w.yes(peer)
			w.check(w.objects.Status().Update(context.Background(), peer))
		})
		if err := errors.Join(<-result, <-second); err != nil {
			t.Error(err)
		}
		l.settled(api.Tethered)
	})
}

func TestTheIDConfirmsBeforehand(t *testing.T) {
	story(t, nil, func(w *world, l *life) {
		if err := <-l.tether(api.TetherOptions{ID: corpID}); err != nil {
			t.Fatal(err)
		}
		if r := w.peer().Spec.Request; r.Confirm == nil || r.Confirm.ID != corpID || r.Confirm.Attempt != r.Attempt {
			t.Errorf("%+v", r)
		}
	})
}

func TestASecondSwitchIsRefused(t *testing.T) {
	acme := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: v1alpha1.PeerSpec{ID: newID()}}
	story(t, []client.Object{acme}, func(w *world, l *life) {
		w.silent = true
		first := l.tether(api.TetherOptions{})
		time.Sleep(time.Second)
		err := l.Machine.Tether(l.ctx, acme, api.TetherOptions{}, func(api.Progress) {})
		if !errors.Is(err, &api.Error{Code: api.CodeConflict}) || !strings.Contains(err.Error(), "not tethered to acme: a switch is under way: asking corp") {
			t.Errorf("%v", err)
		}
		if err := <-l.untether(api.UntetherOptions{}, func(api.Progress) {}); err != nil {
			t.Error(err)
		}
		if err := <-first; err == nil || err.Error() != "not tethered to corp: it was taken back here" {
			t.Errorf("the first: %v", err)
		}
		l.settled(api.Autonomous)
		if err := <-l.untether(api.UntetherOptions{}, func(api.Progress) {}); !errors.Is(err, &api.Error{Code: api.CodeConflict}) || !strings.Contains(err.Error(), "this laptop is not tethered") {
			t.Errorf("of nothing: %v", err)
		}
		w.set(func() { w.silent = false })
		if err := <-l.tether(api.TetherOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-l.tether(api.TetherOptions{}); err == nil || !strings.Contains(err.Error(), "this laptop is tethered to corp") {
			t.Errorf("tethered already: %v", err)
		}
		l.settled(api.Tethered)
	})
}

// The switch goes on when nobody waits for it any more.
func TestWhoAskedMayGo(t *testing.T) {
	story(t, nil, func(w *world, l *life) {
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() {
			result <- l.Machine.Tether(ctx, w.peer(), api.TetherOptions{}, func(api.Progress) { cancel() })
		}()
		if err := <-result; !errors.Is(err, &api.Error{Code: api.CodeTimeout}) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		l.settled(api.Tethered)
	})
}

func TestATetherThatFailsIsTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		code  api.Code
		says  string
	}{
		"refused": {func(w *world) {
			w.refuses = &peering.Problem{Code: peering.CodeForbidden, Message: "nothing was accepted"}
		}, api.CodeDeclined, "not tethered to corp: corp refused: nothing was accepted"},
		"no node":  {func(w *world) { w.slow = true }, api.CodeTimeout, "not tethered to corp: corp did not make this laptop a node in 1m0s: the contract is none (`kith doctor`"},
		"a rival":  {func(w *world) { w.late = contractOf("bob", v1alpha1.RoleProvider, time.Hour) }, api.CodeConflict, "not tethered to corp: this laptop offers resources to bob (`kith unpeer bob`)"},
		"declined": {func(w *world) { w.declines = "corp declined: no" }, api.CodeDeclined, "not tethered to corp: corp declined: no"},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, []client.Object{pod("shop", "ReplicaSet")}, func(w *world, l *life) {
				c.spoil(w)
				err := <-l.tether(api.TetherOptions{})
				if !errors.Is(err, &api.Error{Code: c.code}) || !strings.HasPrefix(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				w.set(func() { w.slow, w.refuses = false, nil })
				time.Sleep(time.Minute)
				l.settled(api.Autonomous)
				if told := w.told(api.EventTetherEnded); len(told) != 1 || !strings.HasPrefix(told[0], "not tethered to corp: ") {
					t.Errorf("told: %q", told)
				}
			})
		})
	}
}

// A company that goes away in the middle is waited for as long as a tether may take, and the laptop comes home without it.
func TestTheCompanyGoesAwayInTheMiddle(t *testing.T) {
	story(t, nil, func(w *world, l *life) {
		result := make(chan error, 1)
		go func() {
			result <- l.Machine.Tether(l.ctx, w.peer(), api.TetherOptions{}, func(p api.Progress) {
				if strings.HasPrefix(p.Message, "stopping") {
					w.cut()
				}
			})
		}()
		if err := <-result; !errors.Is(err, &api.Error{Code: api.CodeTimeout}) {
			t.Errorf("%v", err)
		}
		w.heal()
		time.Sleep(time.Minute)
		l.settled(api.Autonomous)
	})
}

func TestADrainEndsWhatIsMadeAgain(t *testing.T) {
	objects := []client.Object{pod("shop", "ReplicaSet"), pod("db", "StatefulSet"), pod("logs", "DaemonSet")}
	system := pod("dns", "ReplicaSet")
	system.Namespace = metav1.NamespaceSystem
	story(t, append(objects, system), func(w *world, l *life) {
		if err := <-l.tether(api.TetherOptions{LocalWorkloads: api.DrainWorkloads}); err != nil {
			t.Fatal(err)
		}
		var names []string
		pods, err := w.pods()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"dns", "logs", "web-0"}) {
			t.Errorf("there are %v", names)
		}
	})
}

func TestADrainThatDoesNotEndIsTakenBack(t *testing.T) {
	stuck := pod("shop", "ReplicaSet")
	stuck.Finalizers = []string{"example.com/stuck"}
	story(t, []client.Object{stuck}, func(w *world, l *life) {
		err := <-l.tether(api.TetherOptions{LocalWorkloads: api.DrainWorkloads})
		if !errors.Is(err, &api.Error{Code: api.CodeTimeout}) || !strings.Contains(err.Error(), "default/shop did not end in 30s") {
			t.Errorf("%v", err)
		}
		l.settled(api.Autonomous)
	})
}

// Whoever is told of the end of a switch that was broken off hears that it was.
func TestAfterARestartItIsSaid(t *testing.T) {
	story(t, nil, func(w *world, l *life) {
		w.silent = true
		l.tether(api.TetherOptions{})
		time.Sleep(time.Second)
		l.stop()
		next := w.begin(nil, 0, false)
		w.set(func() {
			peer := w.peer()
			w.yes(peer)
			w.check(w.objects.Status().Update(context.Background(), peer))
		})
		time.Sleep(time.Minute)
		next.settled(api.Tethered)
		if told := w.told(api.EventTetherMade); len(told) != 1 || !strings.HasSuffix(told[0], "(the switch was broken off, and was finished after the restart)") {
			t.Errorf("told: %q", told)
		}
		next.stop()
		w.begin(nil, 0, false).stop() // at rest nothing is said
		if told := w.told(api.EventTetherMade); len(told) != 1 {
			t.Errorf("told: %q", told)
		}
	})
}

// What a journal that is gone left behind is cleared away.
func TestAnAutonomousLaptopTidiesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		peer := w.peer()
		peer.Spec.Request = &v1alpha1.ResourceRequest{Tether: true, Attempt: 1}
		w.check(w.objects.Update(context.Background(), peer))
		peer.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherLaptop, Step: "tethered"}
		w.check(w.objects.Status().Update(context.Background(), peer))
		w.decides, w.binds = false, true
		l := w.begin(nil, 0, false)
		defer l.stop()
		time.Sleep(time.Minute)
		l.settled(api.Autonomous)
	})
}
