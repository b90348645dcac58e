package virtualnode

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// What is made again at home must not find the node open, and a scheduler that heard of that too late must not leave a pod on
// a node that is no more.
func TestRetiredNodeGetsNoMorePods(t *testing.T) {
	on := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "1"}, Spec: corev1.PodSpec{NodeName: "kith-bob"}}
	}
	home := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}}, on("first"))
	var late sync.Once
	home.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		node, err := home.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "kith-bob")
		if err == nil && !node.(*corev1.Node).Spec.Unschedulable {
			t.Error("a pod was ended while new ones could still come")
		}
		return false, nil, nil
	})
	home.PrependReactor("delete", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		late.Do(func() {
			if err := home.Tracker().Add(on("late")); err != nil {
				t.Error(err)
			}
		})
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var kept []string
	keep := func(_ context.Context, pod *corev1.Pod) error { kept = append(kept, pod.Name); return nil }
	if err := Retire(t.Context(), ctx, home, "kith-bob", keep, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	left, err := home.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("pods stay on a node that is no more: %v %v", left.Items, err)
	}
	if !slices.Contains(kept, "first") || !slices.Contains(kept, "late") {
		t.Errorf("kept to be made again: %v", kept)
	}
}

// TestAProcessThatEndsKillsNothing: what it was retiring is as it was, without grace only when the grace is over.
func TestAProcessThatEndsKillsNothing(t *testing.T) {
	home := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "shop", UID: "1"}, Spec: corev1.PodSpec{NodeName: "kith-bob"}})
	ctx, cancel := context.WithCancel(t.Context())
	grace, enough := context.WithTimeout(ctx, time.Hour)
	defer enough()
	keep := func(context.Context, *corev1.Pod) error { cancel(); return nil }
	if err := Retire(ctx, grace, home, "kith-bob", keep, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, action := range home.Actions() {
		if action.GetVerb() == "delete" {
			t.Errorf("it deleted one of the %s", action.GetResource().Resource)
		}
	}
}
