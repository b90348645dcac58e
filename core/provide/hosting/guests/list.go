package guests

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Guests lists the guests for the owner, refused ones too, by namespace and name.
func (r *Reconciler) Guests(ctx context.Context) ([]api.Guest, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, Selector); err != nil {
		return nil, fmt.Errorf("listing guests: %w", err)
	}
	var out []api.Guest
	for i := range pods.Items {
		pod := &pods.Items[i]
		g := api.Guest{
			Namespace: pod.Namespace, Name: pod.Name,
			Consumer: pod.Labels[v1alpha1.LabelConsumerName], ConsumerID: pod.Labels[v1alpha1.LabelConsumer],
			Phase: string(pod.Status.Phase), Why: whyPod(pod), Node: pod.Spec.NodeName,
			Resources: api.Resources{}, Created: pod.CreationTimestamp.Time,
		}
		g.ForID, g.For, _ = strings.Cut(pod.Annotations[v1alpha1.AnnotationFor], "/")
		for name, q := range requestsOf(pod) {
			g.Resources[string(name)] = q.String()
		}
		out = append(out, r.named(g))
	}
	for key, w := range r.allocations.RefusedPods() {
		out = append(out, r.named(api.Guest{Namespace: key.Namespace, Name: key.Name, Phase: "Refused", Why: w.No.Message, Resources: api.Resources{}}))
	}
	slices.SortFunc(out, func(a, b api.Guest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Phase, b.Phase))
	})
	return out, nil
}

// named fills in what the twin namespace says.
func (r *Reconciler) named(g api.Guest) api.Guest {
	if t := r.contracts.TermsIn(g.Namespace); t != nil {
		g.Consumer, g.ConsumerID = t.Consumer.Name, t.Consumer.Compact
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
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return fmt.Sprintf("container %s: %s", c.Name, w.Reason)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
