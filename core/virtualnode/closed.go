package virtualnode

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"

	"kith.dev/core/api/v1alpha1"
)

// ofNode is the key in the queue that stands for the node itself.
var ofNode = key{}

// markClosed has the node carry a taint while the peer says that none of its nodes takes pods: what was evicted there would be bound
// to it again, and wait. The taint is our own, for a cordon is the home owner's to make and to lift.
func (n *Node) markClosed(ctx context.Context) error {
	why := n.view.Closed()
	if len(validation.IsValidLabelValue(why)) > 0 {
		why = "unknown"
	}
	want := corev1.Taint{Key: v1alpha1.TaintClosed, Value: why, Effect: corev1.TaintEffectNoSchedule}
	nodes := n.cfg.Home.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && why == "":
			return nil
		case err != nil:
			return fmt.Errorf("mark node %s as closed: %w", n.cfg.NodeName, err)
		}
		is := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) })
		same := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) && t.Value == want.Value })
		if same || !is && why == "" {
			return nil
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) })
		if why != "" {
			node.Spec.Taints = append(node.Spec.Taints, want)
		}
		n.log.Info("whether the peer's nodes take pods changed", "closed", why)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}
