package link

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api/v1alpha1"
)

func TestWhichPodsHaveAddressesOfAPair(t *testing.T) {
	bob := load(t).ID()
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: bob.String()}}
	for what, c := range map[string]struct {
		consumer, node string
		phase          corev1.PodPhase
		here, there    bool
	}{
		"a guest of his":                {bob.Compact(), "alice", corev1.PodRunning, true, false},
		"one that is being made":        {bob.Compact(), "alice", corev1.PodPending, true, false},
		"one that has ended":            {bob.Compact(), "alice", corev1.PodSucceeded, false, false},
		"one of another":                {load(t).ID().Compact(), "alice", corev1.PodRunning, false, false},
		"our own, here":                 {"", "alice", corev1.PodRunning, false, false},
		"our own, at his":               {"", "kith-bob", corev1.PodRunning, false, true},
		"our own, at his, not yet":      {"", "kith-bob", corev1.PodPending, false, true},
		"our own, at his, that failed":  {"", "kith-bob", corev1.PodFailed, false, false},
		"our own, at another's":         {"", "kith-carol", corev1.PodRunning, false, false},
		"our own, waiting for a node":   {"", "", corev1.PodPending, false, false},
		"a name that begins like bob's": {"", "kith-bob-2", corev1.PodRunning, false, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: corev1.PodSpec{NodeName: c.node}, Status: corev1.PodStatus{Phase: c.phase}}
		if c.consumer != "" {
			pod.Labels = map[string]string{v1alpha1.LabelConsumer: c.consumer}
		}
		var objects client.Client = fake.NewClientBuilder().WithObjects(pod).Build()
		if here, there, err := Pods(objects)(t.Context(), peer); err != nil || here != c.here || there != c.there {
			t.Errorf("%s: here %v, there %v, %v", what, here, there, err)
		}
	}
}

func TestWhetherGuestsWentOnIsSeen(t *testing.T) {
	id := load(t).ID()
	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: id.String()}}
	for what, c := range map[string]struct {
		consumer, node string
		phase          corev1.PodPhase
		want           bool
	}{
		"it runs there": {id.Compact(), "kith-carol", corev1.PodRunning, true}, "it has just been bound": {id.Compact(), "kith-carol", "", true},
		"it ended there": {id.Compact(), "kith-carol", corev1.PodFailed, false}, "elsewhere": {id.Compact(), "kith-dave", corev1.PodRunning, false},
		"here": {id.Compact(), "bob", corev1.PodRunning, false}, "another's": {"x", "kith-carol", corev1.PodRunning, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Labels: map[string]string{v1alpha1.LabelConsumer: c.consumer}}, Spec: corev1.PodSpec{NodeName: c.node}, Status: corev1.PodStatus{Phase: c.phase}}
		if got, err := WentOn(fake.NewClientBuilder().WithObjects(pod).Build())(t.Context(), peer, "carol"); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
}
