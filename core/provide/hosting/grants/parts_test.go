package grants

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/hostingtest"
)

// TestWhoIsToldOfWhom: of those to which its guests may go on, and no others; whether they are there is what their nodes show.
func TestWhoIsToldOfWhom(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, labels map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		n.Status.Allocatable = list("cpu", "4")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "R", Message: "no sign of life"}}
		return n
	}
	arm := map[string]string{v1alpha1.LabelPeer: "carol", corev1.LabelArchStable: "arm64"}
	by := func(peer string) *v1alpha1.Contract {
		return &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{ID: "by" + peer, Peer: peer, Resources: list("cpu", "2")}}
	}
	for what, c := range map[string]struct {
		carol  *corev1.Node // hers, here
		on     []*v1alpha1.Contract
		onward []OnwardTo
		why    string // the contract is not in force
		want   string
	}{
		"she is there":        {node("kith-carol", corev1.ConditionTrue, arm), []*v1alpha1.Contract{by("carol")}, []OnwardTo{{ID: "C", Peer: "carol"}}, "", "B 1, C 1 arm64"},
		"she is not":          {node("kith-carol", corev1.ConditionFalse, arm), []*v1alpha1.Contract{by("carol")}, []OnwardTo{{ID: "C", Peer: "carol"}}, "", "B 1, C 1 arm64 (no sign of life)"},
		"she has no node":     {node("kith-dave", corev1.ConditionTrue, nil), []*v1alpha1.Contract{by("carol")}, []OnwardTo{{ID: "C", Peer: "carol"}}, "", "B 1, C 1 (carol is no node here)"},
		"she is withdrawn":    {node("kith-carol", corev1.ConditionTrue, arm), []*v1alpha1.Contract{by("carol")}, []OnwardTo{{ID: "C", Peer: "carol", Withdrawn: true}}, "", ""},
		"no addresses yet":    {node("kith-carol", corev1.ConditionTrue, arm), []*v1alpha1.Contract{by("carol"), by("dave")}, []OnwardTo{{ID: "C", Peer: "carol"}}, "", "B 1, C 1 arm64"},
		"nothing is in force": {node("kith-carol", corev1.ConditionTrue, arm), []*v1alpha1.Contract{by("carol")}, []OnwardTo{{ID: "C", Peer: "carol"}}, "it is ending", ""},
	} {
		here := node("bob", corev1.ConditionTrue, map[string]string{v1alpha1.LabelFenced: "true"})
		contracts := NewContracts(hostingtest.Client(t, here, c.carol), nil, nil)
		terms := &Terms{Contract: "c", Provider: "B", Consumer: Consumer{ID: "A"}, Limit: list("cpu", "2"), Onward: c.onward, Why: c.why}
		ctr := contractWith("alice", "c")
		ctr.Spec.Resources = list("cpu", "2")
		if err := contracts.divide(t.Context(), []divided{{terms, ctr, c.on}}); err != nil {
			t.Fatal(err)
		}
		contracts.terms["c"] = terms
		var words []string
		for _, p := range contracts.PartsOf("A") {
			word := p.ID + " " + p.Limit.Cpu().String()
			if p.Arch != "" {
				word += " " + p.Arch
			}
			if p.Why != "" {
				word += " (" + p.Why + ")"
			}
			words = append(words, word)
		}
		if got := strings.Join(words, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		end := metav1.NewTime(time.Now().Add(-time.Second))
		if terms.NotAfter = &end; len(contracts.PartsOf("A")) > 0 {
			t.Errorf("%s: it is told of when the contract has run out", what)
		}
	}
}
