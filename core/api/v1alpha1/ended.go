package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Ended reports whether a pod in that phase has ended for good: none of its containers runs, or will be started again.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
