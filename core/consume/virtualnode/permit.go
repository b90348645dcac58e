package virtualnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	"kith.dev/core/consume/offloading"
)

// refusedAfter is the least age at which a pod that may not go to the peer is set to Failed: its controller replaces it at once, perhaps on the
// same node, and would otherwise fill the cluster with failed pods.
const refusedAfter = 10 * time.Second

// stays handles a pod that may not go to, or be at, the peer. If nobody evicts it, it is set to Failed, as by a kubelet that does not admit it.
func (n *Node) stays(ctx context.Context, home *corev1.Pod, permit offloading.Permit, why string) error {
	if permit == offloading.Ending {
		n.queue.AddAfter(keyOf(home), refusedAfter)
		return nil
	}
	status := view{home: home}.waiting(eventNotOffloaded, why)
	if left := time.Until(home.CreationTimestamp.Add(refusedAfter)); left > 0 {
		n.queue.AddAfter(keyOf(home), left)
	} else {
		status = endOf(home.Status, "", "")
		status.Phase, status.Reason, status.Message = corev1.PodFailed, eventNotOffloaded, why
		for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range statuses { // of which kubectl shows the reason
				if end := statuses[i].State.Terminated; end != nil && end.Reason == reasonUnknown {
					end.Reason, end.Message = eventNotOffloaded, why
				}
			}
		}
	}
	if home.Status.Reason != eventNotOffloaded || home.Status.Message != why {
		n.log.Warn("pod does not go abroad", "namespace", home.Namespace, "pod", home.Name, "why", why)
		n.record.Event(home, corev1.EventTypeWarning, eventNotOffloaded, why)
	}
	return n.write(ctx, home, status)
}

// movesAfter is how long a peer must have been asleep until its pods are evicted: a suspend that is told may be called off a moment later.
const movesAfter = 5 * time.Second

// moveOn evicts a pod from a peer that went to sleep, where its namespace does not wait. A pod that nobody makes again is left to its tolerations.
// So is one that was made since: it tolerates that the node is not ready, and the one made in its place would come here too.
func (n *Node) moveOn(ctx context.Context, home *corev1.Pod) error {
	there := n.now().there
	if there.State != presence.Suspended || n.cfg.Moves == nil || home.DeletionTimestamp != nil || ended(&home.Status) || metav1.GetControllerOf(home) == nil {
		return nil
	}
	if home.CreationTimestamp.After(there.Since) {
		return nil
	}
	moves, err := n.cfg.Moves(ctx, home.Namespace)
	if err != nil || !moves {
		return err
	}
	if left := movesAfter - time.Since(there.Since); left > 0 {
		n.queue.AddAfter(keyOf(home), left)
		return nil
	}
	n.log.Info("pod is evicted: the peer went to sleep", "namespace", home.Namespace, "pod", home.Name)
	n.record.Event(home, corev1.EventTypeNormal, eventMoved, n.cfg.PeerName+" went to sleep, and the namespace does not wait for it (whenAsleep: Move)")
	return client.IgnoreNotFound(n.cfg.Home.CoreV1().Pods(home.Namespace).Delete(ctx, home.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(home.UID))}))
}

// withdraw ends all pods at the peer, or waiting on its node, of a namespace that is not offloaded. k may be of the namespace alone.
func (n *Node) withdraw(ctx context.Context, k key, why string) error {
	home := n.Pod(k.namespace, k.name)
	if home != nil && home.DeletionTimestamp == nil && !ended(&home.Status) {
		if err := n.stays(ctx, home, offloading.Withdrawn, why); err != nil {
			return err
		}
	}
	t := n.twin(k.namespace)
	if t != nil && !n.terminating(t) && n.view.HasSynced() {
		used := n.view.OffloadedPods.Has(t.name)
		_, err, _ := n.opening.Do("/"+k.namespace, func() (any, error) { return nil, n.giveUp(ctx, t) }) // once for all pods of it
		if err != nil {
			return err
		}
		if used { // else its pods came home before
			n.log.Warn("the twin of a namespace that is not offloaded was given up, with pods in it", "namespace", k.namespace)
		}
	}
	switch {
	case home == nil, home.DeletionTimestamp == nil:
		return nil
	case !n.knows(), t != nil && n.view.OffloadedPods.Get(t.name, k.name) != nil:
		return nil // it is abroad, or may be; its end brings us back
	}
	return n.finish(ctx, home, nil)
}
