package company

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// marks are the labels and taints that a TetherPolicy put on a node.
type marks struct {
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
}

// reserved keys are Kith's, or those of Kubernetes: schedulers, and Kith itself, go by them. The custom resource refuses most of them.
var reserved = regexp.MustCompile(`^(([^/]*\.)?(kubernetes\.io|k8s\.io|kith\.dev)/|type$)`)

// marksOf are what a policy, which may be nil, says that nodes carry; left says in sentences what they cannot.
func marksOf(policy *v1alpha1.TetherPolicy) (m marks, left []string) {
	if policy == nil {
		return m, nil
	}
	fits := func(what, key, value string) bool {
		fits := !reserved.MatchString(key) && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
		if !fits {
			left = append(left, fmt.Sprintf("no node can have the %s %.80q=%.80q by a policy", what, key, value))
		}
		return fits
	}
	m.Labels = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(policy.Spec.Node.Labels)) {
		if value := policy.Spec.Node.Labels[key]; fits("label", key, value) {
			m.Labels[key] = value
		}
	}
	for _, t := range policy.Spec.Node.Taints {
		if fits("taint", t.Key, t.Value) {
			m.Taints = append(m.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	return m, left
}

// marked changes the labels and taints of a node from those that the policy put there (was) to those it says now. Changes that an administrator
// made meanwhile stay: only what differs between the two is written, and only what is unchanged since is removed.
func marked(node *corev1.Node, was, now marks) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	for key, value := range was.Labels {
		if _, stays := now.Labels[key]; !stays && node.Labels[key] == value {
			delete(node.Labels, key)
		}
	}
	for key, value := range now.Labels {
		if before, had := was.Labels[key]; !had || before != value {
			node.Labels[key] = value
		}
	}
	find := func(in []corev1.Taint, t corev1.Taint) (corev1.Taint, bool) {
		at := slices.IndexFunc(in, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
		if at < 0 {
			return corev1.Taint{}, false
		}
		return in[at], true
	}
	for _, t := range was.Taints {
		if _, stays := find(now.Taints, t); !stays {
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(o corev1.Taint) bool { return o.MatchTaint(&t) && o.Value == t.Value })
		}
	}
	for _, t := range now.Taints {
		if before, had := find(was.Taints, t); !had || before.Value != t.Value {
			node.Spec.Taints = append(slices.DeleteFunc(node.Spec.Taints, func(o corev1.Taint) bool { return o.MatchTaint(&t) }), t)
		}
	}
}

// mark has the node of a laptop carry what the policy says, once it is there.
func (c *Company) mark(ctx context.Context, peer *v1alpha1.Peer) (left []string, err error) {
	policy, err := c.policyFor(ctx, peer)
	if err != nil {
		return nil, err
	}
	now, left := marksOf(policy)
	return left, c.changeNode(ctx, peer, func(node *corev1.Node, was marks) error {
		marked(node, was, now)
		// DaemonSets select the node by this label and ignore cordons: while it is there they would recreate their pods on a node that is
		// being drained.
		if record.StateOf(peer.Status.Outgoing) == v1alpha1.StateEnding {
			delete(node.Labels, v1alpha1.LabelTethered)
		} else {
			node.Labels[v1alpha1.LabelTethered] = "true"
		}
		text, err := json.Marshal(now)
		if err != nil {
			return err
		}
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.AnnotationTetherNode] = string(text)
		return nil
	})
}

// unmark takes it off again, while the node is left: see mark.
func (c *Company) unmark(ctx context.Context, peer *v1alpha1.Peer) error {
	return c.changeNode(ctx, peer, func(node *corev1.Node, was marks) error {
		marked(node, was, marks{})
		delete(node.Labels, v1alpha1.LabelTethered)
		delete(node.Annotations, v1alpha1.AnnotationTetherNode)
		return nil
	})
}

func (c *Company) changeNode(ctx context.Context, peer *v1alpha1.Peer, change func(node *corev1.Node, was marks) error) error {
	var node corev1.Node
	if err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.VirtualNodePrefix + peer.Name}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if node.Labels[v1alpha1.LabelPeer] != peer.Name {
		return nil // somebody's real node that is called so
	}
	before := node.DeepCopy()
	var was marks
	if text := node.Annotations[v1alpha1.AnnotationTetherNode]; text != "" && json.Unmarshal([]byte(text), &was) != nil {
		was = marks{} // somebody edited the record, so it is not known what the policy put on the node: all of that stays
	}
	if err := change(&node, was); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, node.ObjectMeta) && equality.Semantic.DeepEqual(before.Spec, node.Spec) {
		return nil
	}
	if err := c.cfg.Client.Patch(ctx, &node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write labels and taints of the policy on node %s: %w", node.Name, err)
	}
	return nil
}
