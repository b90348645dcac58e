package guests

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// Guest is a pod of a consumer on this cluster.
type Guest struct {
	Namespace, Name string
	Consumer        string // name of the Peer
	ConsumerID      string // compact form of the cluster ID
	Contract        string // contract ID
	Phase           string // Pending, Running, Succeeded, Failed, Unknown or Refused
	Why             string
	Node            string
	IPs             []string
	Requests        corev1.ResourceList
	Created         metav1.Time
}

const phaseRefused = "Refused"

// Guests lists the guests for the owner, refused ones too, by namespace and name.
func (r *Reconciler) Guests(ctx context.Context) ([]Guest, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, Selector); err != nil {
		return nil, fmt.Errorf("listing guests: %w", err)
	}
	var out []Guest
	for i := range pods.Items {
		pod := &pods.Items[i]
		g := Guest{
			Namespace: pod.Namespace, Name: pod.Name,
			Consumer: pod.Labels[v1alpha1.LabelConsumerName], ConsumerID: pod.Labels[v1alpha1.LabelConsumer],
			Phase: string(pod.Status.Phase), Why: whyPod(pod), Node: pod.Spec.NodeName,
			Requests: requestsOf(pod), Created: pod.CreationTimestamp,
		}
		for _, ip := range pod.Status.PodIPs {
			g.IPs = append(g.IPs, ip.IP)
		}
		out = append(out, r.named(g))
	}
	for key, w := range r.book.RefusedPods() {
		out = append(out, r.named(Guest{
			Namespace: key.Namespace, Name: key.Name, Phase: phaseRefused, Why: w.No.Message, Contract: w.Contract,
		}))
	}
	slices.SortFunc(out, func(a, b Guest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Phase, b.Phase))
	})
	return out, nil
}

// named fills in what the twin namespace says.
func (r *Reconciler) named(g Guest) Guest {
	if t := r.contracts.Look(g.Namespace); t != nil {
		g.Consumer, g.ConsumerID, g.Contract = t.Consumer.Name, t.Consumer.Compact, t.Contract
	}
	return g
}

// whyPod is the shortest word on why a pod is not simply running.
func whyPod(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	if pod.Status.Reason != "" {
		return cmp.Or(pod.Status.Message, pod.Status.Reason)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range statuses {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return fmt.Sprintf("container %s: %s", c.Name, w.Reason)
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
