package guests

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
)

func TestStandings(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	opod := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{UID: "new"}}
	owned := func(owner types.UID, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{Kind: "OffloadedPod", UID: owner, Controller: ptr.To(true)},
		}}}
		change(pod)
		return pod
	}
	with := func(policy corev1.RestartPolicy, phase corev1.PodPhase, reason string) *corev1.Pod {
		return owned("new", func(p *corev1.Pod) {
			p.Spec.RestartPolicy, p.Status.Phase, p.Status.Reason = policy, phase, reason
		})
	}
	// deleted at now, with a grace period of 30 s; its only container finished at the given time.
	deleted := func(policy corev1.RestartPolicy, phase corev1.PodPhase, finished time.Time) *corev1.Pod {
		pod := with(policy, phase, "")
		pod.DeletionTimestamp = &metav1.Time{Time: now.Add(30 * time.Second)}
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: finished}},
		}}}
		return pod
	}
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want podState
	}{
		{"no pod", nil, absent},
		{"somebody else's", &corev1.Pod{}, foreign},
		{"a ReplicaSet's", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "new", Controller: ptr.To(true)}}}}, foreign},
		{"of an earlier OffloadedPod", owned("old", func(*corev1.Pod) {}), stale},
		{"pending", with(always, corev1.PodPending, ""), alive},
		{"running", with(never, corev1.PodRunning, ""), alive},
		{"unknown", with(always, corev1.PodUnknown, ""), alive},
		{"succeeded", with(never, corev1.PodSucceeded, ""), ended},
		{"failed for good", with(never, corev1.PodFailed, "Error"), ended},
		{"failed, retried in place until it succeeds", with(onFailure, corev1.PodFailed, "Evicted"), ended},
		{"evicted job", with(never, corev1.PodFailed, "Evicted"), ended},
		{"evicted server", with(always, corev1.PodFailed, "Evicted"), ended},
		{"put out by the kubelet for a pod that matters more", with(always, corev1.PodFailed, "Preempting"), ended},
		{"node lost", with(always, corev1.PodFailed, "NodeLost"), lost},
		{"node shut down", with(always, corev1.PodFailed, "Terminated"), lost},
		{"rejected by the kubelet", with(always, corev1.PodFailed, "OutOfcpu"), lost},
		{"evicted, and its containers ended well", with(always, corev1.PodSucceeded, ""), ended},
		{"for pressure, and its containers ended well", disrupted(with(always, corev1.PodSucceeded, ""), "TerminationByKubelet"), ended},
		{"shut down with its node, and its containers ended well", said(disrupted(with(always, corev1.PodSucceeded, ""), "TerminationByKubelet"), nodeShutdown), lost},
		{"containers that are not restarted ended well", owned("new", func(p *corev1.Pod) {
			p.Spec.Containers, p.Status.Phase = []corev1.Container{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever)}}, corev1.PodSucceeded
		}), ended},
		{"past its deadline", with(always, corev1.PodFailed, "DeadlineExceeded"), ended},
		{"policy not told", with("", corev1.PodFailed, "NodeLost"), lost},
		{"being deleted while it runs", deleted(always, corev1.PodRunning, time.Time{}), leaving},
		{"stopped by its deletion", deleted(never, corev1.PodFailed, now.Add(2*time.Second)), leaving},
		{"stopped in the very second of its deletion", deleted(never, corev1.PodSucceeded, now), leaving},
		{"ended before it was deleted", deleted(never, corev1.PodSucceeded, now.Add(-time.Second)), ended},
		{"failed with its node before it was deleted", deleted(always, corev1.PodFailed, now.Add(-time.Minute)), leaving},
		{"being evicted, and running", disrupted(deleted(always, corev1.PodRunning, time.Time{}), "EvictionByEvictionAPI"), leaving},
		{"drained", disrupted(deleted(always, corev1.PodFailed, now.Add(2*time.Second)), "EvictionByEvictionAPI"), evicted},
		{"drained, and its containers ended well", disrupted(deleted(never, corev1.PodSucceeded, now.Add(2*time.Second)), "EvictionByEvictionAPI"), evicted},
		{"drained when it had done its work", disrupted(deleted(never, corev1.PodSucceeded, now.Add(-time.Second)), "EvictionByEvictionAPI"), ended},
		{"evicted for a taint", disrupted(deleted(always, corev1.PodFailed, now.Add(2*time.Second)), "DeletionByTaintManager"), evicted},
		{"pushed out by the owner's pods", disrupted(deleted(always, corev1.PodFailed, now.Add(2*time.Second)), "PreemptionByScheduler"), evicted},
		{"deleted because its node is gone", disrupted(deleted(always, corev1.PodFailed, now.Add(2*time.Second)), "DeletionByPodGC"), leaving},
		{"shut down with its node, then deleted", disrupted(deleted(always, corev1.PodFailed, now.Add(2*time.Second)), "TerminationByKubelet"), leaving},
	} {
		if got := stateOf(opod, c.pod); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// disrupted has the condition of a pod that is taken away.
func disrupted(pod *corev1.Pod, reason string) *corev1.Pod {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "Eviction API: evicting",
	})
	return pod
}

func said(pod *corev1.Pod, message string) *corev1.Pod {
	pod.Status.Conditions[0].Message = message
	return pod
}

func TestRemakeDelays(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 0, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := remakeDelay(n); got != want {
			t.Errorf("after %d times: %s, want %s", n, got, want)
		}
	}
}
