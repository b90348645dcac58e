package guests

import (
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/hosting/grants"
)

// eachImage visits the images of containers and volumes.
func eachImage(spec *corev1.PodSpec, do func(field string, image *string, policy *corev1.PullPolicy)) {
	everyContainer(spec, func(c *corev1.Container) { do("image of container "+c.Name, &c.Image, &c.ImagePullPolicy) })
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			do("image of volume "+spec.Volumes[i].Name, &v.Reference, &v.PullPolicy)
		}
	}
}

// checkImages says of the first image that may not be had why.
func checkImages(spec *corev1.PodSpec, rules grants.ImageRules) (no *grants.Refusal) {
	eachImage(spec, func(field string, image *string, _ *corev1.PullPolicy) {
		if no == nil {
			no = rules.Refuse(field, *image)
		}
	})
	return no
}

// keepImages has want keep the images of pod, which runs, where it may not have others.
func keepImages(want, pod *corev1.Pod, rules grants.ImageRules) (no *grants.Refusal) {
	has := map[string]string{}
	eachImage(&pod.Spec, func(field string, image *string, _ *corev1.PullPolicy) { has[field] = *image })
	eachImage(&want.Spec, func(field string, image *string, _ *corev1.PullPolicy) {
		if old, runs := has[field]; runs && old != *image {
			if why := rules.Refuse(field, *image); why != nil {
				no, *image = why, old
			}
		}
	})
	return no
}
