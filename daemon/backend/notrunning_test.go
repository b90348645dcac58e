package backend

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// The owner's own pods that do not run are listed, the farthest from running first; guests, and what runs or is done, are not.
func TestPodsThatDoNotRunAreListed(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase, change func(*corev1.Pod)) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}}}
		if change != nil {
			change(p)
		}
		return p
	}
	runs := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	alice := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	b := tetherable(t, &switched{mode: api.Autonomous}, corpPeer(t))
	b.Settings.Name = "alice"
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		alice, pod("runs", "alice", corev1.PodRunning, runs), pod("done", "alice", corev1.PodSucceeded, nil), pod("waits", "", corev1.PodPending, nil),
		pod("crashes", "alice", corev1.PodRunning, func(p *corev1.Pod) {
			runs(p)
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
		}),
		pod("guest", "", corev1.PodPending, func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelConsumer: "x"} }),
	).Build())
	b.Cluster().Client, b.Cluster().Fresh = objects, objects
	list, err := b.NotRunning(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "waits" || list[0].Causes[0].Reason != api.CauseNoRoom || list[0].Causes[0].What != "alice has no room for it" ||
		list[1].Name != "crashes" || list[1].State != api.PodFailing || list[1].Laptop != "alice" {
		t.Errorf("%+v, %v", list, err)
	}
}
