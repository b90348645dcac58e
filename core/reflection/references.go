package reflection

import (
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

// rootCA is in every namespace of every cluster, with that cluster's own certificate: it is never reflected.
const rootCA = "kube-root-ca.crt"

// references lists the ConfigMaps and Secrets a pod needs from its namespace, each once.
func references(pod *corev1.Pod) []item {
	var list []item
	seen := map[item]bool{}
	add := func(k kind, name string) {
		it := item{k, pod.Namespace, name}
		if name == "" || seen[it] || k == kindConfigMap && name == rootCA {
			return
		}
		seen[it] = true
		list = append(list, it)
	}
	spec := &pod.Spec
	for _, s := range spec.ImagePullSecrets {
		add(kindSecret, s.Name)
	}
	for i := range spec.Volumes {
		ofVolume(&spec.Volumes[i], add)
	}
	eachContainer(spec, func(c *corev1.Container) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(kindConfigMap, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(kindSecret, from.SecretRef.Name)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom == nil {
				continue
			}
			if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
				add(kindConfigMap, ref.Name)
			}
			if ref := env.ValueFrom.SecretKeyRef; ref != nil {
				add(kindSecret, ref.Name)
			}
		}
	})
	return list
}

func ofVolume(v *corev1.Volume, add func(kind, string)) {
	if v.ConfigMap != nil {
		add(kindConfigMap, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		add(kindSecret, v.Secret.SecretName)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		add(kindSecret, v.CSI.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if source.ConfigMap != nil {
			add(kindConfigMap, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			add(kindSecret, source.Secret.Name)
		}
	}
}

func eachContainer(spec *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		do(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		do((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// needs says whether the pod, bound to a node, still has use for what it refers to.
func needs(pod *corev1.Pod, node string) bool {
	return pod.Spec.NodeName == node && !v1alpha1.Ended(pod.Status.Phase)
}
