package relations

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

// What is left to consumers is looked at again when others' contracts or the nodes for guests change, and not when use or conditions do.
func TestWhatMovesWhatIsLeftToConsumers(t *testing.T) {
	node := func(fenced, cpu, note string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelFenced: fenced}, Annotations: map[string]string{"note": note}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu)}},
		}
	}
	for name, c := range map[string]struct {
		was, is *corev1.Node
		want    bool
	}{
		"a heartbeat":          {node("true", "4", ""), node("true", "4", "x"), false},
		"its fence is gone":    {node("true", "4", ""), node("false", "4", ""), true},
		"and is there again":   {node("false", "4", ""), node("true", "4", ""), true},
		"it has less":          {node("true", "4", ""), node("true", "2", ""), true},
		"another one has less": {node("false", "4", ""), node("false", "2", ""), false},
	} {
		if got := supplyMoved.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	ctr := func(role v1alpha1.Role, generation int64) *v1alpha1.Contract {
		return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Generation: generation}, Spec: v1alpha1.ContractSpec{Role: role}}
	}
	for name, c := range map[string]struct {
		was, is *v1alpha1.Contract
		want    bool
	}{
		"its use":     {ctr(v1alpha1.RoleProvider, 1), ctr(v1alpha1.RoleProvider, 1), false},
		"a revision":  {ctr(v1alpha1.RoleProvider, 1), ctr(v1alpha1.RoleProvider, 2), true},
		"one of ours": {ctr(v1alpha1.RoleConsumer, 1), ctr(v1alpha1.RoleConsumer, 2), false},
	} {
		if got := sharesMoved.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !sharesMoved.Delete(event.DeleteEvent{Object: ctr(v1alpha1.RoleProvider, 1)}) {
		t.Error("one that ends")
	}
}
