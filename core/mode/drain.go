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
	"kith.dev/core/trust/identity"
)

// drainClass says how a drain treats a pod.
type drainClass int

const (
	drainIgnore drainClass = iota // left alone: a guest, a pod of the node or of Kith, or one that has ended
	drainEnd                      // ended: its controller recreates it after the tether
	drainOrphan                   // it has no controller, so it would be lost
)

func drainClassOf(pod *corev1.Pod) drainClass {
	switch {
	case pod.Labels[v1alpha1.LabelConsumer] != "", pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy,
		strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix), v1alpha1.Ended(pod.Status.Phase):
		return drainIgnore
	}
	switch pod.Namespace {
	case metav1.NamespaceSystem, "kube-public", corev1.NamespaceNodeLease, "kith", "kith-system":
		return drainIgnore
	}
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return drainOrphan
	case owner.Kind == "DaemonSet", owner.Kind == "Node": // the latter of mirrors of static pods
		return drainIgnore
	}
	return drainEnd
}

const (
	drainSlack = 30 * time.Second // how long a drain waits beyond the longest grace period
	drainMost  = 10 * time.Minute // and at most in all
	drainLook  = 250 * time.Millisecond
)

// drain deletes the owner's pods that a controller will recreate after the tether. The controllers are stopped by now.
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

// ends deletes the pods in seen that a drain ends. done: there are none left.
func (m *Machine) ends(ctx context.Context, c *Cluster, seen client.Reader, j *journal) (done bool, err error) {
	var pods corev1.PodList
	if err := seen.List(ctx, &pods); err != nil {
		return false, fmt.Errorf("list the pods of this laptop: %w", err)
	}
	var left []string
	var grace int64
	for i := range pods.Items {
		pod := &pods.Items[i]
		if drainClassOf(pod) != drainEnd {
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

// guests names the company's pods that run here; with ending, also those being deleted.
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

// cutting gives the journal with the names of the company's pods that run now and are about to be cut off; nil when it names some
// already, or there are none.
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
