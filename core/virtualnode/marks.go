package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/offloading"
)

// taints keep pods away that were not offloaded: from the scheduler, and those that come by their nodeName.
func (n *Node) taints() []corev1.Taint {
	return []corev1.Taint{
		{Key: v1alpha1.TaintPeer, Value: n.cfg.PeerName, Effect: corev1.TaintEffectNoSchedule},
		{Key: v1alpha1.TaintPeer, Value: n.cfg.PeerName, Effect: corev1.TaintEffectNoExecute},
	}
}

// ensureMarks brings labels and taints of a node of an earlier run up to date; the controller writes status only. Pods that may
// stay there tolerate a taint that evicts before it is there.
func (n *Node) ensureMarks(ctx context.Context, wanted *corev1.Node) error {
	nodes := n.cfg.Home.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		changed := false
		for _, want := range wanted.Spec.Taints {
			if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) && t.Value == want.Value }) {
				continue
			}
			if want.Effect == corev1.TaintEffectNoExecute {
				if err := n.haveTolerated(ctx, want); err != nil {
					return err
				}
			}
			node.Spec.Taints, changed = append(slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) }), want), true
		}
		for key, value := range wanted.Labels {
			if had, ok := node.Labels[key]; !ok || had != value {
				changed = true
			}
		}
		if !changed {
			return nil
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		maps.Copy(node.Labels, wanted.Labels)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// haveTolerated adds a toleration of the taint to the pods of the node that may stay there and have none.
func (n *Node) haveTolerated(ctx context.Context, taint corev1.Taint) error {
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

func (n *Node) tolerate(ctx context.Context, pod *corev1.Pod, taint corev1.Taint) error {
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
