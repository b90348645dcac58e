package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

const (
	passing    = 30 * time.Second // how long a cause that may pass is waited for before the pod is refused
	retryLater = 30 * time.Second // and how often a refusal by the API server is put to it again
)

// apply does what was decided, in order; a refusal takes the place of all that would follow it.
func (r *Reconciler) apply(ctx context.Context, o *observed, steps []step) (result ctrl.Result, err error) {
	if o.pod != nil && o.terms != nil && !over(o.pod) { // what is there has its place, whatever its OffloadedPod became
		r.allocations.Enter(o.key, o.terms.Contract, o.pod.Annotations[v1alpha1.AnnotationVia], requestsOf(o.pod))
	}
	if o.raw == nil {
		r.allocations.ForgetRefused(o.key)
	}
	for _, s := range steps {
		switch s.do {
		case again:
			result.RequeueAfter = s.after
		case count:
			r.Wake(r.allocations.Correct(o.key, requestsOf(o.pod)))
		case admit:
			if no := r.allocations.AdmitTo(o.key, o.terms.Contract, o.terms.PartOf(o.opod.Spec.Via), requestsOf(s.pod), o.terms.Limit); no != nil {
				return r.refuse(ctx, o, no)
			}
		case hold:
			err = r.setFinalizers(ctx, o, append(o.opod.Finalizers, v1alpha1.FinalizerOffloadedPod))
			if apierrors.IsNotFound(err) { // the news of that is on its way
				return ctrl.Result{}, nil
			}
		case create:
			result, err = r.create(ctx, o, s)
		case adjust:
			err = r.adjust(ctx, o, s.change)
		case room:
			err = r.makeRoom(ctx, o)
		case lessen:
			err = r.lessen(ctx, o)
		case expel:
			err = r.expel(ctx, o)
		case remove:
			if s.how == lost {
				r.log.Info("guest lost, making it again", "namespace", o.pod.Namespace, "pod", o.pod.Name, "reason", o.pod.Status.Reason)
			}
			err = r.remove(ctx, o.pod, s.grace)
		case refuse:
			result, err = r.refuse(ctx, o, s.no)
		case finish:
			err = r.finish(ctx, o, s)
		case release:
			r.release(o.key, o.pod)
		case unhold:
			others := slices.DeleteFunc(slices.Clone(o.opod.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerOffloadedPod })
			err = client.IgnoreNotFound(r.setFinalizers(ctx, o, others))
		case forget:
			r.allocations.ForgetRefused(o.key)
			r.release(o.key, nil)
			r.forgetEvicted(o.key)
			o.record = record{}
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return result, nil
}

// setFinalizers is bound to the version that was read, so it overwrites nobody.
func (r *Reconciler) setFinalizers(ctx context.Context, o *observed, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": finalizers, "resourceVersion": o.raw.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	if err := r.client.Patch(ctx, o.raw, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	o.record.written = o.raw.GetResourceVersion()
	return nil
}

// create makes the Pod.
func (r *Reconciler) create(ctx context.Context, o *observed, s step) (ctrl.Result, error) {
	if r.Translated {
		if err := r.leadHome(ctx, s.pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.client.Create(ctx, s.pod, client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return r.notMade(ctx, o, err)
	}
	if o.pod = s.pod; r.outside(o.pod) { // something here took it away
		return ctrl.Result{RequeueAfter: time.Second}, r.expel(ctx, o)
	}
	m := &o.record
	m.made, m.refused, m.remakes = r.now(), time.Time{}, s.remakes
	if s.remakes > 0 {
		r.log.Info("guest made again", "peer", o.terms.Consumer.Name, "namespace", o.key.Namespace, "pod", o.key.Name)
		r.event(o.raw, corev1.EventTypeNormal, "Remade", "the pod was lost and made again")
	}
	m.uid, m.synced, m.podVersion = o.pod.UID, o.opod.Generation, ""
	if len(o.opod.Spec.Template.Spec.EphemeralContainers) > 0 {
		m.synced = 0 // they cannot be part of a new pod, and are added when it is seen
	}
	return ctrl.Result{}, r.accepted(ctx, o, nil)
}

// notMade sorts out why the API server did not take the Pod.
func (r *Reconciler) notMade(ctx context.Context, o *observed, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.inTheWay(ctx, o)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		r.release(o.key, nil)
		return ctrl.Result{}, nil // the namespace takes the OffloadedPod along
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return r.refuse(ctx, o, grants.Refused(grants.ReasonInvalid, "%v", err))
	case apierrors.IsForbidden(err):
		return r.forbidden(ctx, o, err)
	default:
		return ctrl.Result{}, fmt.Errorf("making pod %s: %w", o.key, err)
	}
}

// inTheWay: a Pod of the name exists. Ours will turn up in the cache; somebody else's is left alone.
func (r *Reconciler) inTheWay(ctx context.Context, o *observed) (ctrl.Result, error) {
	var pod corev1.Pod
	err := r.live.Get(ctx, o.key, &pod)
	if err == nil && pod.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return r.refuse(ctx, o, nameTaken(o.key))
	}
	if err == nil && !over(&pod) {
		r.allocations.Enter(o.key, o.terms.Contract, pod.Annotations[v1alpha1.AnnotationVia], requestsOf(&pod)) // it is there, with what it asked for
	}
	return ctrl.Result{RequeueAfter: time.Second}, client.IgnoreNotFound(err)
}

// forbidden: some causes pass within moments, namely a namespace so new that its service account is missing, a
// quota (of the owner's own) whose use is not counted yet, or not counted down yet, and a RuntimeClass that somebody took away.
func (r *Reconciler) forbidden(ctx context.Context, o *observed, err error) (ctrl.Result, error) {
	text := err.Error()
	quota := strings.Contains(text, "exceeded quota") || strings.Contains(text, "status unknown for quota")
	account, class := strings.Contains(text, "error looking up service account"), r.Class != "" && strings.Contains(text, "RuntimeClass")
	no := grants.Refused(grants.ReasonForbidden, "%v", err)
	if strings.Contains(text, "no PriorityClass with name "+v1alpha1.GuestPriorityClass) { // somebody took it away
		if err := r.client.Apply(ctx, Priority(), client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership); err != nil {
			return ctrl.Result{}, fmt.Errorf("installing PriorityClass %s: %w", v1alpha1.GuestPriorityClass, err)
		}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	switch {
	case quota:
		no.Reason = grants.ReasonQuota
	case strings.Contains(text, "violates PodSecurity"):
		no.Reason = grants.ReasonPodSecurity
	}
	if quota || account || class {
		if o.record.refused.IsZero() {
			o.record.refused = o.now
		}
		if since := r.now().Sub(o.record.refused); since < passing {
			r.log.Debug("guest waits for its namespace", "namespace", o.key.Namespace, "pod", o.key.Name, "since", since, "err", err)
			return ctrl.Result{RequeueAfter: max(20*time.Millisecond, min(since/2, 2*time.Second))}, nil
		}
	}
	return r.refuse(ctx, o, no)
}

// expel deletes a guest that is outside the fence, or astray, at once. It is made again, ever more slowly if that does not help.
func (r *Reconciler) expel(ctx context.Context, o *observed) error {
	o.record.made, o.record.remakes = r.now(), o.record.remakes+1
	reason, why := "Unfenced", "the pod was not behind the fence: its RuntimeClass or its label was taken away; it is deleted and made again"
	switch {
	case r.outside(o.pod):
	case o.beside && unstarted(o.pod):
		why = "node " + o.pod.Spec.NodeName + " has no fence that is alive, and the pod has not started there; it is deleted and made again"
	default:
		reason, why = "Astray", "the pod has an address out of a range that was agreed on before; it is deleted and made again"
	}
	r.log.Warn("guest is deleted, and made again", "namespace", o.key.Namespace, "pod", o.key.Name,
		"class", ptr.Deref(o.pod.Spec.RuntimeClassName, ""), "address", o.pod.Status.PodIP, "why", why)
	r.event(o.raw, corev1.EventTypeWarning, reason, "%s", why)
	return r.remove(ctx, o.pod, ptr.To(int64(1)))
}

func (r *Reconciler) remove(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	err := r.client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: grace}, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one by now: its events bring us back
	}
	return err
}

// finish records the end of a pod.
func (r *Reconciler) finish(ctx context.Context, o *observed, s step) error {
	status := o.endOf(s.pod, s.how)
	if err := r.writeStatus(ctx, o, status); err != nil {
		return err
	}
	if s.how == evicted { // a kubelet says so itself
		r.log.Info("guest evicted", "namespace", o.key.Namespace, "pod", o.key.Name, "why", status.Message)
		r.event(s.pod, corev1.EventTypeWarning, status.Reason, "%s", status.Message)
	}
	r.release(o.key, nil)
	return nil
}

// release frees the pod's place and has those tried again that wait for one; not while a Pod of that name runs, whose
// end brings us back.
func (r *Reconciler) release(key types.NamespacedName, pod *corev1.Pod) {
	if pod == nil || over(pod) {
		r.Wake(r.allocations.Release(key))
	}
}
