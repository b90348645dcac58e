package guests

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// podState is how the Pod of an OffloadedPod is.
type podState string

const (
	absent  podState = "absent"  // there is none
	alive   podState = "alive"   // it waits or runs
	leaving podState = "leaving" // being deleted before it ended: made again once it is gone, unless it is evicted
	lost    podState = "lost"    // failed by no doing of its own: deleted, and made again
	ended   podState = "ended"   // ended for good: final
	evicted podState = "evicted" // ended because something here evicted it: final too, home decides what follows
	stale   podState = "stale"   // belongs to an earlier OffloadedPod of the name, or to none any more
	foreign podState = "foreign" // not made by Kith
)

func stateOf(opod *v1alpha1.OffloadedPod, pod *corev1.Pod) podState {
	if pod == nil {
		return absent
	}
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil && pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && pod.Annotations[v1alpha1.AnnotationHomePod] != "":
		return stale // deleted with propagationPolicy=Orphan, which takes the owner off
	case owner == nil || owner.Kind != "OffloadedPod":
		return foreign
	case owner.UID != opod.UID:
		return stale
	case pod.DeletionTimestamp != nil && over(pod) && endedBefore(pod, deletedAt(pod)) && final(pod):
		return ended
	case pod.DeletionTimestamp != nil && over(pod) && evictionOf(pod) != nil:
		return evicted
	case pod.DeletionTimestamp != nil && leftBehind(pod):
		return evicted
	case pod.DeletionTimestamp != nil:
		return leaving
	case !over(pod):
		return alive
	case final(pod):
		return ended
	default:
		return lost
	}
}

// final: a pod that is to be restarted for ever never ends by itself, except at its deadline, and when the kubelet evicts it: for
// what it used itself, because the node lacks something, or for a pod that matters more. When it failed all the same, the node did
// it: shut down, rejected at admission, gone.
func final(pod *corev1.Pod) bool {
	if restartsForEver(pod) {
		return slices.Contains([]string{"DeadlineExceeded", reasonEvicted, "Preempting"}, pod.Status.Reason) || unsaid(pod) || restartsByContainer(pod)
	}
	return true
}

func restartsForEver(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || pod.Spec.RestartPolicy == ""
}

// restartsByContainer: its containers say by themselves whether they are restarted (KEP-5307), so it may end well.
func restartsByContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
}

// nodeShutdown is the message of the kubelet's condition when the machine is shut down (pkg/kubelet/nodeshutdown in Kubernetes).
const nodeShutdown = "Pod was terminated in response to imminent node shutdown."

// unsaid reports whether the kubelet evicted the pod without saying so: when all containers exit with 0, as well-behaved servers do
// when they are told to end, it takes the phase for Succeeded and drops the reason with the phase that it had set
// (generateAPIPodStatus in pkg/kubelet). A pod that is restarted for ever succeeds in no other way but when its machine is shut down.
func unsaid(pod *corev1.Pod) bool {
	if !restartsForEver(pod) || restartsByContainer(pod) || pod.Status.Phase != corev1.PodSucceeded || pod.Status.Reason != "" {
		return false
	}
	c := disruption(pod)
	return c == nil || c.Message != nodeShutdown
}

// disruption is the pod's condition DisruptionTarget (KEP-3329) if it is True, else nil.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// leftBehind reports whether a guest went on to a provider of this cluster that does not answer any more, and is evicted for that: its end may be told
// hours later, and its home is to make another now.
func leftBehind(pod *corev1.Pod) bool {
	c := disruption(pod)
	return c != nil && c.Reason == "DeletionByTaintManager" && strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

// reasonEvicted is in the status of pods that kubelets evicted.
const reasonEvicted = "Evicted"

// evictionOf is the condition by which a pod that is being deleted is known to be evicted: through the Eviction API, as
// kubectl drain does, for a taint, for a pod that the scheduler or this cluster has no other room for, or since the contract was lowered. It is nil when somebody
// merely deleted the pod, or when its node is gone: then it is made again, as a guest that is lost.
func evictionOf(pod *corev1.Pod) *corev1.PodCondition {
	c := disruption(pod)
	if c == nil || !slices.Contains([]string{"EvictionByEvictionAPI", "DeletionByTaintManager", corev1.PodReasonPreemptionByScheduler, grants.ReasonNoLonger}, c.Reason) {
		return nil
	}
	return c
}

// deletedAt is when the deletion was requested: the deletionTimestamp is later by the grace period.
func deletedAt(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// endedBefore: did every container end by itself before then? A container that the deletion itself stopped
// exits too, and changes the pod's phase; that is no end for good. Times are whole seconds: one that
// finished in the second of the deletion counts as stopped by it.
func endedBefore(pod *corev1.Pod, then time.Time) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t == nil || !t.FinishedAt.Time.Before(then.Truncate(time.Second)) {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// EndGrace is the longest grace period of a guest whose contract ended, or grants its place no more.
const EndGrace = 30 * time.Second

// Pods that get lost again and again are recreated with growing delays; the count starts anew once one has run long enough.
const (
	remakeFirst = time.Second
	remakeMost  = 5 * time.Minute
	forgiven    = 10 * time.Minute
)

// remakeDelay is how long after the n-th remaking the next one has to wait: none after the first loss.
func remakeDelay(n int) time.Duration {
	if n == 0 {
		return 0
	}
	if n > 9 {
		return remakeMost
	}
	return min(remakeFirst<<(n-1), remakeMost)
}
