package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
)

// Reasons of the events on home pods; those of the guest come under their own names.
const (
	eventOffloadFailed = "OffloadFailed"
	eventStatusRefused = "StatusRefused"
	// eventRuntimeLeft: which runtime a pod has is the peer's matter, and it has another than it asks for.
	eventRuntimeLeft = "RuntimeClassLeftOut"
	// eventMoved: its peer went to sleep, and its namespace does not wait.
	eventMoved = "PeerWentToSleep"
	// eventNotOffloaded is the reason in the status too.
	eventNotOffloaded = "NotOffloaded"
)

// quietFailures is how many failures in a row are not reported: RBAC in a new twin takes a moment, and links fail for moments.
const quietFailures = 3

func (n *face) homePods() cache.ListerWatcher {
	pods := n.cfg.Home.CoreV1().Pods(metav1.NamespaceAll)
	return selected(n.cfg.Home, fields.OneTermEqualSelector("spec.nodeName", n.cfg.NodeName), pods.List, pods.Watch)
}

// reconcile takes the next step for one pod, or, with an empty name, for one twin. The event that each step causes triggers the next.
func (n *Node) reconcile(ctx context.Context, k key) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if k == ofNode {
		return errors.Join(n.markClosed(ctx), n.relabelAll(ctx))
	}
	t := n.twin(k.namespace)
	if k.name != "" && !n.seesPods() {
		return nil // each pod is queued when they are
	}
	permit, why, err := n.cfg.Permit(ctx, k.namespace)
	if err != nil {
		return err
	}
	switch {
	case permit == offloading.Withdrawn:
		return n.withdraw(ctx, k, why)
	case k.name == "":
		return n.review(ctx, k.namespace, permit)
	}

	home := n.Pod(k.namespace, k.name)
	if home != nil && n.frozen() {
		if err := n.write(ctx, home, unreachable(home.Status, n.cfg.PeerName, n.now().there)); err != nil {
			return err
		}
		if err := n.moveOn(ctx, home); err != nil {
			return err
		}
	}
	if home != nil && home.DeletionTimestamp == nil && !ended(&home.Status) && otherSystem(home, "linux") {
		return n.reject(ctx, home, reasonOtherSystem, "the pod is for "+string(home.Spec.OS.Name)+", the node's system is linux")
	}
	if t == nil {
		switch {
		case home == nil:
			return nil
		case home.DeletionTimestamp != nil && !n.knows():
			return nil // it may be abroad
		case home.DeletionTimestamp != nil:
			return n.finish(ctx, home, nil) // nothing of this namespace is abroad
		case home.DeletionTimestamp == nil && ended(&home.Status):
			return nil
		case permit != offloading.Granted && !n.knows():
			return nil // it may be abroad, where it may stay
		case permit != offloading.Granted:
			return n.stays(ctx, home, permit, why)
		}
		return n.failed(home, "get a namespace for the pod", n.Open(ctx, k.namespace))
	}
	if !n.view.HasSynced() {
		return nil // each pod is queued when it is
	}

	abroad := n.view.OffloadedPods.Get(t.name, k.name)
	switch decide(n.adapted(t, home), abroad) {
	case stepCreate:
		if permit != offloading.Granted {
			return n.stays(ctx, home, permit, why)
		}
		if n.terminating(t) {
			return nil // the end of the twin brings us back
		}
		return n.failed(home, "ask for the pod", n.create(ctx, t, home))
	case stepUpdate:
		return n.failed(home, "change the pod", n.update(ctx, n.adapted(t, home), abroad))
	case stepRemove:
		if home != nil && home.UID == abroad.Spec.HomeUID {
			// The status goes on while the containers end.
			return errors.Join(n.remove(ctx, home, abroad), n.report(ctx, t, home, abroad))
		}
		return n.removeStray(ctx, k, abroad)
	case stepFinish:
		return n.finish(ctx, home, t)
	case stepReport:
		return n.report(ctx, t, home, abroad)
	}
	return nil
}

// knows reports whether what is abroad was seen since the start: what is there now was made by this process.
func (n *Node) knows() bool {
	select {
	case <-n.view.Known():
		return true
	default:
		return false
	}
}

func (n *Node) create(ctx context.Context, t *twin, home *corev1.Pod) error {
	// A pod that ran abroad, is gone there and must not run twice has ended.
	if home.Status.StartTime != nil && home.Spec.RestartPolicy == corev1.RestartPolicyNever {
		_, err := n.offloaded.get(ctx, t.name, home.Name)
		if apierrors.IsNotFound(err) {
			return n.writeStatus(ctx, home, endOf(n.lastStatus(t, home), reasonLost, n.cfg.PeerName+" no longer has the pod"))
		}
		return err
	}
	if n.cfg.Companions != nil {
		err := n.cfg.Companions.Prepare(ctx, home)
		if not, ok := errors.AsType[*volumes.Elsewhere](err); ok {
			return n.reject(ctx, home, reasonNotSupported, not.Error())
		}
		if err != nil {
			return errors.Join(err, n.Open(ctx, t.home)) // the twin may be gone
		}
	}
	wanted := offloadedPod(n.adapted(t, home), t.name)
	var err error
	if wanted.Spec.Via, err = n.via(home); err != nil {
		return err
	}
	another := false // home's pod is a guest of another, and its RuntimeClass is what guests have here
	if n.cfg.Onward != nil {
		if onward, is := n.cfg.Onward(home.Namespace); is {
			another = true
			if err := onward.Known(home.Namespace); err != nil {
				return err
			}
			wanted.Spec.Chain = []v1alpha1.ChainLink{onward.Link}
		}
	}
	err = n.offloaded.create(ctx, wanted)
	switch {
	case err == nil:
		n.log.Info("pod goes abroad", "namespace", home.Namespace, "pod", home.Name)
		if class := ptr.Deref(home.Spec.RuntimeClassName, ""); class != "" && !another {
			n.record.Event(home, corev1.EventTypeWarning, eventRuntimeLeft, "RuntimeClass "+class+" is home's: "+n.cfg.PeerName+" runs the pod by the runtime that its owner gives guests")
		}
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // the watch has it in a moment
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		// The tenant was made anew, or its rights are still on their way.
		return errors.Join(err, n.Open(ctx, t.home))
	}
	return err
}

func (n *Node) update(ctx context.Context, home *corev1.Pod, abroad *v1alpha1.OffloadedPod) error {
	wanted := abroad.DeepCopy()
	wanted.Spec.Template = template(home)
	err := n.offloaded.update(ctx, wanted)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // its event is on the way
	}
	return err
}

// remove ends the pod abroad with the grace it has at home.
func (n *Node) remove(ctx context.Context, home *corev1.Pod, abroad *v1alpha1.OffloadedPod) error {
	if grace := graceWanted(home); grace != graceOf(abroad) {
		if err := n.offloaded.setGrace(ctx, abroad, grace); err != nil {
			return goneIsFine(err)
		}
	}
	if abroad.DeletionTimestamp != nil {
		return nil
	}
	return goneIsFine(n.offloaded.delete(ctx, abroad))
}

// removeStray ends what runs abroad for a pod that is no longer at home: it was deleted by force, or is another
// one of that name by now. What this cache says is asked again, since a mistake would end somebody's work.
func (n *Node) removeStray(ctx context.Context, k key, abroad *v1alpha1.OffloadedPod) error {
	home, err := n.cfg.Home.CoreV1().Pods(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look whether pod %s/%s is still at home: %w", k.namespace, k.name, err)
	case err == nil && home.UID == abroad.Spec.HomeUID && v1alpha1.AtPeer(home.Spec.NodeName, n.cfg.PeerName):
		return fmt.Errorf("pod %s/%s is at home, but not seen yet", k.namespace, k.name)
	}
	if err := goneIsFine(n.offloaded.delete(ctx, abroad)); err != nil {
		return err
	}
	n.log.Info("pod is no longer at home; taken away abroad", "namespace", k.namespace, "pod", k.name)
	return nil
}

// finish removes a home pod that is in deletion, once nothing of it runs at the peer. Its write of the status causes one more event before the
// pod is gone, which changes nothing.
func (n *Node) finish(ctx context.Context, home *corev1.Pod, t *twin) error {
	n.mu.Lock()
	done := n.finished[keyOf(home)] == home.UID
	n.mu.Unlock()
	if done {
		return nil
	}
	last := home.Status
	if t != nil {
		// It may have been made a moment ago, and not be seen yet.
		abroad, err := n.offloaded.get(ctx, t.name, home.Name)
		switch {
		case err == nil && abroad.Spec.HomeUID == home.UID:
			return fmt.Errorf("pod %s/%s is still abroad", home.Namespace, home.Name)
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("look whether pod %s/%s is still abroad: %w", home.Namespace, home.Name, err)
		}
		last = n.lastStatus(t, home)
	}
	if !ended(&home.Status) {
		// Controllers that wait for a pod's end, such as Jobs, read it here.
		if err := n.writeStatus(ctx, home, endOf(begun(home, last), "", "")); err != nil {
			return err
		}
	}
	opts := *metav1.NewDeleteOptions(0)
	opts.Preconditions = metav1.NewUIDPreconditions(string(home.UID))
	if err := goneIsFine(n.cfg.Home.CoreV1().Pods(home.Namespace).Delete(ctx, home.Name, opts)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Pod(home.Namespace, home.Name) != nil { // else the watch was faster
		n.finished[keyOf(home)] = home.UID
	}
	return nil
}

// report writes at home how the pod fares abroad.
func (n *Node) report(ctx context.Context, t *twin, home *corev1.Pod, abroad *v1alpha1.OffloadedPod) error {
	if abroad.Spec.HomeUID != home.UID {
		return nil
	}
	v := n.see(view{home: home, abroad: abroad, guest: n.view.Pods.Get(t.name, home.Name), tunnel: n.TunnelDown()})
	status, again := statusOf(v), error(nil)
	if abroad.Status.Phase == v1alpha1.OffloadedPodRefused && v.guest == nil && !ended(&status) {
		status, again = n.refuse(ctx, home, status)
	} else if v.guest != nil && !ended(&status) && !n.frozen() {
		status, again = n.unpullable(ctx, home, status)
	}
	n.tellRefusals(v, status)
	return errors.Join(n.writeStatus(ctx, home, status), again)
}

// tellRefusals says in events what is refused of what was asked or told, when the status says it for the first time: changes of a running
// pod by the peer, its address by home.
func (n *Node) tellRefusals(v view, status corev1.PodStatus) {
	before, now := condition(v.home.Status.Conditions, corev1.PodResizePending), condition(status.Conditions, corev1.PodResizePending)
	if v.refusal(v1alpha1.ConditionResizePending) != nil && now != nil && (before == nil || before.Message != now.Message) {
		n.record.Event(v.home, corev1.EventTypeWarning, "Resize"+now.Reason, now.Message)
	}
	was, is := condition(v.home.Status.Conditions, conditionForeign), condition(status.Conditions, conditionForeign)
	if is != nil && (was == nil || was.Message != is.Message) {
		n.log.Warn("a peer tells an address that is not for it to give", "namespace", v.home.Namespace, "pod", v.home.Name, "why", is.Message)
		n.record.Event(v.home, corev1.EventTypeWarning, reasonForeign, is.Message)
	}
	for _, s := range status.EphemeralContainerStatuses {
		known := slices.ContainsFunc(v.home.Status.EphemeralContainerStatuses, func(was corev1.ContainerStatus) bool { return was.Name == s.Name })
		if w := s.State.Waiting; !known && w != nil && v.refusal(v1alpha1.ConditionEphemeralContainersRefused) != nil {
			n.record.Event(v.home, corev1.EventTypeWarning, w.Reason, w.Message)
		}
	}
}

// writeStatus writes what is known of the pod, unless that is old because the peer cannot be reached.
func (n *Node) writeStatus(ctx context.Context, home *corev1.Pod, status corev1.PodStatus) error {
	if n.frozen() {
		return nil
	}
	return n.write(ctx, home, status)
}

func (n *Node) write(ctx context.Context, home *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(home.Status, status) {
		return nil
	}
	pod := *home
	pod.Status = status
	_, err := n.cfg.Home.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		// Containers that ended may not start again under most restart policies, yet those of a pod made again
		// do. The rest of the status matters more.
		pod.Status.ContainerStatuses = home.Status.ContainerStatuses
		pod.Status.InitContainerStatuses = home.Status.InitContainerStatuses
		if equality.Semantic.DeepEqual(home.Status, pod.Status) {
			return nil
		}
		_, err = n.cfg.Home.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
	}
	if apierrors.IsInvalid(err) {
		// Trying again would change nothing; the next change abroad may.
		n.log.Warn("home refuses the pod's status", "namespace", pod.Namespace, "pod", pod.Name, "err", err)
		n.record.Eventf(home, corev1.EventTypeWarning, eventStatusRefused, "cannot show the status from %s: %v", n.cfg.PeerName, err)
		return nil
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err // a conflict too: what was seen of the pod is old
}

// failed tells the pod's owner why it does not go on.
func (n *Node) failed(home *corev1.Pod, what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || n.queue.NumRequeues(keyOf(home)) < quietFailures {
		return err
	}
	n.record.Eventf(home, corev1.EventTypeWarning, eventOffloadFailed, "cannot %s at %s, will be tried again: %s", what, n.cfg.PeerName, why(err))
	return err
}

// why is the error without the URL that was asked, which means nothing to the pod's owner.
func why(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// goneIsFine: what was to be deleted is deleted, or another object of that name is there by now.
func goneIsFine(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
