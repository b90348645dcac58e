package hosting

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/remote"
)

// closedRef is of the one line that is about no object: it is told while no node here takes guests, and gone otherwise.
var closedRef = viewed{kind: remote.KindClosed, name: "closed"}

// closedBy says why none of the nodes that guests run on takes another pod: all are cordoned, or short of something. It is a word
// that can be a label's value, "" when there is such a node.
func closedBy(nodes []any) (why string) {
	for _, o := range nodes {
		node, ok := o.(*corev1.Node)
		if !ok || node.Labels[v1alpha1.LabelPeer] != "" {
			continue
		}
		of := ""
		for _, taint := range node.Spec.Taints {
			switch taint.Key {
			case corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure:
				of = strings.TrimPrefix(taint.Key, "node.kubernetes.io/")
			}
		}
		if node.Spec.Unschedulable {
			of = "cordoned"
		}
		if of == "" {
			return ""
		}
		why = of
	}
	return why
}

// nodesChanged tells all consumers when the last node is closed to guests, and when one is open again: else what is evicted here
// would come back, and wait here for as long.
func (v *views) nodesChanged(nodes []any) {
	why := closedBy(nodes)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed == why {
		return
	}
	v.closed = why
	v.log.Info("whether nodes here take guests changed", "closed", why)
	for _, all := range v.open {
		for _, one := range all {
			one.put(closedRef, closedLine(why), why == "")
		}
	}
}

func closedLine(why string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: closedRef.name, Labels: map[string]string{v1alpha1.TaintClosed: why}}}
}
