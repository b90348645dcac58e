package relations

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/peering"
	"kith.dev/core/sharing"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// share has bob share other amounts from now on.
func (d *desk) share(t *testing.T, change func(*v1alpha1.SharingPolicySpec)) {
	t.Helper()
	var policy v1alpha1.SharingPolicy
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: sharing.DefaultName}, &policy); err != nil {
		t.Fatal(err)
	}
	change(&policy.Spec)
	if err := d.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
}

// offered is what the caller hears of its accepted request.
func (d *desk) offered(t *testing.T, who peering.Caller, id string) map[string]string {
	t.Helper()
	outcome, err := d.Outcome(t.Context(), who, id)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Offer == nil {
		return map[string]string{"declined": outcome.Reason}
	}
	return outcome.Offer.Resources
}

func everything(s *v1alpha1.SharingPolicySpec) {
	for name := range s.Amounts {
		s.Amounts[name] = "100%"
	}
	s.Amounts["example.com/fpga"] = "1"
}

// Whatever became free between what the owner read and his yes, or after it, is not granted by it; what is gone by then is not
// granted either.
func TestAYesGivesNoMoreThanWasShown(t *testing.T) {
	half := list("cpu", "4", "memory", "8Gi", "pods", "55")
	less := func(s *v1alpha1.SharingPolicySpec) { s.Amounts["cpu"] = "1" }
	for name, c := range map[string]struct {
		shown         corev1.ResourceList
		before, after func(*v1alpha1.SharingPolicySpec)
		want          string
	}{
		"nothing moves":                {half, nil, nil, "cpu 4, memory 8Gi, pods 55"},
		"more is free by then":         {half, everything, nil, "cpu 4, memory 8Gi, pods 55"},
		"more is free afterwards":      {half, nil, everything, "cpu 4, memory 8Gi, pods 55"},
		"less is free by then":         {half, less, nil, "cpu 1, memory 8Gi, pods 55"},
		"less is free afterwards":      {half, nil, less, "cpu 1, memory 8Gi, pods 55"},
		"less, and more again":         {half, less, everything, "cpu 1, memory 8Gi, pods 55"},
		"shown nothing, as a script":   {nil, everything, nil, "cpu 8, memory 16Gi, pods 110, example.com/fpga 1"},
		"a script, and more is free":   {nil, nil, everything, "cpu 4, memory 8Gi, pods 55"},
		"the owner says less himself":  {list("cpu", "1", "memory", "1Gi", "pods", "5"), nil, nil, "cpu 1, memory 1Gi, pods 5"},
		"what was not shown is absent": {list("cpu", "4", "memory", "8Gi"), nil, nil, "declined it was accepted when no pods could be granted"},
	} {
		t.Run(name, func(t *testing.T) {
			d, alice := newDesk(t), stranger(1, "192.0.2.11")
			id, err := d.ask(t, alice, "alice")
			if err != nil {
				t.Fatal(err)
			}
			r := d.requests(t)[0]
			if grant, err := d.Grant(t.Context(), &r); err != nil || !sharing.Same(grant.Resources, half) || grant.Summary != "cpu 4, memory 8Gi, pods 55" {
				t.Fatalf("would get %+v, %v", grant, err)
			}
			if c.before != nil {
				d.share(t, c.before)
			}
			if err := d.Accept(t.Context(), &r, c.shown, "owner"); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				d.share(t, c.after)
			}
			if got := api.Resources(d.offered(t, alice, id)).String(); got != c.want {
				t.Errorf("offered %s, want %s", got, c.want)
			}
		})
	}
}

// What kubectl shows of a request follows the policy while the request waits, and an answer ends that: it is to what was shown.
func TestARequestSaysWhatAYesGivesWhileItWaits(t *testing.T) {
	d, alice := newDesk(t), stranger(1, "192.0.2.11")
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	look := func() v1alpha1.PeeringRequest {
		t.Helper()
		if _, err := d.Provider.requests()(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}); err != nil {
			t.Fatal(err)
		}
		return d.requests(t)[0]
	}
	says := func(want string) v1alpha1.PeeringRequest {
		t.Helper()
		r := look()
		if r.Status.Grant == nil || r.Status.Grant.Summary != want {
			t.Errorf("says %+v, want %s", r.Status.Grant, want)
		}
		return r
	}
	r := says("cpu 4, memory 8Gi, pods 55")
	before := d.writes.Load()
	if look(); d.writes.Load() != before {
		t.Error("it is written again though nothing changed")
	}
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = true })
	says("nothing: sharing is paused (SharingPolicy default)")
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused, s.Amounts["cpu"] = false, "3" })
	stale := says("cpu 3, memory 8Gi, pods 55")
	accepted := stale.DeepCopy()
	if err := answer(t.Context(), d.client, accepted, v1alpha1.AnswerAccepted, "kubectl", ""); err != nil {
		t.Fatal(err)
	}
	d.share(t, everything)
	if err := d.keepGrant(t.Context(), &stale); !apierrors.IsConflict(err) { // a cache that has not seen the answer
		t.Errorf("what was accepted was changed afterwards: %v", err)
	}
	says("cpu 3, memory 8Gi, pods 55")
	if got := d.offered(t, alice, id)["cpu"]; got != "3" {
		t.Errorf("offered cpu %s", got)
	}
	// An answer to what was read a moment ago, while what a yes gives is written: it is tried again.
	if err := d.client.Delete(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ask(t, alice, "alice"); err != nil {
		t.Fatal(err)
	}
	r = d.requests(t)[0]
	id = r.Name
	look()
	if err := d.Accept(t.Context(), &r, list("cpu", "2", "memory", "1Gi", "pods", "5"), "owner"); err != nil {
		t.Error(err)
	}
	if err := d.Accept(t.Context(), &r, nil, "owner"); err == nil {
		t.Error("accepted twice")
	}
	if got := d.offered(t, alice, id)["cpu"]; got != "2" {
		t.Errorf("offered cpu %s", got)
	}
}

// Nobody says yes to nothing: the request waits until there is something.
func TestWhatGivesNothingCannotBeAccepted(t *testing.T) {
	d, alice := newDesk(t), stranger(1, "192.0.2.11")
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = true })
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	r := d.requests(t)[0]
	var nothing *sharing.Refusal
	if err := d.Accept(t.Context(), &r, nil, "owner"); !errors.As(err, &nothing) || !Pending(&d.requests(t)[0]) {
		t.Errorf("%v", err)
	}
	d.share(t, func(s *v1alpha1.SharingPolicySpec) { s.Paused = false })
	if err := d.Accept(t.Context(), &r, nil, "owner"); err != nil || d.offered(t, alice, id)["cpu"] != "4" {
		t.Error(err)
	}
}

// A policy that answers by itself declines what it has nothing for, and says why.
func TestAPolicyDeclinesWhatItHasNothingFor(t *testing.T) {
	policy := sharing.Default(50)
	policy.Spec.AutoAccept = true
	delete(policy.Spec.Amounts, "pods")
	d, alice := newDesk(t, policy), stranger(1, "192.0.2.11")
	id, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := d.Outcome(t.Context(), alice, id); err != nil || outcome.State != peering.OutcomeDeclined || !strings.Contains(outcome.Reason, "offers no pods") {
		t.Errorf("%+v, %v", outcome, err)
	}
}

// between is alice, who has a contract with bob, and bob behind his peer API.
type between struct {
	alice *consumerSide
	bob   *desk
	p     provided
}

func newBetween(t *testing.T, asked corev1.ResourceList) *between {
	t.Helper()
	d := newDesk(t)
	w := &between{bob: d, p: provided{d.Provider}}
	w.alice = newAsker(t, d.me.ID(), serveDesk(t, d.me, w.p))
	peer := w.alice.peer(t, "bob")
	meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "OwnerConfirmed"})
	if err := w.alice.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	w.change(t, 1, asked)
	w.accepted(t)
	return w
}

// change is what `kith peer bob --cpu …` writes, and the question that follows.
func (w *between) change(t *testing.T, attempt int64, resources corev1.ResourceList) {
	t.Helper()
	peer := w.alice.peer(t, "bob")
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt, Resources: resources}
	if err := w.alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	if err := w.alice.r.ask(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
}

// accepted has bob accept, and waits for the next revision.
func (w *between) accepted(t *testing.T) v1alpha1.Contract {
	t.Helper()
	open := w.bob.requests(t)
	if len(open) != 1 {
		t.Fatalf("%d requests at bob", len(open))
	}
	if err := w.bob.Accept(t.Context(), &open[0], nil, "owner"); err != nil {
		t.Fatal(err)
	}
	w.bob.answers.Ring()
	out := w.alice.until(t, "signed", func(out v1alpha1.DirectionStatus) bool { return out.RequestID == "" && out.Contract != "" })
	if out.Why != "" && out.State == v1alpha1.StateDeclined {
		t.Fatal(out.Why)
	}
	return w.alice.contracts(t)[0]
}

func (w *between) inFull(t *testing.T) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(w.alice.peer(t, "bob").Status.Conditions, v1alpha1.ConditionGrantedInFull)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// A change of one amount names them all, keeps the others, says what it changes, and where less is granted than was asked.
func TestAChangeKeepsWhatItDoesNotName(t *testing.T) {
	w := newBetween(t, list("cpu", "1", "memory", "2Gi", "pods", "40"))
	w.change(t, 2, list("cpu", "900m"))
	open := w.bob.requests(t)
	if len(open) != 1 || !sharing.Same(open[0].Spec.Resources, list("cpu", "900m", "memory", "2Gi", "pods", "40")) {
		t.Fatalf("bob is asked %+v", open)
	}
	if grant, err := w.bob.Grant(t.Context(), &open[0]); err != nil || grant.Summary != "cpu 1 → 900m, memory 2Gi, pods 40" {
		t.Errorf("%+v, %v", grant, err)
	}
	ctr := w.accepted(t)
	if ctr.Spec.Revision != 2 || !sharing.Same(ctr.Spec.Resources, list("cpu", "900m", "memory", "2Gi", "pods", "40")) {
		t.Errorf("revision %d grants %v", ctr.Spec.Revision, ctr.Spec.Resources)
	}
	if c := w.inFull(t); c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}

	w.change(t, 3, list("cpu", "100000"))
	open = w.bob.requests(t)
	if grant, err := w.bob.Grant(t.Context(), &open[0]); err != nil || grant.Summary != "cpu 900m → 4 (asked 100000), memory 2Gi, pods 40" {
		t.Errorf("%+v, %v", grant, err)
	}
	if ctr = w.accepted(t); ctr.Spec.Revision != 3 || !sharing.Same(ctr.Spec.Resources, list("cpu", "4", "memory", "2Gi", "pods", "40")) {
		t.Errorf("revision %d grants %v", ctr.Spec.Revision, ctr.Spec.Resources)
	}
	if c := w.inFull(t); c.Status != metav1.ConditionFalse || c.Message != "asked cpu 100000, granted 4" {
		t.Errorf("%+v", c)
	}
}

func TestAskingForTheSameIsNoQuestion(t *testing.T) {
	w := newBetween(t, list("cpu", "100000", "memory", "2Gi", "pods", "40"))
	writes := w.bob.writes.Load()
	for i, same := range []corev1.ResourceList{nil, list("memory", "2Gi"), list("cpu", "4"), list("cpu", "4000m", "memory", "2048Mi", "pods", "40")} {
		w.change(t, int64(2+i), same)
		if out := w.alice.peer(t, "bob").Status.Outgoing; out.Attempt != int64(2+i) || out.RequestID != "" || out.Why == "" == (out.State == v1alpha1.StateDeclined) {
			t.Errorf("%v: %+v", same, out)
		}
	}
	// That no more is free than is granted only bob knows.
	w.change(t, 9, list("cpu", "100000"))
	if out := w.alice.peer(t, "bob").Status.Outgoing; out.RequestID != "" || !strings.Contains(out.Why, "nothing would change: it grants cpu 4, memory 2Gi, pods 40 already") {
		t.Errorf("%+v", out)
	}
	if n := len(w.bob.requests(t)); n != 0 || w.bob.writes.Load() != writes {
		t.Errorf("%d requests at bob", n)
	}
	// Who lost the contract asks anew, and is heard.
	ctr := w.alice.contracts(t)[0]
	ctr.Finalizers = nil
	if err := w.alice.Update(t.Context(), &ctr); err != nil {
		t.Fatal(err)
	}
	if err := w.alice.Delete(t.Context(), &ctr); err != nil {
		t.Fatal(err)
	}
	w.change(t, 10, list("cpu", "4", "memory", "2Gi", "pods", "40"))
	if open := w.bob.requests(t); len(open) != 1 {
		t.Errorf("%d requests at bob", len(open))
	}
}

func TestAPendingChangeIsWithdrawnAlone(t *testing.T) {
	w := newBetween(t, list("cpu", "1", "memory", "2Gi", "pods", "40"))
	w.change(t, 2, list("cpu", "2"))
	if n := len(w.bob.requests(t)); n != 1 {
		t.Fatalf("%d requests at bob", n)
	}
	peer := w.alice.peer(t, "bob")
	id := peer.Status.Outgoing.RequestID
	// Another cannot: the request is not there for it.
	if err := w.bob.Withdraw(t.Context(), stranger(7, "192.0.2.7"), id); err != nil || len(w.bob.requests(t)) != 1 {
		t.Errorf("a stranger withdrew it: %v", err)
	}
	peer.Spec.Request.Confirm = &v1alpha1.Confirm{Attempt: 2, Withdraw: true}
	if err := w.alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is once
		if err := w.alice.r.pend(t.Context(), w.alice.peer(t, "bob")); err != nil {
			t.Fatal(err)
		}
	}
	out := w.alice.until(t, "taken back", func(out v1alpha1.DirectionStatus) bool { return out.RequestID == "" })
	if !strings.Contains(out.Why, "taken back: it was withdrawn here") || len(w.bob.requests(t)) != 0 || len(w.alice.contracts(t)) != 1 || w.alice.contracts(t)[0].Spec.Revision != 1 {
		t.Errorf("%+v, %d requests at bob", out, len(w.bob.requests(t)))
	}
	w.alice.hears(t, api.EventSecurity, 0)
	w.alice.mu.Lock()
	for _, e := range w.alice.events {
		if e.Type == api.EventRequestAnswered && e.State != api.StateNone { // desktops tell what another decided
			t.Errorf("%+v", e)
		}
	}
	w.alice.mu.Unlock()
	if err := w.bob.Withdraw(t.Context(), peering.Caller{ID: w.alice.me.ID()}, id); err != nil {
		t.Errorf("what is gone: %v", err)
	}
	// A first question too is taken back at bob when it is no longer wanted at alice.
	d := newDesk(t)
	carol := newAsker(t, d.me.ID(), serveDesk(t, d.me, provided{d.Provider}))
	carol.ask(t, 1, nil)
	if n := len(d.requests(t)); n != 1 {
		t.Fatalf("%d requests", n)
	}
	peer = carol.peer(t, "bob")
	peer.Spec.Request = nil
	if err := carol.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	carol.look(t)
	if n := len(d.requests(t)); n != 0 || carol.peer(t, "bob").Status.Outgoing.State != v1alpha1.StateNone {
		t.Errorf("%d requests, %+v", n, carol.peer(t, "bob").Status.Outgoing)
	}
}

// What nobody can mean is not asked, whoever wrote it.
func TestAmountsThatNobodyMeansAreNotAsked(t *testing.T) {
	d := newDesk(t)
	alice := newAsker(t, d.me.ID(), serveDesk(t, d.me, provided{d.Provider}))
	for attempt, c := range []struct {
		asked corev1.ResourceList
		why   string
	}{
		{list("memory", "4"), "spec.request.resources.memory"}, {list("cpu", "0"), "spec.request.resources.cpu"},
		{list("cpu", "-1"), "spec.request.resources.cpu"}, {list("pods", "1500m"), "spec.request.resources.pods"},
	} {
		alice.ask(t, int64(attempt+1), c.asked)
		if out := alice.peer(t, "bob").Status.Outgoing; out.State != v1alpha1.StateDeclined || !strings.Contains(out.Why, "was not asked: "+c.why) || out.Attempt != int64(attempt+1) {
			t.Errorf("%v: %+v", c.asked, out)
		}
	}
	if n := len(d.requests(t)); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The caches of Peers and of Contracts are not in step: of what was signed a moment ago the Contract may be there and its Peer
// not, and that is no reason to end it.
func TestAContractIsNotEndedForAPeerThatTheCacheDoesNotHaveYet(t *testing.T) {
	w := newBetween(t, nil)
	ctr := kept(t, w.bob.client)
	whole := w.bob.client
	w.bob.Provider.client = interceptor.NewClient(whole.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Peer); ok {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("peers").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	look := func() {
		t.Helper()
		if _, err := w.bob.contracts(nil)(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ctr)}); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if now := kept(t, whole); now.DeletionTimestamp != nil || now.Status.State == v1alpha1.StateEnding {
		t.Errorf("it was ended: %+v", now.Status)
	}
	if err := whole.Delete(t.Context(), &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: ctr.Spec.Peer}}); err != nil { // forgotten
		t.Fatal(err)
	}
	look()
	if now := kept(t, whole); now.DeletionTimestamp == nil || now.Status.Why != "the peer was forgotten" {
		t.Errorf("it stands on: %+v", now.Status)
	}
}
