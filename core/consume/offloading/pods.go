package offloading

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// Abroad tells whether the pod is bound to a virtual node.
func Abroad(pod *corev1.Pod) bool {
	return onVirtualNode(pod) && tolerates(pod)
}

func onVirtualNode(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintPeer })
}

// toleratesBoth reports whether the pod tolerates by name both taints of a virtual node, NoSchedule and NoExecute; those made when
// there was one taint only do not.
func toleratesBoth(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == v1alpha1.TaintPeer && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute)
	})
}

// ended reports whether the pod has ended for good.
func ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || v1alpha1.Ended(pod.Status.Phase)
}

// waits tells whether the pod waits for a node.
func waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && !ended(pod) && !ownedBy(pod, "DaemonSet")
}

// stuckAtHome reports whether the pod has no node and, since it was created before its namespace was offloaded, lacks the tolerations to go
// to a peer.
func stuckAtHome(pod *corev1.Pod) bool {
	return waits(pod) && !toleratesBoth(pod)
}

// needsWork reports whether a pending pod may lack tolerations, or an event that says why it stays at home.
func needsWork(pod *corev1.Pod) bool {
	return stuckAtHome(pod) || waits(pod) && (narrowed(pod) || fencedIn(pod) || unbindable(pod) || boundHome(pod, v1alpha1.VolumesHome))
}

// unscheduled reports whether the scheduler looked for a node for the pod in vain; not where it was not to look yet.
func unscheduled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated
	})
}

// unbindable reports whether the scheduler chose a node for the pod and could not bind it, as when a budget closes that.
func unbindable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulerError
	})
}

// boundHome says what boundToHome does.
func boundHome(pod *corev1.Pod, volumes v1alpha1.VolumePlace) bool {
	return len(pod.Spec.ResourceClaims) > 0 || volumes != v1alpha1.VolumesAnywhere && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// virtualNode is which virtual node a pod asks for by its nodeSelector or what its affinity requires: a name, "a peer" for any, "" for none.
func virtualNode(spec *corev1.PodSpec) string {
	of := func(key string, values ...string) string {
		if key == LabelVirtual && slices.Equal(values, []string{"true"}) {
			return "a peer"
		}
		others := func(name string) bool { return !strings.HasPrefix(name, v1alpha1.VirtualNodePrefix) }
		if key != corev1.LabelHostname && key != metav1.ObjectNameField || len(values) == 0 || slices.ContainsFunc(values, others) {
			return ""
		}
		return strings.Join(values, " or ")
	}
	for key, value := range spec.NodeSelector {
		if wants := of(key, value); wants != "" {
			return wants
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	wants := ""
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		one := ""
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			if e.Operator == corev1.NodeSelectorOpIn && one == "" {
				one = of(e.Key, e.Values...)
			}
		}
		if one == "" {
			return "" // one of several terms will do
		}
		wants = one
	}
	return wants
}

func ownedBy(pod *corev1.Pod, kind string) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == kind })
}

// bare reports whether the pod has no controller that would recreate it.
func bare(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) == nil }

// wanted is the list of tolerations that the admission policy would have added to a pod that has none of its own.
func wanted(spec v1alpha1.NamespaceOffloadingSpec) []corev1.Toleration {
	if spec.Strategy == v1alpha1.StrategyLocal {
		return nil
	}
	if len(spec.Peers) == 0 {
		return []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
	}
	var list []corev1.Toleration
	for _, peer := range spec.Peers {
		list = append(list, corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: peer})
	}
	return list
}

// missing are the tolerations that a pod that waits lacks, of those that it would get now.
func missing(pod *corev1.Pod, spec v1alpha1.NamespaceOffloadingSpec, add []corev1.Toleration) []corev1.Toleration {
	switch {
	case add == nil:
		return nil
	case narrowed(pod):
		return slices.DeleteFunc(slices.Clone(add), func(t corev1.Toleration) bool { return slices.Contains(pod.Spec.Tolerations, t) })
	case tolerates(pod):
		return completed(pod)
	case boundHome(pod, spec.Volumes) && spec.Strategy != v1alpha1.StrategyRemote:
		return nil
	}
	return add
}

// completed are the pod's own tolerations of the NoSchedule taint, for the NoExecute taint.
func completed(pod *corev1.Pod) []corev1.Toleration {
	var list []corev1.Toleration
	for _, t := range pod.Spec.Tolerations {
		if t.Key == v1alpha1.TaintPeer {
			t.Effect = corev1.TaintEffectNoExecute
			list = append(list, t)
		}
	}
	return list
}

// again is the pod to create in place of a bare one that was taken from a virtual node: the same,
// without what the API server, the scheduler and this package had added.
func again(pod *corev1.Pod) *corev1.Pod {
	fresh := &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	fresh.Name, fresh.Namespace = pod.Name, pod.Namespace
	fresh.Labels, fresh.Annotations = pod.Labels, maps.Clone(pod.Annotations)
	delete(fresh.Annotations, v1alpha1.AnnotationNarrowed)
	fresh.OwnerReferences = pod.OwnerReferences
	fresh.Spec.NodeName = ""
	fresh.Spec.EphemeralContainers = nil
	fresh.Spec.Tolerations = slices.DeleteFunc(fresh.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintPeer })
	delete(fresh.Spec.NodeSelector, LabelVirtual)
	return fresh
}
