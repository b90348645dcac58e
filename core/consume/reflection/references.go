package reflection

import (
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
)

// references lists the ConfigMaps and Secrets a pod needs from its namespace, each once.
func references(pod *corev1.Pod) []item {
	var list []item
	seen := map[item]bool{}
	add := func(k *kinds.Kind, name string) {
		it := item{k, pod.Namespace, name}
		if name == "" || seen[it] || k == kinds.ConfigMap && (name == kinds.RootCA || name == kinds.ServiceLinks) {
			return
		}
		seen[it] = true
		list = append(list, it)
	}
	spec := &pod.Spec
	for _, s := range spec.ImagePullSecrets {
		add(kinds.Secret, s.Name)
	}
	for i := range spec.Volumes {
		ofVolume(&spec.Volumes[i], add)
	}
	eachContainer(spec, func(c *corev1.Container) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(kinds.ConfigMap, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(kinds.Secret, from.SecretRef.Name)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom == nil {
				continue
			}
			if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
				add(kinds.ConfigMap, ref.Name)
			}
			if ref := env.ValueFrom.SecretKeyRef; ref != nil {
				add(kinds.Secret, ref.Name)
			}
		}
	})
	return list
}

func ofVolume(v *corev1.Volume, add func(*kinds.Kind, string)) {
	if v.ConfigMap != nil {
		add(kinds.ConfigMap, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		add(kinds.Secret, v.Secret.SecretName)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		add(kinds.Secret, v.CSI.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if source.ConfigMap != nil {
			add(kinds.ConfigMap, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			add(kinds.Secret, source.Secret.Name)
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

// nodeOfPeer is the node of the peer that a node stands for: that of a provider behind a peer is the peer's in all that is here.
func nodeOfPeer(node string) string {
	if peer, virtual := v1alpha1.PeerOfNode(node); virtual {
		return v1alpha1.VirtualNode(peer)
	}
	return node
}

// needs says whether the pod, bound to a node, still has use for what it refers to.
func needs(pod *corev1.Pod, node string) bool {
	return nodeOfPeer(pod.Spec.NodeName) == node && !v1alpha1.Ended(pod.Status.Phase)
}
