package virtualnode

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"kith.dev/core/consume/offloading"
)

// forceTimeout bounds what Retire still does after the grace.
const forceTimeout = 30 * time.Second

// Retire takes a virtual node out of the home cluster: it cordons it, evicts its pods and waits for them to
// end, as long as grace, which comes of ctx, allows; what remains then is deleted by force, and node and lease with it. The Node's Run
// should go on meanwhile, since it is what ends the pods abroad; with a peer that is gone for good give a
// grace that ends soon. When ctx ends first the pods that are left stay as they are, and so does the node, and that is an error.
// PodDisruptionBudgets are respected for half of the grace. keep is called with each pod before its eviction;
// while keep fails the pod stays. Idempotent.
func Retire(ctx, grace context.Context, home kubernetes.Interface, nodeName string, keep func(context.Context, *corev1.Pod) error, log *slog.Logger) error {
	if err := cordon(ctx, home, nodeName); err != nil {
		return err
	}
	patience := grace
	if deadline, ok := grace.Deadline(); ok {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(grace, time.Until(deadline)/2)
		defer cancel()
	}
	held := map[types.UID]bool{} // by disruption budgets
	stopped := ctx.Err
	drain := func(ctx context.Context, end func(context.Context, *corev1.Pod) error) error {
		return wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := stopped(); err != nil {
				return false, err
			}
			pods, err := podsOn(ctx, home, nodeName)
			if err != nil {
				return false, nil // the API server may be starting again
			}
			for i := range pods {
				if pods[i].DeletionTimestamp == nil {
					err := keep(ctx, &pods[i])
					if err == nil {
						err = end(ctx, &pods[i])
					}
					if apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) && !held[pods[i].UID] {
						held[pods[i].UID] = true
						log.Info("a disruption budget holds a pod at a peer that is left; it is asked again for a while",
							"namespace", pods[i].Namespace, "pod", pods[i].Name, "err", err)
					}
					if err != nil && !apierrors.IsNotFound(err) {
						log.Debug("pod does not leave yet", "namespace", pods[i].Namespace, "pod", pods[i].Name, "err", err)
					}
				}
			}
			return len(pods) == 0, nil
		})
	}
	err := drain(patience, func(ctx context.Context, pod *corev1.Pod) error {
		return home.CoreV1().Pods(pod.Namespace).EvictV1(ctx, offloading.Eviction(pod))
	})
	if err != nil {
		if len(held) > 0 && patience.Err() != nil && grace.Err() == nil {
			log.Warn("disruption budgets hold pods for longer than a peer that is left can wait; they are taken home all the same", "node", nodeName)
		}
		err = drain(grace, func(ctx context.Context, pod *corev1.Pod) error { return deletePod(ctx, home, pod, nil) })
	}

	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("retire node %s: %w", nodeName, ctx.Err())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
	defer cancel()
	if err != nil {
		if err := force(last, home, nodeName, keep, log); err != nil {
			return err
		}
	}
	if err := Remove(last, home, nodeName); err != nil {
		return err
	}
	// A scheduler that had not heard of the cordon may have bound one more: on a node that is no more it would stay for ever.
	return force(last, home, nodeName, keep, log)
}

// Remove deletes a virtual node and its lease; that they are not there is no error. It goes on after ctx ended.
func Remove(ctx context.Context, home kubernetes.Interface, nodeName string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
	defer cancel()
	if err := home.CoreV1().Nodes().Delete(ctx, nodeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", nodeName, err)
	}
	err := home.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, nodeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the lease of node %s: %w", nodeName, err)
	}
	return nil
}

// annotationRetiring is on a node that Retire cordoned, and not its owner.
const annotationRetiring = "kith.dev/retiring"

// cordon keeps new pods off the node. It goes on after ctx ended: pods that are made again would come straight back.
func cordon(ctx context.Context, home kubernetes.Interface, nodeName string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forceTimeout)
	defer cancel()
	node, err := home.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err == nil && !node.Spec.Unschedulable {
		patch := []byte(`{"metadata":{"annotations":{"` + annotationRetiring + `":"true"}},"spec":{"unschedulable":true}}`)
		_, err = home.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cordon node %s: %w", nodeName, err)
	}
	return nil
}

// uncordon undoes cordon, where a process that began to retire the node did not come to its end.
func (n *face) uncordon(ctx context.Context) error {
	err := n.changeNode(ctx, func(node *corev1.Node) (changed bool, _ error) {
		if _, is := node.Annotations[annotationRetiring]; !is {
			return false, nil
		}
		delete(node.Annotations, annotationRetiring)
		node.Spec.Unschedulable = false
		return true, nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("uncordon node %s: %w", n.cfg.NodeName, err)
	}
	return nil
}

// force deletes from the API server, without grace, the pods that did not end in time.
func force(ctx context.Context, home kubernetes.Interface, nodeName string, keep func(context.Context, *corev1.Pod) error, log *slog.Logger) error {
	pods, err := podsOn(ctx, home, nodeName)
	if err != nil {
		return fmt.Errorf("list the pods left on node %s: %w", nodeName, err)
	}
	for i := range pods {
		if err := keep(ctx, &pods[i]); err != nil {
			return err
		}
		log.Info("the pod's end at the peer is not waited for", "namespace", pods[i].Namespace, "pod", pods[i].Name)
		if err := deletePod(ctx, home, &pods[i], new(int64)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s by force: %w", pods[i].Namespace, pods[i].Name, err)
		}
	}
	return nil
}

func deletePod(ctx context.Context, home kubernetes.Interface, pod *corev1.Pod, grace *int64) error {
	return home.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

func podsOn(ctx context.Context, home kubernetes.Interface, nodeName string) ([]corev1.Pod, error) {
	list, err := home.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName).String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
