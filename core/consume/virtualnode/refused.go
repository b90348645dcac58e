package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"kith.dev/core/api/v1alpha1"
)

// Reasons by which kubelets reject pods at admission; the second comes from the peer.
const (
	reasonOtherSystem = "PodOSNotSupported"
	reasonSysctl      = "SysctlForbidden"
)

// reasonPodSecurity is the peer's word: the pod is beyond the level that it allows.
const reasonPodSecurity = "PodSecurity"

// reasonNotSupported is the peer's word, too: what the pod has is not to be had there.
const reasonNotSupported = "NotSupported"

// reasonUnpulled: the peer cannot get an image of the pod, for longer than a moment.
const reasonUnpulled = "ImageNotPulled"

// lasting are the reasons of refusals that apply to every pod like this one, until the peer's policy changes.
var lasting = []string{reasonPodSecurity, reasonNotSupported, "ImageNotAllowed", "Invalid", reasonUnpulled, reasonSysctl, reasonOtherSystem}

const (
	// noteSpreads is how long the API server's admission may take to see the note that new pods of a controller avoid this peer.
	noteSpreads = time.Second
	// cameAnyway: if a pod created so long after the note came here again, the note has no effect, and replacements would follow for ever.
	cameAnyway = 5 * time.Second
)

// refuse writes an event that the pod may not run here, and returns its new status. no is the status of a pod that stays pending, with the
// reason; it is also returned beside an error, after which refuse should be called again.
//
// A bound pod cannot move to another node: only a replacement can. So a pod that has a controller, and that some other node would take, is set
// to Failed, as by a kubelet that does not admit it, and the next pods of that controller avoid this node. Other pods stay pending, since
// nobody would recreate them and the peer's policy may change; but what any kubelet would reject is set to Failed.
func (n *Node) refuse(ctx context.Context, home *corev1.Pod, no corev1.PodStatus) (corev1.PodStatus, error) {
	if no.Reason != home.Status.Reason || no.Message != home.Status.Message {
		n.record.Event(home, corev1.EventTypeWarning, no.Reason, no.Message)
	}
	owner := metav1.GetControllerOf(home)
	if owner == nil {
		if no.Reason == reasonSysctl || no.Reason == reasonOtherSystem {
			no.Phase = corev1.PodFailed
		}
		return no, nil
	}
	if n.cfg.Avoid == nil || !slices.Contains(lasting, no.Reason) || home.DeletionTimestamp != nil {
		return no, nil
	}
	if elsewhere, err := n.elsewhere(ctx, home); err != nil || !elsewhere {
		return no, err
	}
	since, err := n.cfg.Avoid(ctx, home.Namespace, owner.UID)
	if err != nil || home.CreationTimestamp.After(since.Add(cameAnyway)) {
		return no, err
	}
	if left := time.Until(since.Add(noteSpreads)); left > 0 {
		n.queue.AddAfter(keyOf(home), left)
		return no, nil
	}
	n.log.Info("pod is refused; the next of its controller goes elsewhere", "namespace", home.Namespace, "pod", home.Name, "reason", no.Reason)
	no.Phase = corev1.PodFailed
	// Jobs with a failure policy for disruptions (KEP-3329) do not count it.
	setCondition(&no, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: no.Reason, Message: no.Message,
		LastTransitionTime: metav1.Now()})
	return no, nil
}

// elsewhere reports whether another node takes pods like this one, as far as selectors, affinity and taints go.
func (n *Node) elsewhere(ctx context.Context, pod *corev1.Pod) (bool, error) {
	nodes, err := n.cfg.Home.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return false, fmt.Errorf("look for another node for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	return slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
		if v1alpha1.AtPeer(node.Name, n.cfg.PeerName) || node.Spec.Unschedulable || otherSystem(pod, node.Labels[corev1.LabelOSStable]) {
			return false
		}
		if match, err := required.Match(&node); err != nil || !match {
			return false
		}
		_, closed := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)
		return !closed
	}), nil
}

// otherSystem reports whether the pod says that it is for another operating system than this one.
func otherSystem(pod *corev1.Pod, system string) bool {
	return pod.Spec.OS != nil && string(pod.Spec.OS.Name) != system
}

// reject has a pod that no peer could run refused without asking there.
func (n *Node) reject(ctx context.Context, home *corev1.Pod, reason, why string) error {
	status, again := n.refuse(ctx, home, view{home: home}.waiting(reason, why))
	return errors.Join(n.write(ctx, home, status), again)
}
