package company

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

func withQuota(pods string) func(*v1alpha1.TetherPolicySpec) {
	return func(s *v1alpha1.TetherPolicySpec) {
		s.Namespaces[len(s.Namespaces)-1].Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	}
}

func TestUsersHaveWhatThePolicySays(t *testing.T) {
	closed := func(s *v1alpha1.TetherPolicySpec) { s.Namespaces[len(s.Namespaces)-1].Offload = new(bool) }
	w := newWorld(t, policy("staff", in("team", ""), withQuota("10"), in("own-{laptop}", "edit"), withQuota("3"), in("read", "view"), closed),
		laptop("alice", alice, tethered), laptop("bob", bob, tethered),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "read", Labels: map[string]string{"kept": "as-it-is"}}})
	w.reconcile("alice")
	w.reconcile("bob")
	a, b := alice.Compact()[:3], bob.Compact()[:3]
	want := []string{"own-alice edit " + a, "own-bob edit " + b, "read view " + a, "read view " + b, "team edit " + a, "team edit " + b}
	slices.Sort(want)
	if got := w.bindings(); !slices.Equal(got, want) {
		t.Errorf("bindings %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(w.quotas()), "[own-alice kith-tether-staff 3 own-bob kith-tether-staff 3 team kith-tether-staff 10]"; got != want {
		t.Errorf("quotas %s, want %s", got, want)
	}
	made := map[string]string{"pod-security.kubernetes.io/enforce": "baseline", v1alpha1.LabelOffload: "true"}
	ns := w.namespaces()
	if !maps.Equal(ns["team"], made) || !maps.Equal(ns["read"], map[string]string{"kept": "as-it-is"}) || ns["own-alice"][v1alpha1.LabelLaptop] != alice.Compact() {
		t.Errorf("%v", ns)
	}

	staff := policy("staff")
	w.change(staff, func() {
		staff.Spec.Namespaces = []v1alpha1.LaptopNamespace{{Name: "team", ClusterRole: "view", Quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("20")}}}
	})
	w.reconcile("alice")
	w.reconcile("bob")
	if got := w.bindings(); len(got) != 2 || !strings.HasPrefix(got[0], "team view ") {
		t.Errorf("after a change: %v", got)
	}
	if got := fmt.Sprint(w.quotas()); got != "[team kith-tether-staff 20]" {
		t.Errorf("after a change: %v", got)
	}

	// One goes, and the other keeps what both had.
	p := w.peer("alice")
	w.change(p, func() { p.Spec.Tethered = nil })
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 1 || len(w.quotas()) != 1 {
		t.Errorf("one is gone: %v %v", got, w.quotas())
	}
	if err := w.client.Delete(t.Context(), w.peer("bob")); err != nil {
		t.Fatal(err)
	}
	w.reconcile("bob")
	if got := append(w.bindings(), w.quotas()...); len(got) != 0 {
		t.Errorf("both are gone: %v", got)
	}
	if w.namespaces()["team"] == nil {
		t.Error("a namespace went with the laptop")
	}
}

// Names are what laptops give themselves: one that calls itself after somebody's namespace gets nothing there.
func TestALaptopIsNotGivenANamespaceByItsName(t *testing.T) {
	for name, c := range map[string]struct{ pattern, calls string }{
		"another team's":     {"team-{laptop}", "payments"},
		"the system's":       {"{laptop}", "kube-system"},
		"one of tomorrow":    {"{laptop}", "cert-manager"},
		"no name":            {"{laptop}-", "alice"},
		"too long":           {strings.Repeat("a", 40) + "{laptop}", strings.Repeat("b", 40)},
		"another laptop's":   {"own-{laptop}", "bob"},
		"an ID in its place": {"own-{laptop}", "carol"},
	} {
		w := newWorld(t, policy("staff", in(c.pattern, "edit")), laptop(c.calls, alice, tethered),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-payments"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own-bob", Labels: map[string]string{v1alpha1.LabelLaptop: bob.Compact()}}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own-carol", Labels: map[string]string{v1alpha1.LabelLaptop: ""}}})
		w.reconcile(c.calls)
		if got := w.bindings(); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		if why := w.peer(c.calls).Status.Tether.Why; why == "" {
			t.Errorf("%s: nobody is told", name)
		}
		if g, err := w.Grant(t.Context(), w.peer(c.calls)); err != nil || len(g.Namespaces) != 0 || g.Validate() != nil {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

func TestWhatKithDidNotMakeIsNotTouched(t *testing.T) {
	theirs := binding(laptop("alice", alice), place{namespace: "team", role: "view"})
	theirs.Labels = nil
	bound := quota(place{namespace: "team", policy: "staff", quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}})
	bound.Labels = map[string]string{v1alpha1.LabelManagedBy: "helm"}
	alone := theirs.DeepCopy()
	alone.Namespace = "other"
	w := newWorld(t, policy("staff", in("team", "edit"), in("other", "edit"), withQuota("5"), in("none", "no-such-role")), laptop("alice", alice, tethered), theirs, bound, alone)
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	why := w.peer("alice").Status.Tether.Why
	for _, said := range []string{"which is not Kith's", "there is no ClusterRole no-such-role"} {
		if !strings.Contains(why, said) {
			t.Errorf("%q does not say %q", why, said)
		}
	}
	p := w.peer("alice")
	w.change(p, func() { p.Spec.Tethered = nil })
	w.reconcile("alice")
	var all rbacv1.RoleBindingList
	if err := w.client.List(t.Context(), &all); err != nil || len(all.Items) != 2 || all.Items[0].RoleRef.Name != "view" {
		t.Errorf("%v %v", all.Items, err)
	}
	var quotas corev1.ResourceQuotaList
	if err := w.client.List(t.Context(), &quotas); err != nil || len(quotas.Items) != 1 {
		t.Errorf("%v %v", quotas.Items, err)
	}
}

// What an earlier run of the daemon left is found.
func TestRightsOfATetherThatEndedMeanwhileGo(t *testing.T) {
	b := binding(laptop("alice", alice), place{namespace: "team", role: "edit"})
	w := newWorld(t, policy("staff", in("team", "edit")), laptop("alice", alice), b)
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestWithoutAPolicyUsersMayDoNothing(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "edit")), laptop("alice", alice, tethered, outgoing(v1alpha1.StateConnected, 1)))
	w.reconcile("alice")
	if err := w.client.Delete(t.Context(), policy("staff")); err != nil {
		t.Fatal(err)
	}
	w.reconcile("alice")
	p := w.peer("alice")
	if len(w.bindings()) != 0 || p.Spec.Tethered == nil || p.Status.Tether.Step != v1alpha1.TetherStepTethered || !strings.Contains(p.Status.Tether.Why, noPolicy) {
		t.Errorf("%v %+v", w.bindings(), p.Status.Tether)
	}
}

func TestANamespaceThatIsDeletedIsMadeAgain(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "edit")), laptop("alice", alice, tethered))
	w.reconcile("alice")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if err := w.client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	for _, req := range w.unsettled(t.Context(), ns) {
		w.reconcile(req.Name)
	}
	if w.namespaces()["team"] == nil {
		t.Error("it is gone")
	}
}

// A role that comes later is bound then.
func TestRightsThatCouldNotBeGivenAreTriedAgain(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "late")), laptop("alice", alice, tethered))
	if again := w.reconcile("alice"); again != time.Minute || len(w.bindings()) != 0 {
		t.Fatalf("again in %s: %v", again, w.bindings())
	}
	if err := w.client.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); err != nil {
		t.Fatal(err)
	}
	if again := w.reconcile("alice"); again != 0 || len(w.bindings()) != 1 || w.peer("alice").Status.Tether.Why != "" {
		t.Errorf("again in %s: %v %+v", again, w.bindings(), w.peer("alice").Status.Tether)
	}
}

func TestTheStepsOfATether(t *testing.T) {
	w := newWorld(t, policy("staff"), accepted(alice, "owner"))
	if _, err := w.BeginTether(t.Context(), caller(alice)); err != nil {
		t.Fatal(err)
	}
	contract := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "alice-out"}, Spec: v1alpha1.ContractSpec{Peer: "alice", Role: v1alpha1.RoleConsumer}}
	is := func(when, step string, events ...string) {
		t.Helper()
		w.reconcile("alice")
		got := ""
		if s := w.peer("alice").Status.Tether; s != nil {
			if got = s.Step; s.Role != v1alpha1.TetherCompany || s.User != UserPrefix+alice.Compact() || s.Since == nil {
				t.Errorf("%s: %+v", when, s)
			}
		}
		if went := w.went(); got != step || !slices.Equal(went, events) {
			t.Errorf("%s: at %q with %v, want %q with %v", when, got, went, step, events)
		}
	}
	set := func(state v1alpha1.RelationState, why string) {
		p := w.peer("alice")
		w.change(p, func() {
			p.Status.Outgoing.State, p.Status.Outgoing.Attempt, p.Status.Outgoing.Why = state, p.Spec.Request.Attempt, why
		})
	}
	is("begun", "accepted")
	set(v1alpha1.StateRequested, "")
	is("asked", "joining")
	if err := w.client.Create(t.Context(), contract); err != nil {
		t.Fatal(err)
	}
	set(v1alpha1.StateConnected, "")
	is("there", "tethered", "LaptopTethered")
	set(v1alpha1.StateUnreachable, "no answer")
	is("cut", "lost")
	set(v1alpha1.StateConnected, "")
	is("back", "tethered")
	if err := w.client.Delete(t.Context(), contract.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	contract.ResourceVersion = ""
	set(v1alpha1.StateNone, "the contract ran out")
	is("without a contract", "lost")
	set(v1alpha1.StateRequested, "")
	is("asked again", "lost")
	if err := w.client.Create(t.Context(), contract); err != nil {
		t.Fatal(err)
	}
	set(v1alpha1.StateConnected, "")
	is("back again", "tethered")
	if err := w.EndTether(t.Context(), caller(alice)); err != nil {
		t.Fatal(err)
	}
	is("given back", "ending")
	if err := w.client.Delete(t.Context(), contract); err != nil {
		t.Fatal(err)
	}
	is("clean", "", "LaptopReturned")
	is("and later", "")
}

// Whoever takes one of the two away by which a tether is written down has taken it back.
func TestATetherEndsByEitherField(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Peer){
		"kubectl": func(p *v1alpha1.Peer) { p.Spec.Tethered = nil },
		"unpeer":  func(p *v1alpha1.Peer) { p.Spec.Request = nil },
		"the laptop says that it is over": func(p *v1alpha1.Peer) {
			p.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany, Step: v1alpha1.TetherStepRefused, Why: "alice refused"}
		},
	} {
		w := newWorld(t, policy("staff", in("team", "edit")), laptop("alice", alice, tethered, outgoing(v1alpha1.StateConnected, 1)))
		w.reconcile("alice")
		p := w.peer("alice")
		w.change(p, func() { change(p) })
		w.reconcile("alice")
		if p := w.peer("alice"); p.Spec.Tethered != nil || p.Spec.Request != nil || p.Status.Tether != nil || len(w.bindings()) != 0 {
			t.Errorf("%s: %+v %+v", name, p.Spec, p.Status.Tether)
		}
	}
}

// What its owner asks of a laptop while the tether ends is his own.
func TestARequestAfterTheEndStays(t *testing.T) {
	w := newWorld(t, laptop("alice", alice, step(v1alpha1.TetherStepEnding), func(p *v1alpha1.Peer) { p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 9} }))
	w.reconcile("alice")
	if p := w.peer("alice"); p.Spec.Request == nil || p.Status.Tether != nil {
		t.Errorf("%+v %+v", p.Spec, p.Status.Tether)
	}
}

func TestATetheredLaptopIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy("staff"), laptop("alice", alice, tethered, step(v1alpha1.TetherStepTethered), outgoing(v1alpha1.StateNone, 1)))
		start, attempts := time.Now(), []time.Duration{}
		for len(attempts) < 10 {
			before := w.peer("alice").Spec.Request.Attempt
			wait := w.reconcile("alice")
			p := w.peer("alice")
			if p.Spec.Request.Attempt == before {
				time.Sleep(wait)
				continue
			}
			if p.Spec.Request.Attempt != before+1 {
				t.Fatalf("from %d to %d", before, p.Spec.Request.Attempt)
			}
			attempts = append(attempts, time.Since(start))
			start = time.Now()
			w.change(p, func() {
				p.Status.Outgoing.State, p.Status.Outgoing.Attempt = v1alpha1.StateDeclined, p.Spec.Request.Attempt
			})
		}
		if got, want := fmt.Sprint(attempts), "[0s 1s 3s 10s 30s 1m0s 2m0s 5m0s 5m0s 5m0s]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		// Once it was there, the pauses begin anew.
		p := w.peer("alice")
		w.change(p, func() { p.Status.Outgoing.State = v1alpha1.StateConnected })
		w.reconcile("alice")
		w.change(p, func() { p.Status.Outgoing.State = v1alpha1.StateNone })
		before := p.Spec.Request.Attempt
		if w.reconcile("alice"); w.peer("alice").Spec.Request.Attempt != before+1 {
			t.Error("it waits as after many tries")
		}
	})
}

func TestWhenALaptopIsNotAsked(t *testing.T) {
	contract := func() client.Object {
		return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "alice-out"}, Spec: v1alpha1.ContractSpec{Peer: "alice", Role: v1alpha1.RoleConsumer}}
	}
	for name, c := range map[string]struct {
		peer    *v1alpha1.Peer
		objects []client.Object
	}{
		"a contract is in force":  {laptop("alice", alice, tethered, outgoing(v1alpha1.StateConnected, 1)), []client.Object{contract()}},
		"one ends":                {laptop("alice", alice, tethered, outgoing(v1alpha1.StateEnding, 1)), []client.Object{contract()}},
		"a question is under way": {laptop("alice", alice, tethered, outgoing(v1alpha1.StateRequested, 1)), nil},
		"a question is to be put": {laptop("alice", alice, tethered, outgoing(v1alpha1.StateNone, 0)), nil},
		"an ordinary peer":        {laptop("alice", alice, outgoing(v1alpha1.StateDeclined, 1), func(p *v1alpha1.Peer) { p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1} }), nil},
		"this side is the laptop": {laptop("alice", alice, outgoing(v1alpha1.StateNone, 1), func(p *v1alpha1.Peer) {
			p.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1, Tether: true}
			p.Status.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherLaptop, Step: "begin"}
		}), nil},
	} {
		w := newWorld(t, append(c.objects, c.peer, policy("staff"))...)
		before := c.peer.Spec.Request.Attempt
		w.reconcile("alice")
		p := w.peer("alice")
		if p.Spec.Request == nil || p.Spec.Request.Attempt != before {
			t.Errorf("%s: %+v", name, p.Spec.Request)
		}
		if c.peer.Spec.Tethered == nil && (p.Status.Tether == nil) != (c.peer.Status.Tether == nil) {
			t.Errorf("%s: %+v", name, p.Status.Tether)
		}
	}
}

// The cache may not hear of the end for long.
func TestRightsEndWithTheWordOfTheLaptop(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "edit"), withQuota("10")), laptop("alice", alice, tethered))
	w.reconcile("alice")
	if len(w.bindings()) != 1 || len(w.quotas()) != 1 {
		t.Fatal(w.bindings(), w.quotas())
	}
	if err := w.EndTether(t.Context(), caller(alice)); err != nil {
		t.Fatal(err)
	}
	if left := append(w.bindings(), w.quotas()...); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
