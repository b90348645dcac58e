package backend

import (
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

func TestWhatIsUsedIsBesideWhatWasAskedForAndGranted(t *testing.T) {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase}}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts("250m", "64Mi")}}}
		return p
	}
	pods := []*corev1.Pod{pod("web-2", corev1.PodRunning), pod("web-1", corev1.PodPending), pod("job", corev1.PodSucceeded)}
	used := amountsUsed{{Namespace: "shop", Name: "web-2"}: amounts("120m", "30Mi"), {Namespace: "shop", Name: "job"}: amounts("1", "1Gi"), {Namespace: "other", Name: "web-2"}: amounts("1", "1Gi")}
	ctr := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Peer: "bob", Role: v1alpha1.RoleConsumer, Resources: amounts("1", "1Gi")}}
	got := top(ctr, pods, used, nil)
	for _, c := range []struct{ is, want api.Resources }{
		{got.Granted, api.Resources{"cpu": "1", "memory": "1Gi"}}, {got.Requested, api.Resources{"cpu": "500m", "memory": "128Mi", "pods": "2"}}, {got.Used, api.Resources{"cpu": "120m", "memory": "30Mi", "pods": "2"}},
	} {
		if !maps.Equal(c.is, c.want) {
			t.Errorf("%v, want %v", c.is, c.want)
		}
	}
	if got.Direction != api.Outgoing || len(got.Pods) != 2 || got.Pods[0].Name != "web-1" || len(got.Pods[0].Used) != 0 || got.Pods[1].Used["cpu"] != "120m" {
		t.Errorf("%+v", got)
	}
	if idle := top(ctr, nil, nil, nil); idle.Used["cpu"] != "0" || idle.Used["pods"] != "0" {
		t.Errorf("of nothing: %+v", idle)
	}
	ctr.Spec.Role = v1alpha1.RoleProvider
	if gone := top(ctr, pods, nil, errors.New("no answer")); gone.Unknown != "no answer" || gone.Direction != api.Incoming || gone.Used["cpu"] != "" || gone.Used["pods"] != "2" {
		t.Errorf("nobody says: %+v", gone)
	}
}
