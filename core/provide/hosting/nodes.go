package hosting

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/door"
)

// GetMachine answers GET /kith/v2/machine?contract=ID with what all nodes that guests run on have in common.
func (h *Host) GetMachine(w http.ResponseWriter, r *http.Request, consumerID string) {
	var nodes corev1.NodeList
	_, err := h.Contracts.Held(r.Context(), r.URL.Query().Get("contract"), consumerID)
	if err == nil {
		if err = h.client.List(r.Context(), &nodes); err != nil {
			err = fmt.Errorf("reading nodes: %w", err)
		}
	}
	door.Answer(h.log, w, machineOf(nodes.Items), err)
}

// machineOf is what all nodes that guests run on have in common. It is no secret: guests could find out most of it.
func machineOf(nodes []corev1.Node) (all remote.Machine) {
	first := true
	for i := range nodes {
		if !v1alpha1.Fenced(&nodes[i]) {
			continue
		}
		s := &nodes[i].Status
		one := remote.Machine{
			KernelVersion: s.NodeInfo.KernelVersion, BootID: s.NodeInfo.BootID,
			ContainerRuntimeVersion: s.NodeInfo.ContainerRuntimeVersion, DeclaredFeatures: s.DeclaredFeatures,
		}
		if first {
			all, first = one, false
			continue
		}
		for has, also := range map[*string]string{&all.KernelVersion: one.KernelVersion, &all.BootID: one.BootID, &all.ContainerRuntimeVersion: one.ContainerRuntimeVersion} {
			if *has != also {
				*has = ""
			}
		}
		all.DeclaredFeatures = slices.DeleteFunc(slices.Clone(all.DeclaredFeatures), func(name string) bool { return !slices.Contains(one.DeclaredFeatures, name) })
	}
	return all
}

// closedRef names the line of KindClosed, which is about no object: it is sent while no node here takes guests, and gone otherwise.
var closedRef = objectRef{kind: remote.KindClosed, name: "closed"}

// closedBy says why no node takes another guest: none has a working fence, or those that do are cordoned or under pressure. It is a valid label
// value; "" when a node takes guests, or no node is known.
func closedBy(nodes []any) (why string) {
	for _, o := range nodes {
		node, ok := o.(*corev1.Node)
		if !ok || node.Labels[v1alpha1.LabelPeer] != "" {
			continue
		}
		if !v1alpha1.Fenced(node) {
			why = cmp.Or(why, "unfenced")
			continue
		}
		of := ""
		for _, c := range node.Status.Conditions { // not its taints: the controller that derives them may be off (cluster.Engine.Decide)
			switch {
			case c.Status != corev1.ConditionTrue:
			case c.Type == corev1.NodeDiskPressure:
				of = "disk-pressure"
			case c.Type == corev1.NodePIDPressure:
				of = "pid-pressure"
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

// nodesChanged tells all consumers when no node takes guests any more, and when one does again: otherwise pods that are evicted here would be
// scheduled to this peer again, and stay pending.
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
