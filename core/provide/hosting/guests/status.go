package guests

import (
	"context"
	"fmt"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

// accepted says that the Pod is there, and what of its template it is refused.
func (r *Reconciler) accepted(ctx context.Context, o *observed, refused []metav1.Condition) error {
	status := *o.opod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = v1alpha1.OffloadedPodAccepted, "", ""
	countPod(&status, o.pod.UID)
	for _, kind := range []string{v1alpha1.ConditionResizePending, v1alpha1.ConditionEphemeralContainersRefused} {
		no := meta.FindStatusCondition(refused, kind)
		if no == nil {
			meta.RemoveStatusCondition(&status.Conditions, kind)
			continue
		}
		no.ObservedGeneration, no.Message = o.opod.Generation, grants.Cut(no.Message, 1024)
		if meta.SetStatusCondition(&status.Conditions, *no) {
			r.note(o, no.Reason, kind+": "+no.Message)
		}
	}
	if len(refused) == 0 {
		r.allocations.ForgetRefused(o.key)
	}
	return r.writeStatus(ctx, o, status)
}

// countPod notes the Pod made last. Counting follows the UID, so it is right whatever was lost in between.
func countPod(status *v1alpha1.OffloadedPodStatus, uid types.UID) {
	if status.PodUID == uid {
		return
	}
	if status.PodUID != "" {
		status.Remade++
	}
	status.PodUID = uid
}

// refuse says no, with the reason, once. It is looked at again when the template, the contract or the
// policy changes, or when room under the contract becomes free; what the API server itself refused also
// after a while. A pod that is refused and does not run holds nothing of the contract.
func (r *Reconciler) refuse(ctx context.Context, o *observed, no *grants.Refusal) (ctrl.Result, error) {
	status := o.opod.Status
	status.Phase, status.Reason, status.Message = v1alpha1.OffloadedPodRefused, no.Reason, grants.Cut(no.Message, 1024)
	status.Conditions = nil
	pod, err := r.justMade(ctx, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.release(o.key, pod)
	contract := "" // any that comes
	if o.terms != nil {
		contract = o.terms.Contract
	}
	r.allocations.NoteRefused(o.key, grants.RefusedPod{Contract: contract, No: *no})
	if !equality.Semantic.DeepEqual(status, o.opod.Status) {
		if err := r.writeStatus(ctx, o, status); err != nil {
			return ctrl.Result{}, err
		}
		r.event(o.raw, corev1.EventTypeWarning, "Refused", "%s: %s", no.Reason, no.Message)
		r.note(o, no.Reason, no.Message)
	}
	switch no.Reason {
	case grants.ReasonQuota, grants.ReasonForbidden, grants.ReasonNameTaken:
		return ctrl.Result{RequeueAfter: retryLater}, nil
	case grants.ReasonNoNetwork:
		if r.Closed != nil { // which ends without a word to us
			return ctrl.Result{RequeueAfter: retryLater}, nil
		}
	}
	return ctrl.Result{}, nil
}

// note puts a refusal on record.
func (r *Reconciler) note(o *observed, reason, why string) {
	refusal := audit.Refusal{Door: audit.Guests, Reason: audit.Reason(reason), What: "pod " + o.key.String(), Why: why, Usual: true}
	if o.terms != nil {
		refusal.ID = o.terms.Consumer.ID
	}
	r.audits.Note(refusal)
}

// writeStatus writes the whole status if it differs from what was read, bound to the version read.
func (r *Reconciler) writeStatus(ctx context.Context, o *observed, status v1alpha1.OffloadedPodStatus) error {
	if equality.Semantic.DeepEqual(status, o.opod.Status) {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("status of %s: %w", o.key, err)
	}
	// The whole object, not a patch: the API server takes half the work for it, and the version that was read counts.
	next := Whole(o.raw)
	next.Object["status"] = fields
	if err := r.client.Status().Update(ctx, next); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.raw, o.record.written = next, next.GetResourceVersion()
	return nil
}

// Events about the pods of one namespace.
const (
	eventsPerSecond = 0.5
	eventsBurst     = 100
	eventNote       = 1024 // bytes; the API server takes no event with more
)

func (r *Reconciler) event(about client.Object, kind, reason, note string, args ...any) {
	// Each is an object in the API server for an hour, and a consumer that changes its mind all the time makes many.
	namespace := about.GetNamespace()
	r.mu.Lock()
	limit := r.eventLimits[namespace]
	if limit == nil {
		if len(r.eventLimits) > 1000 {
			clear(r.eventLimits)
		}
		limit = rate.NewLimiter(eventsPerSecond, eventsBurst)
		r.eventLimits[namespace] = limit
	}
	r.mu.Unlock()
	if !limit.Allow() {
		return
	}
	r.events.Eventf(about, nil, kind, reason, reason, "%s", grants.Cut(fmt.Sprintf(note, args...), eventNote))
}
