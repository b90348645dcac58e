package mode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
)

// kin is what a pod is to a drain.
type kin int

const (
	stays kin = iota // it is not the owner's, belongs to the node, or has ended
	again            // what made it makes it again after the tether
	loose            // nobody would make it again
)

// kinOf says what a pod is to a drain.
func kinOf(pod *corev1.Pod) kin {
	switch {
	case pod.Labels[v1alpha1.LabelConsumer] != "", pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy,
		strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix), v1alpha1.Ended(pod.Status.Phase):
		return stays
	}
	switch pod.Namespace {
	case metav1.NamespaceSystem, "kube-public", corev1.NamespaceNodeLease, "kith", "kith-system":
		return stays
	}
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return loose
	case owner.Kind == "DaemonSet", owner.Kind == "Node": // the latter of mirrors of static pods
		return stays
	}
	return again
}

const (
	drainSlack = 30 * time.Second // beyond the longest grace period
	drainMost  = 10 * time.Minute
	drainLook  = 250 * time.Millisecond
)

// drain ends the owner's pods that something makes again after the tether. What makes them is stopped by now.
func (m *Machine) drain(ctx context.Context, j *journal) error {
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	done, err := m.ends(ctx, c, c.Client, j)
	if err == nil && done { // the cache may be behind
		_, err = m.ends(ctx, c, c.Fresh, j)
	}
	return err
}

// ends ends what a drain ends of the pods that are seen, and reports whether there are none.
func (m *Machine) ends(ctx context.Context, c *Cluster, seen client.Reader, j *journal) (done bool, err error) {
	var pods corev1.PodList
	if err := seen.List(ctx, &pods); err != nil {
		return false, fmt.Errorf("list the pods of this laptop: %w", err)
	}
	var left []string
	var grace int64
	for i := range pods.Items {
		pod := &pods.Items[i]
		if kinOf(pod) != again {
			continue
		}
		left = append(left, pod.Namespace+"/"+pod.Name)
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = max(grace, *pod.Spec.TerminationGracePeriodSeconds)
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := c.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("end the pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if len(left) == 0 {
		return true, nil
	}
	if limit := min(time.Duration(grace)*time.Second+drainSlack, drainMost); time.Since(m.began) > limit {
		return false, &failed{code: api.CodeTimeout, why: fmt.Sprintf("%s did not end in %v", some(left, len(left)), limit),
			do: "end them, or tether with --local-workloads=keep"}
	}
	return false, &waiting{why: some(left, len(left)) + " are ended", after: drainLook}
}

// some names up to four of a list of so many.
func some(names []string, all int) string {
	slices.Sort(names)
	shown := names[:min(len(names), 4)]
	if more := all - len(shown); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(shown, ", "), more)
	}
	return strings.Join(shown, ", ")
}

// guests are the pods of the company that run here; ending: those too that are being ended.
func (m *Machine) guests(ctx context.Context, c *Cluster, j *journal, ending bool) (names []string, err error) {
	id, err := identity.ParseID(j.ID)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelConsumer: id.Compact()}); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", j.Peer, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; (ending || pod.DeletionTimestamp == nil) && !v1alpha1.Ended(pod.Status.Phase) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	return names, nil
}

// cutting is the journal with the guests of the company that run now; nil when it has them already, or there are none.
func (m *Machine) cutting(ctx context.Context, c *Cluster, j *journal) (*journal, error) {
	if len(j.Cut) > 0 {
		return nil, nil
	}
	names, err := m.guests(ctx, c, j, false)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	next := *j
	next.Cut = names[:min(len(names), maxNamed)]
	next.CutMore = len(names) - len(next.Cut)
	return &next, nil
}
