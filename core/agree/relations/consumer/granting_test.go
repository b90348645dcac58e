package consumer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// between is alice, who has a contract with bob, and bob behind his peer API.
type between struct {
	alice *consumerSide
	bob   *bob
	p     provided
}

func newBetween(t *testing.T, asked corev1.ResourceList) *between {
	t.Helper()
	d := newBob(t)
	w := &between{bob: d, p: provided{Provider: d.Provider}}
	w.alice = newAsker(t, d.me.ID(), serveHandler(t, d.me, w.p))
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
	if err := w.bob.Accept(t.Context(), &open[0], nil, ""); err != nil {
		t.Fatal(err)
	}
	w.bob.answered(t, open[0].Name)
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
	if err := w.bob.Withdraw(t.Context(), peering.Caller{ID: identity.ID{7}}, id, false); err != nil || len(w.bob.requests(t)) != 1 {
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
	if err := w.bob.Withdraw(t.Context(), peering.Caller{ID: w.alice.me.ID()}, id, false); err != nil {
		t.Errorf("what is gone: %v", err)
	}
	// A first question too is taken back at bob when it is no longer wanted at alice.
	d := newBob(t)
	carol := newAsker(t, d.me.ID(), serveHandler(t, d.me, provided{Provider: d.Provider}))
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
	d := newBob(t)
	alice := newAsker(t, d.me.ID(), serveHandler(t, d.me, provided{Provider: d.Provider}))
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
