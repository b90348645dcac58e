package company

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// judged is the condition of a policy once it was looked at; nil without one.
func (w *world) judged(name string) *metav1.Condition {
	w.Helper()
	key := client.ObjectKey{Name: name}
	if _, err := w.judge(context.Background(), ctrl.Request{NamespacedName: key}); err != nil {
		w.Fatal(err)
	}
	var p v1alpha1.TetherPolicy
	if err := w.client.Get(context.Background(), key, &p); err != nil {
		w.Fatal(err)
	}
	return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolesAllowed)
}

// A policy that admission would refuse now, and that was there before.
func TestAPolicySaysWhichOfItsRolesIsNotGiven(t *testing.T) {
	staff := policy("staff", in("team", "everything"), withQuota("3"), in("read", "view"), in("other", "everything"))
	w := newWorld(t, staff, laptop("alice", alice, tethered))
	if c := w.judged("staff"); c != nil {
		t.Errorf("where all may be given: %+v", c)
	}
	w.cfg.Roles = []string{"edit", "view"}
	c := w.judged("staff")
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "RoleNotAllowed" || c.ObservedGeneration != 1 {
		t.Fatalf("%+v", c)
	}
	if strings.Count(c.Message, "everything") != 1 || !strings.Contains(c.Message, "may give edit, view") {
		t.Errorf("it says %q", c.Message)
	}

	w.change(staff, func() { staff.Spec.Namespaces[0].ClusterRole, staff.Spec.Namespaces[2].ClusterRole = "edit", "" })
	if c := w.judged("staff"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "AllRolesAllowed" || c.ObservedGeneration != 2 {
		t.Errorf("mended: %+v", c)
	}
	w.cfg.Roles = nil
	if c := w.judged("staff"); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "edit, view here") || !strings.Contains(c.Message, "no ClusterRole") {
		t.Errorf("where none may be given: %+v", c)
	}
	w.cfg.Roles = []string{anyRole}
	if c := w.judged("staff"); c != nil {
		t.Errorf("where all may be given again: %+v", c)
	}
}

// Nor is it tried: the laptop is told of what its users have, and the administrator why they do not have the rest.
func TestARoleOutsideTheListIsNotGiven(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "everything"), withQuota("3"), in("read", "view")), laptop("alice", alice, tethered))
	w.reconcile("alice") // given while all could be
	w.cfg.Roles = []string{"edit", "view"}
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 1 || !strings.HasPrefix(got[0], "read view ") || len(w.quotas()) != 0 {
		t.Errorf("%v %v", got, w.quotas())
	}
	if why := w.peer("alice").Status.Tether.Why; !strings.Contains(why, "may not give the ClusterRole everything") || !strings.Contains(why, "team") {
		t.Errorf("why: %q", why)
	}
	if g, err := w.Grant(t.Context(), w.peer("alice")); err != nil || len(g.Namespaces) != 1 || g.Namespaces[0].Role != "view" {
		t.Errorf("%+v, %v", g, err)
	}
}

// A policy that was stored before admission refused it gives neither all power nor a place in a namespace of Kubernetes'.
func TestAStoredPolicyGivesNoPowerOverTheCluster(t *testing.T) {
	w := newWorld(t, policy("staff", in("team", "cluster-admin"), in("kube-system", "view"), in("read", "view")), laptop("alice", alice, tethered))
	w.reconcile("alice")
	if got := w.bindings(); len(got) != 1 || !strings.HasPrefix(got[0], "read view ") {
		t.Errorf("%v", got)
	}
	if why := w.peer("alice").Status.Tether.Why; !strings.Contains(why, "may not give the ClusterRole cluster-admin") || !strings.Contains(why, "the namespace kube-system is") {
		t.Errorf("why: %q", why)
	}
	if c := w.judged("staff"); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "all but cluster-admin") {
		t.Errorf("%+v", c)
	}
}
