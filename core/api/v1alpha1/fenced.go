package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Fenced reports whether guests may run on a node: a fence of Kith's is alive there. None may on nodes that stand for peers.
func Fenced(node *corev1.Node) bool {
	_, virtual := node.Labels[LabelPeer]
	return !virtual && node.Labels[LabelFenced] == "true"
}
