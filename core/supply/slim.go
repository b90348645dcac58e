package supply

import corev1 "k8s.io/api/core/v1"

// Slim is a transform for a cache of pods (client-go's TransformFunc). Of the owner's pods on this cluster's nodes it keeps who and
// where they are, how they are, and what they request: on a cluster with thousands of them what they run, with which environment and
// volumes, is most of the memory, and nobody here asks for it. Guests, and pods that run at peers or may go there, stay whole.
// An object that was slimmed must be patched, never updated.
func Slim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	if !own(pod) {
		return pod, nil
	}
	pod.Annotations, pod.Spec.Volumes, pod.Spec.EphemeralContainers, pod.Spec.Affinity = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i, c := range containers {
			containers[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
	return pod, nil
}
