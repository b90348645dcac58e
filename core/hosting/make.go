package hosting

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const (
	passing    = 30 * time.Second // how long a cause that may pass is waited for before the pod is refused
	retryLater = 30 * time.Second // and how often a refusal by the API server is put to it again
	cacheLag   = 10 * time.Second // for so long after making a Pod its absence from the cache proves nothing

	cacheMoment = 250 * time.Millisecond // and for so long it is not even worth a question
)

// make makes the Pod, the first time or again, if contract and security level let it.
func (r *reconciler) make(ctx context.Context, o *one) (ctrl.Result, error) {
	t, err := r.contracts.ofNamespace(ctx, o.key.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if t == nil {
		return r.refuse(ctx, o, "", refused(reasonNoContract, "no contract covers namespace %s", o.key.Namespace))
	}
	if !t.inForce(r.now()) {
		return r.refuse(ctx, o, t.contract, refused(reasonNoContract, "contract %s is not in force: %s", t.contract, t.why))
	}
	m := r.memo(o.key)
	again := o.opod.Status.PodUID != "" || m.remakes > 0
	if again {
		if r.now().Sub(m.made) > forgiven {
			m.remakes = 0
		}
		if wait := max(remakeDelay(m.remakes), cacheMoment) - r.now().Sub(m.made); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	pod := podFor(o.opod, t)
	r.resolver.Resolve(&pod.Spec, r.contracts.homeOf(o.key.Namespace))
	if no := r.checker.check(pod, t.level); no != nil {
		return r.refuse(ctx, o, t.contract, no)
	}
	if no := checkImages(&pod.Spec, t.images); no != nil {
		return r.refuse(ctx, o, t.contract, no)
	}
	if no := r.book.admit(o.key, t.contract, requestsOf(pod), t.limit); no != nil {
		return r.refuse(ctx, o, t.contract, no)
	}
	if err := r.hold(ctx, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // gone: the news of that is on its way
	}
	r.putBehind(pod)
	if err := r.client.Create(ctx, pod, client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return r.notMade(ctx, o, t, err)
	}
	if o.pod = pod; r.outside(pod) { // something here took it away
		return ctrl.Result{RequeueAfter: time.Second}, r.expel(ctx, o)
	}
	m.made, m.refused, m.written = r.now(), time.Time{}, r.memo(o.key).written
	if again {
		m.remakes++
		r.log.Info("guest made again", "peer", t.consumer.Name, "namespace", pod.Namespace, "pod", pod.Name)
		r.event(o.raw, corev1.EventTypeNormal, "Remade", "the pod was lost and made again")
	}
	m.uid, m.synced, m.podVersion = pod.UID, o.opod.Generation, ""
	if len(o.opod.Spec.Template.Spec.EphemeralContainers) > 0 {
		m.synced = 0 // they cannot be part of a new pod, and are added when it is seen
	}
	r.remember(o.key, m)
	o.pod = pod
	return ctrl.Result{}, r.accepted(ctx, o, nil)
}

// hold puts the finalizer on, if the consumer did not: no Pod without one.
func (r *reconciler) hold(ctx context.Context, o *one) error {
	if held(o.opod) {
		return nil
	}
	return r.setFinalizers(ctx, o, append(o.opod.Finalizers, v1alpha1.FinalizerOffloadedPod))
}

// setFinalizers is bound to the version that was read, so it overwrites nobody.
func (r *reconciler) setFinalizers(ctx context.Context, o *one, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": finalizers, "resourceVersion": o.raw.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	if err := r.client.Patch(ctx, o.raw, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	r.wrote(o)
	return nil
}

// notMade sorts out why the API server did not take the Pod.
func (r *reconciler) notMade(ctx context.Context, o *one, t *terms, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.inTheWay(ctx, o, t)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		r.release(o.key, nil)
		return ctrl.Result{}, nil // the namespace takes the OffloadedPod along
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return r.refuse(ctx, o, t.contract, refused(reasonInvalid, "%v", err))
	case apierrors.IsForbidden(err):
		return r.forbidden(ctx, o, t, err)
	default:
		return ctrl.Result{}, fmt.Errorf("making pod %s: %w", keyOf(o.opod), err)
	}
}

// inTheWay: a Pod of the name exists. Ours will turn up in the cache; somebody else's is left alone.
func (r *reconciler) inTheWay(ctx context.Context, o *one, t *terms) (ctrl.Result, error) {
	var pod corev1.Pod
	err := r.live.Get(ctx, o.key, &pod)
	if err == nil && pod.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return r.refuse(ctx, o, t.contract, refused(reasonNameTaken, "a Pod %s that Kith did not make is in namespace %s", o.key.Name, o.key.Namespace))
	}
	if err == nil {
		r.count(&pod) // it is there, with what it asked for
	}
	return ctrl.Result{RequeueAfter: time.Second}, client.IgnoreNotFound(err)
}

// forbidden: some causes pass within moments, namely a namespace so new that its service account is missing, a
// quota (of the owner's own) whose use is not counted yet, or not counted down yet, and a RuntimeClass that somebody took away.
func (r *reconciler) forbidden(ctx context.Context, o *one, t *terms, err error) (ctrl.Result, error) {
	text := err.Error()
	quota := strings.Contains(text, "exceeded quota") || strings.Contains(text, "status unknown for quota")
	account, class := strings.Contains(text, "error looking up service account"), r.class != "" && strings.Contains(text, "RuntimeClass")
	no := refused(reasonForbidden, "%v", err)
	if strings.Contains(text, "no PriorityClass with name "+v1alpha1.GuestPriorityClass) { // somebody took it away
		if err := r.client.Apply(ctx, guestPriority(), client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership); err != nil {
			return ctrl.Result{}, fmt.Errorf("installing PriorityClass %s: %w", v1alpha1.GuestPriorityClass, err)
		}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	switch {
	case quota:
		no.reason = reasonQuota
	case strings.Contains(text, "violates PodSecurity"):
		no.reason = reasonPodSecurity
	}
	if quota || account || class {
		m := r.memo(o.key)
		if m.refused.IsZero() {
			m.refused = r.now()
			r.remember(o.key, m)
		}
		if since := r.now().Sub(m.refused); since < passing {
			r.log.Debug("guest waits for its namespace", "namespace", o.key.Namespace, "pod", o.key.Name, "since", since, "err", err)
			return ctrl.Result{RequeueAfter: max(20*time.Millisecond, min(since/2, 2*time.Second))}, nil
		}
	}
	return r.refuse(ctx, o, t.contract, no)
}

// leave ends the Pod of an OffloadedPod that is being deleted and lets go of it once the Pod is gone. A Pod that is no
// longer its own, or that the consumer took our finalizer from, keeps its place under the contract until it is gone.
func (r *reconciler) leave(ctx context.Context, o *one, how standing) (ctrl.Result, error) {
	var err error
	if how == absent {
		if o.pod, err = r.justMade(ctx, o.key, nil); err != nil {
			return ctrl.Result{}, err
		}
		how = standingOf(o.opod, o.pod)
	}
	switch {
	case how == stale:
		err = r.deleteLeft(ctx, o.pod)
	case how != absent && how != foreign:
		return ctrl.Result{}, r.deleteFor(ctx, o)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if held(o.opod) {
		var rest []string
		for _, f := range o.opod.Finalizers {
			if f != v1alpha1.FinalizerOffloadedPod {
				rest = append(rest, f)
			}
		}
		if err := r.setFinalizers(ctx, o, rest); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if how == stale {
		return ctrl.Result{}, nil
	}
	r.book.settle(o.key)
	r.forget(o.key)
	r.release(o.key, nil)
	return ctrl.Result{}, nil
}

// deleteFor deletes the Pod with the grace period the consumer asked for, again when it asks for a shorter
// one, and within endGrace when no contract protects it any more.
func (r *reconciler) deleteFor(ctx context.Context, o *one) error {
	grace := graceAsked(o.opod)
	t, err := r.contracts.ofNamespace(ctx, o.key.Namespace)
	if err != nil {
		return err
	}
	if most := int64(endGrace / time.Second); !t.inForce(r.now()) {
		own := o.pod.Spec.TerminationGracePeriodSeconds
		if (grace == nil && own != nil && *own > most) || (grace != nil && *grace > most) {
			grace = &most
		}
	}
	running := o.pod.DeletionGracePeriodSeconds
	if o.pod.DeletionTimestamp != nil && (grace == nil || running == nil || *running <= *grace) {
		return nil
	}
	return r.delete(ctx, o.pod, grace)
}

func (r *reconciler) delete(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	opts := &client.DeleteOptions{GracePeriodSeconds: grace, Preconditions: preconditions(pod)}
	err := r.client.Delete(ctx, pod, opts)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one by now: its events bring us back
	}
	return err
}
