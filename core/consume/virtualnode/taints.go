package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
)

// taints keep pods away that were not offloaded: from the scheduler, and those that come by their nodeName.
func (n *face) taints() []corev1.Taint {
	taints := []corev1.Taint{
		{Key: v1alpha1.TaintPeer, Value: n.cfg.PeerName, Effect: corev1.TaintEffectNoSchedule},
		{Key: v1alpha1.TaintPeer, Value: n.cfg.PeerName, Effect: corev1.TaintEffectNoExecute},
	}
	if n.cfg.NoNetwork { // pods would lose their services by surprise
		taints = append(taints, corev1.Taint{Key: v1alpha1.LabelNetwork, Value: v1alpha1.WithoutNetwork, Effect: corev1.TaintEffectNoSchedule})
	}
	return taints
}

// ensureLabelsAndTaints brings labels and taints of a node of an earlier run up to date; the controller writes status only. Pods that may
// stay there tolerate a taint that evicts before it is there.
func (n *face) ensureLabelsAndTaints(ctx context.Context, wanted *corev1.Node) error {
	err := n.changeNode(ctx, func(node *corev1.Node) (changed bool, err error) {
		for _, want := range wanted.Spec.Taints {
			if !setTaint(node, want) {
				continue
			}
			if changed = true; want.Effect == corev1.TaintEffectNoExecute {
				if err := n.haveTolerated(ctx, want); err != nil {
					return false, err
				}
			}
		}
		return setLabels(node, wanted.Labels) || changed, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setLabels: a price that holds no more is taken away, and no other label: the owner may have put some on.
func setLabels(node *corev1.Node, labels map[string]string) (changed bool) {
	maps.DeleteFunc(node.Labels, func(key, _ string) bool {
		_, holds := labels[key]
		gone := !holds && strings.HasPrefix(key, v1alpha1.LabelPrice)
		changed = changed || gone
		return gone
	})
	for key, value := range labels {
		if had, ok := node.Labels[key]; !ok || had != value {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
			changed = true
		}
	}
	return changed
}

// relabel gives the node the labels that came with a new revision. None but prices is taken away: of devices that are not granted any more there are none.
func (n *face) relabel(ctx context.Context) error {
	err := n.changeNode(ctx, func(node *corev1.Node) (bool, error) { return setLabels(node, n.now().labels), nil })
	if err == nil || apierrors.IsNotFound(err) { // it is made with them
		return nil
	}
	return fmt.Errorf("label node %s: %w", n.cfg.NodeName, err)
}

// changeNode writes what change makes of the node, if that is anything.
func (n *face) changeNode(ctx context.Context, change func(*corev1.Node) (changed bool, err error)) error {
	nodes := n.cfg.Home.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if changed, err := change(node); err != nil || !changed {
			return err
		}
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// setTaint gives the node a taint, in the place of one with the same key and effect, and reports whether it had another or none.
func setTaint(node *corev1.Node, want corev1.Taint) (changed bool) {
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) && t.Value == want.Value }) {
		return false
	}
	removeTaint(node, want)
	node.Spec.Taints = append(node.Spec.Taints, want)
	return true
}

func removeTaint(node *corev1.Node, not corev1.Taint) (changed bool) {
	had := len(node.Spec.Taints)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&not) })
	return len(node.Spec.Taints) != had
}

// haveTolerated adds a toleration of the taint to those pods of the node that may stay there and lack it.
func (n *face) haveTolerated(ctx context.Context, taint corev1.Taint) error {
	pods, err := podsOn(ctx, n.cfg.Home, n.cfg.NodeName)
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", n.cfg.NodeName, err)
	}
	var errs []error
	for i := range pods {
		pod := &pods[i]
		if slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) }) {
			continue
		}
		permit, _, err := n.cfg.Permit(ctx, pod.Namespace)
		if err == nil && permit != offloading.Withdrawn {
			err = n.tolerate(ctx, pod, taint)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n *face) tolerate(ctx context.Context, pod *corev1.Pod, taint corev1.Taint) error {
	add := map[string]any{"op": "add", "path": "/spec/tolerations/-",
		"value": corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect}}
	if len(pod.Spec.Tolerations) == 0 {
		add["path"], add["value"] = "/spec/tolerations", []any{add["value"]}
	}
	patch, err := json.Marshal([]any{map[string]any{"op": "test", "path": "/metadata/uid", "value": pod.UID}, add})
	if err != nil {
		return err
	}
	_, err = n.cfg.Home.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("have pod %s/%s tolerate the taint %s: %w", pod.Namespace, pod.Name, taint.Key, err)
	}
	return nil
}

// ofNode is the key in the queue that stands for the node itself.
var ofNode = key{}

// markClosed sets a taint on the node while the peer says that none of its nodes takes pods: pods evicted there would otherwise be bound to it
// again, and stay pending. It is a taint of Kith's, not a cordon, since cordons belong to the owner of the home cluster.
func (n *Node) markClosed(ctx context.Context) error {
	why := n.view.Closed()
	if len(validation.IsValidLabelValue(why)) > 0 {
		why = "unknown"
	}
	taint := corev1.Taint{Key: v1alpha1.TaintClosed, Value: why, Effect: corev1.TaintEffectNoSchedule}
	err := n.changeNode(ctx, func(node *corev1.Node) (changed bool, _ error) {
		if why == "" {
			changed = removeTaint(node, taint)
		} else {
			changed = setTaint(node, taint)
		}
		if changed {
			n.log.Info("whether the peer's nodes take pods changed", "closed", why)
		}
		return changed, nil
	})
	if err == nil || apierrors.IsNotFound(err) && why == "" {
		return nil
	}
	return fmt.Errorf("mark node %s as closed: %w", n.cfg.NodeName, err)
}
