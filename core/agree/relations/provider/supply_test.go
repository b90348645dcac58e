package provider

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// start has bob start a pod of his own, or a guest's, on his node.
func (d *world) start(t *testing.T, name, cpu, consumer string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "bob"}}
	if consumer != "" {
		pod.Labels = map[string]string{v1alpha1.LabelConsumer: consumer}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("cpu", cpu)}}}
	if err := d.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// What bob's own pods request is promised to nobody: not when it is asked for, nor when he says yes. What he said yes to stays,
// and what was signed.
func TestOwnPodsAreNotPromised(t *testing.T) {
	for name, c := range map[string]struct {
		share  int
		start  func(t *testing.T, d *world)
		grants string
	}{
		"he runs nothing":           {100, func(*testing.T, *world) {}, "cpu 8, memory 16Gi, pods 110"},
		"a small pod":               {100, func(t *testing.T, d *world) { d.start(t, "a", "100m", "") }, "cpu 7500m, memory 16Gi, pods 100"},
		"another, and it is as was": {100, func(t *testing.T, d *world) { d.start(t, "a", "100m", ""); d.start(t, "b", "200m", "") }, "cpu 7500m, memory 16Gi, pods 100"},
		"what he keeps is enough":   {50, func(t *testing.T, d *world) { d.start(t, "a", "4", "") }, "cpu 4, memory 8Gi, pods 55"},
		"what he keeps is not":      {50, func(t *testing.T, d *world) { d.start(t, "a", "6", "") }, "cpu 2, memory 8Gi, pods 55"},
		"a guest":                   {100, func(t *testing.T, d *world) { d.start(t, "a", "6", "carol") }, "cpu 8, memory 16Gi, pods 110"},
		"he uses all":               {50, func(t *testing.T, d *world) { d.start(t, "a", "8", "") }, "nothing: no cpu is free: of 8 here, 0 is promised to other peers and the owner's own pods request 8"},
	} {
		d, alice := newWorld(t, sharing.Default(c.share)), stranger(1, "192.0.2.11")
		c.start(t, d)
		_, err := d.ask(t, alice, "alice")
		if why, nothing := strings.CutPrefix(c.grants, "nothing: "); nothing {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: asked: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := d.requests(t)[0]
		if grant, err := d.Grant(t.Context(), &r); err != nil || grant.Summary != c.grants {
			t.Errorf("%s: would get %s, want %s (%v)", name, grant.Summary, c.grants, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour) // a bubble's clock begins with the year 2000, and contracts begin a little earlier
		d, alice := newWorld(t), load(t)
		amounts := map[string]string{"cpu": "4", "memory": "8Gi", "pods": "55"}
		d.saysYes(t, alice, amounts)
		d.start(t, "a", "7", "")
		first := d.document(alice, amounts)
		if _, _, err := d.signs(t, alice, first); err != nil {
			t.Errorf("what he said yes to is not signed: %v", err)
		}
		time.Sleep(30 * time.Minute)
		again := d.document(alice, amounts)
		again.ID, again.Revision = first.ID, 2
		if _, _, err := d.signs(t, alice, again); err != nil {
			t.Errorf("what was signed is not renewed: %v", err)
		}
		id, _, err := d.Ask(t.Context(), peering.Caller{ID: alice.ID()}, peering.Question{Name: "alice", Contract: first.ID, Attempt: 2,
			Resources: map[string]string{"cpu": "5", "memory": "8Gi", "pods": "40"}}, "", false)
		if err != nil {
			t.Fatal(err)
		}
		var r v1alpha1.PeeringRequest
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: id}, &r); err != nil {
			t.Fatal(err)
		}
		if grant, err := d.Grant(t.Context(), &r); err != nil || grant.Summary != "cpu 4 (asked 5), memory 8Gi, pods 55 → 40" {
			t.Errorf("%+v, %v", grant, err)
		}
	})
}

// Two policies are two shares of one machine: what is promised under the one is not there under the other.
func TestTwoPoliciesDoNotPromiseTheSameCore(t *testing.T) {
	alice, carol := load(t), load(t)
	more := sharing.Default(100)
	more.Name, more.Spec.Peers, more.Spec.Priority = "carol", []string{carol.ID().String()}, 10
	d := newWorld(t, sharing.Default(75), more)
	amounts := map[string]string{"cpu": "6", "memory": "1Gi", "pods": "5"}
	d.saysYes(t, carol, amounts)
	d.saysYes(t, alice, amounts)
	if _, _, err := d.signs(t, carol, d.document(carol, amounts)); err != nil {
		t.Fatal(err)
	}
	_, _, err := d.signs(t, alice, d.document(alice, maps.Clone(amounts)))
	if !errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) || !strings.Contains(fmt.Sprint(err), "the contract grants 6 cpu, the offer is 2") {
		t.Error(err)
	}
}
