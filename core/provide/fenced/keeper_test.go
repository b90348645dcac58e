package fenced

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/hostingtest"
)

// The label follows what is found: put on, taken off, and put on again; that somebody set it counts nothing.
func TestTheLabelFollowsTheFence(t *testing.T) {
	a, b, forged := node("a", "", map[string]string{"mine": "stays"}), node("b", "", nil), node("c", "", map[string]string{v1alpha1.LabelFenced: "true"})
	ready := agent("b", corev1.ConditionTrue)
	peer := node("kith-carol", "", map[string]string{v1alpha1.LabelPeer: "carol", v1alpha1.LabelFenced: "true"})
	c := hostingtest.Client(t, &a, &b, &forged, &peer, &ready)
	own, told := Starting, []string(nil)
	k := New(Config{
		Client: c, Self: "a", Namespace: "kith-system", Log: slog.New(slog.DiscardHandler), Own: func(*corev1.Node) (Reason, string) { return own, "" },
		Changed: func(v Verdict) { told = append(told, v.Node+" "+string(v.Why)) },
	})
	look := func(when, want, says string) {
		t.Helper()
		told = nil
		if _, err := k.reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		var nodes corev1.NodeList
		if err := c.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		var fenced []string
		for _, n := range nodes.Items {
			if v1alpha1.Fenced(&n) {
				fenced = append(fenced, n.Name)
			}
			if n.Name == "a" && n.Labels["mine"] != "stays" {
				t.Errorf("%s: another label is gone: %v", when, n.Labels)
			}
		}
		if got := strings.Join(fenced, " "); got != want {
			t.Errorf("%s: guests may run on %q, want %q", when, got, want)
		}
		if got := strings.Join(told, ", "); got != says {
			t.Errorf("%s: it tells %q, want %q", when, got, says)
		}
	}
	look("at first", "b", "")
	own = Alive
	look("the fence is up", "a b", "")
	own = Starting
	look("kithd starts anew", "a b", "")
	own = Down
	look("it is flushed and cannot be put up", "b", "a Down")
	own = Alive
	look("it is up again", "a b", "a ")
	set := func(is corev1.ConditionStatus) {
		t.Helper()
		var pod corev1.Pod
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(&ready), &pod); err != nil {
			t.Fatal(err)
		}
		pod.Status.Conditions[0].Status = is
		if err := c.Status().Update(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
	}
	set(corev1.ConditionFalse)
	look("the agent died", "a", "b NotReady")
	set(corev1.ConditionTrue)
	look("it is back", "a b", "b ")

	// Another kithd takes over, on b: what fenced a is gone with the one before, whatever its agent said last.
	late := agent("a", corev1.ConditionTrue)
	if err := c.Create(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	next := New(Config{Client: c, Self: "b", Namespace: "kith-system", Log: k.cfg.Log, Own: k.cfg.Own})
	k = next
	look("the gateway moved", "b", "")
	k.since = time.Now().Add(-settles)
	look("a's agent was asked since", "a b", "")
}
