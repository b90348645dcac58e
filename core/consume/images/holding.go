package images

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// RunsFrom gives the name by digest of an image, named as pods name it, from which one of the pods runs; false: none does.
func RunsFrom(pods []*corev1.Pod, image string) (exact string, ok bool) {
	for _, pod := range pods {
		for name, id := range running(pod) {
			if name == image {
				return id, true
			}
		}
	}
	return "", false
}

// Runs reports whether a pod runs from an image that is named by its digest.
func Runs(pod *corev1.Pod, exact string) bool {
	for _, id := range running(pod) {
		if id == exact {
			return true
		}
	}
	return false
}

// running are the images of a pod's containers that run, as it names them, and as the node has them: by the digest.
func running(pod *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, c := range pod.Status.ContainerStatuses {
		id, err := reference.ParseNamed(c.ImageID)
		if _, exact := id.(reference.Canonical); err != nil || !exact || c.State.Running == nil {
			continue
		}
		for _, of := range pod.Spec.Containers {
			if name, err := reference.ParseDockerRef(of.Image); err == nil && of.Name == c.Name {
				all[name.String()] = id.String()
			}
		}
	}
	return all
}
