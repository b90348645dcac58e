package virtualnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionUnpulled is on a home pod while the peer's kubelet cannot get an image of it, since it first could not.
const conditionUnpulled corev1.PodConditionType = "kith.dev/ImageNotPulled"

// unpulledFor is how long a pod is left at a peer whose kubelet cannot get its image: four tries, as the kubelet makes them.
const unpulledFor = 2 * time.Minute

// Reasons for which a container waits, as kubelets say them (k8s.io/kubernetes/pkg/kubelet/images).
const (
	reasonNeverPull   = "ErrImageNeverPull" // by imagePullPolicy, and it is not there
	reasonPullFailed  = "ErrImagePull"
	reasonPullBackOff = "ImagePullBackOff"
	reasonNoRegistry  = "RegistryUnavailable"
)

// unpulled is the container that waits for an image which cannot be got, and why; nil when there is none.
func unpulled(s *corev1.PodStatus) (image string, why *corev1.ContainerStateWaiting) {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			switch w.Reason {
			case reasonNeverPull, reasonPullFailed, reasonPullBackOff, reasonNoRegistry:
				return c.Image, w
			}
		}
	}
	return "", nil
}

// Unpulled is the image that keeps a pod of home from starting at its peer, since when, and why, in the words of the kubelet there; "" when none does.
func Unpulled(home *corev1.Pod) (image string, since time.Time, why string) {
	c := condition(home.Status.Conditions, conditionUnpulled)
	if c == nil {
		return "", since, ""
	}
	image, w := unpulled(&home.Status)
	if w == nil {
		return "", since, ""
	}
	return image, c.LastTransitionTime.Time, w.Message
}

// notePulls says in a condition that an image cannot be got, or takes that back.
func (v view) notePulls(s *corev1.PodStatus) {
	image, why := unpulled(s)
	if why == nil || ended(s) {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionUnpulled })
		return
	}
	reason := why.Reason
	if reason == reasonPullBackOff {
		reason = reasonPullFailed // kubelets say them by turns
	}
	setCondition(s, corev1.PodCondition{Type: conditionUnpulled, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(),
		Message: fmt.Sprintf("%s cannot get the image %s", v.peer, image)})
}

// unpullable lets go of a pod whose image the peer cannot get, as of one that it refuses: nothing says that it ever can. Tries that were made
// while home, which may be the only place that has the image, could not be reached do not count.
func (n *Node) unpullable(ctx context.Context, home *corev1.Pod, status corev1.PodStatus) (corev1.PodStatus, error) {
	c := condition(status.Conditions, conditionUnpulled)
	there := n.now().there
	image, _ := unpulled(&status)
	if c == nil || !there.Reachable() || metav1.GetControllerOf(home) == nil {
		return status, nil
	}
	since := c.LastTransitionTime.Time
	if there.Since.After(since) {
		since = there.Since
	}
	left := time.Until(since.Add(unpulledFor))
	if left <= 0 && n.cfg.Taking != nil && n.cfg.Taking(image) { // a try that goes well looks like the last one that did not
		left = unpulledFor
	}
	if left > 0 && c.Reason != reasonNeverPull {
		n.queue.AddAfter(keyOf(home), left)
		return status, nil
	}
	no := status
	no.Reason, no.Message = reasonUnpulled, c.Message // the containers' statuses say why
	return n.refuse(ctx, home, no)
}
