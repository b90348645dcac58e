package fenced

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// Reason is why guests may not run on a node; "" when they may.
type Reason string

// Reasons.
const (
	Alive     Reason = ""
	Starting  Reason = "Starting"  // not known yet whether the fence there works
	NoFence   Reason = "NoFence"   // nothing of Kith's that could keep one runs there
	NotReady  Reason = "NotReady"  // `kithd node` is there, and does not keep the fence, or not the way to the gateway
	Cut       Reason = "Cut"       // its packets do not arrive at the gateway's node, or those of that node there
	Down      Reason = "Down"      // the leading kithd is there, and its fence is not as it must be
	Elsewhere Reason = "Elsewhere" // the leading kithd is configured for that node, but runs on another machine
)

// Verdict is what holds for a node.
type Verdict struct {
	Node string
	Why  Reason
	More string // what failed, for Down; what does not come through, for Cut
	By   string // who keeps the fence, as v1alpha1.AnnotationFencedBy has it; "" while nobody does
}

// World is what the verdicts follow from.
type World struct {
	Nodes  []corev1.Node
	Agents []corev1.Pod      // of `kithd node`
	Self   string            // the node that this kithd works on
	Cut    map[string]string // by node, what does not come through between it and this one
	Own    Reason            // of the fence that it keeps there: Alive, Starting, Down or Elsewhere
	More   string            // of Own
	// Settled: this kithd has been the leader for so long that the readiness of every agent is from after the change of leaders. Until then
	// the former leader's node counts as without a fence: while kithd kept the fence there its agent was Ready without keeping one, and may not
	// have been probed since.
	Settled bool
}

// Judge gives a verdict for each machine, by name. Virtual nodes are none.
func (w World) Judge() []Verdict {
	var all []Verdict
	for i := range w.Nodes {
		if node := &w.Nodes[i]; isMachine(node) {
			all = append(all, w.judge(node))
		}
	}
	slices.SortFunc(all, func(a, b Verdict) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

func (w World) judge(node *corev1.Node) Verdict {
	v := Verdict{Node: node.Name, Why: NoFence}
	if node.Name == w.Self {
		if v.Why = w.Own; v.Why == Starting && w.Settled {
			v.Why = Down
		}
		if v.More = w.More; v.Why == Alive || v.Why == Starting {
			v.By = v1alpha1.FencedByKithd
		}
		return v
	}
	for i := range w.Agents {
		agent := &w.Agents[i]
		switch {
		case agent.Spec.NodeName != node.Name || !IsAgent(agent):
		case !ready(agent):
			v.Why = NotReady
		case node.Annotations[v1alpha1.AnnotationFencedBy] == v1alpha1.FencedByKithd && !w.Settled:
			v.Why = NotReady
		case w.Cut[node.Name] != "":
			v.Why, v.More = Cut, w.Cut[node.Name]
		default:
			return Verdict{Node: node.Name, By: v1alpha1.FencedByAgent}
		}
	}
	return v
}

func isMachine(node *corev1.Node) bool {
	_, peer := node.Labels[v1alpha1.LabelPeer]
	return !peer && node.Labels["type"] != "virtual-kubelet"
}

// AgentLabel and AgentValue mark the pods of `kithd node` in Kith's namespace.
const (
	AgentLabel = "app.kubernetes.io/component"
	AgentValue = "nodes"
)

// IsAgent reports whether a pod of Kith's namespace is one of the DaemonSet's.
func IsAgent(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Labels[AgentLabel] == AgentValue && owner != nil && owner.Kind == "DaemonSet"
}

// ready: it says itself, by its readiness probe, that what it keeps on its node is there.
func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
