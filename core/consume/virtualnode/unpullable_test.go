package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
)

// guestLines are what the view shows of a home pod that the peer runs, whose container is in a state.
func guestLines(t *testing.T, home *corev1.Pod, state corev1.ContainerState) (lines []string) {
	t.Helper()
	o := offloadedPod(home, home.Namespace+"-x")
	o.UID, o.Status = "u", v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodAccepted, PodUID: "g"}
	guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: home.Name, UID: "g", Labels: o.Labels}, Spec: home.Spec, Status: corev1.PodStatus{
		Phase: corev1.PodPending, HostIP: "192.0.2.1", StartTime: &metav1.Time{Time: time.Now()},
		ContainerStatuses: []corev1.ContainerStatus{{Name: home.Spec.Containers[0].Name, Image: "shop/web:dev", State: state}},
	}}
	for kind, object := range map[string]any{"OffloadedPod": o, "Pod": guest} {
		line, err := json.Marshal(map[string]any{"kind": kind, "object": object})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}

// A peer that cannot get the image of a pod is let go of as one that refuses it, when it had its tries while home could be reached.
func TestAPodLeavesAPeerThatCannotGetItsImage(t *testing.T) {
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "not found"}}
	}
	type step struct {
		after  time.Duration // of the one before
		state  corev1.ContainerState
		back   bool // home was away until then
		failed bool // seen after it
		noted  bool
	}
	failing := []step{{state: waits("ErrImagePull"), noted: true}, {after: time.Minute, state: waits("ImagePullBackOff"), noted: true}}
	for name, c := range map[string]struct {
		bare  bool
		steps []step
	}{
		"that fails for two minutes": {steps: append(failing[:2:2], step{after: 50 * time.Second, state: waits("ErrImagePull"), noted: true},
			step{after: 15 * time.Second, state: waits("ImagePullBackOff"), noted: true, failed: true})},
		"whose policy forbids it": {steps: []step{{state: waits("ErrImageNeverPull"), noted: true, failed: true}}},
		"that gets it after all":  {steps: append(failing[:2:2], step{after: time.Minute, state: waits("ContainerCreating")}, step{after: time.Hour, state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})},
		"that could not ask home": {steps: append(failing[:2:2], step{after: 50 * time.Second, state: waits("ImagePullBackOff"), back: true, noted: true},
			step{after: 110 * time.Second, state: waits("ErrImagePull"), noted: true}, step{after: 15 * time.Second, state: waits("ErrImagePull"), noted: true, failed: true})},
		"though nobody makes it anew": {bare: true, steps: append(failing[:2:2], step{after: time.Hour, state: waits("ImagePullBackOff"), noted: true})},
	} {
		t.Run(name, func(t *testing.T) {
			standing(t, func(s *stand) {
				if err := s.home.Tracker().Add(nodeNamed("alice", func(*corev1.Node) {})); err != nil {
					s.Fatal(err)
				}
				since := time.Time{}
				s.node.cfg.Avoid = func(context.Context, string, types.UID) (time.Time, error) {
					if since.IsZero() {
						since = time.Now()
					}
					return since, nil
				}
				pod := onNode("shop", "web")
				if !c.bare {
					pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
				}
				if err := errors.Join(s.home.Tracker().Add(pod.DeepCopy()), s.node.pods.put(pod.DeepCopy())); err != nil {
					s.Fatal(err)
				}
				s.say(twinLine("shop", ""), synced)
				for i, step := range c.steps {
					time.Sleep(step.after)
					if step.back {
						s.node.SetPresence(presence.Presence{State: presence.Reachable, Since: time.Now()})
					}
					s.say(guestLines(s.T, pod, step.state)...)
					time.Sleep(noteSpreads + time.Second)
					now, err := s.home.CoreV1().Pods("shop").Get(s.Context(), "web", metav1.GetOptions{})
					if err != nil {
						s.Fatal(err)
					}
					if failed := now.Status.Phase == corev1.PodFailed; failed != step.failed || failed && now.Status.Reason != "ImageNotPulled" {
						s.Errorf("after step %d: %s, reason %q", i, now.Status.Phase, now.Status.Reason)
						return
					}
					if noted := condition(now.Status.Conditions, conditionUnpulled); (noted != nil) != step.noted {
						s.Errorf("after step %d: condition %+v", i, noted)
					}
					if err := s.node.pods.put(now); err != nil { // as its watch does
						s.Fatal(err)
					}
				}
			}, offloadedNamespace("shop"))
		})
	}
}
