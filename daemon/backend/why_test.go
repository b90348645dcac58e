package backend

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
)

func TestWhichPodsAreOfAWorkload(t *testing.T) {
	pod := func(kind, owner, hash string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{}}}
		if hash != "" {
			p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
		}
		return p
	}
	for _, c := range []struct {
		pod  *corev1.Pod
		kind string
		want bool
	}{
		{pod("ReplicaSet", "web-7d9", "7d9"), "deployment", true},
		{pod("ReplicaSet", "web-7d9", "7d9"), "replicaset", false},
		{pod("ReplicaSet", "web", ""), "replicaset", true},
		{pod("ReplicaSet", "web", ""), "deployment", false},
		{pod("ReplicaSet", "web-api-7d9", "7d9"), "deployment", false},
		{pod("StatefulSet", "web", ""), "statefulset", true},
		{pod("", "", ""), "deployment", false},
	} {
		if got := belongs(c.pod, api.WhyOptions{Kind: c.kind, Namespace: "shop", Name: "web"}); got != c.want {
			t.Errorf("%v of %s/web: %v", c.pod.OwnerReferences, c.kind, got)
		}
	}
}
