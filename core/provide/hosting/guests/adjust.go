package guests

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// change is what a Pod that runs lacks to be as its template says, as far as Kubernetes lets a running pod change. Each of the
// three is written by itself, and nil when it is so already.
type change struct {
	is      *corev1.Pod
	fields  *corev1.Pod // labels, annotations, images, deadline
	sized   *corev1.Pod // amounts
	debug   *corev1.Pod // ephemeral containers
	refused string      // why an ephemeral container is not added
	said    []podEvent
}

// podEvent is an event about the Pod.
type podEvent struct{ kind, reason, note string }

func eventf(kind, reason, note string, args ...any) podEvent {
	return podEvent{kind, reason, fmt.Sprintf(note, args...)}
}

func (r *rules) changeOf(o *observed) change {
	c, want := change{is: o.pod}, podFor(o.opod, o.terms)
	if no := keepImages(want, o.pod, o.terms.Images); no != nil {
		c.said = append(c.said, eventf(corev1.EventTypeWarning, "NotChanged", "a running pod keeps its image: %s", no.Message))
	}
	fields, sized := o.pod.DeepCopy(), o.pod.DeepCopy()
	changed, cannot := syncInPlace(fields, want)
	if len(cannot) > 0 {
		c.said = append(c.said, eventf(corev1.EventTypeWarning, "NotChanged", "a running pod keeps its %v", cannot))
	}
	if changed {
		c.fields = fields
	}
	if resizeTo(sized, want) {
		c.sized = sized
	}
	debug, also, why := r.debuggers(o.pod, &o.opod.Spec.Template.Spec, o.terms)
	if debug != o.pod {
		c.debug = debug
	}
	c.said, c.refused = append(c.said, also...), why
	return c
}

// adjust brings over what may change in a running pod, and tells of what may not.
func (r *Reconciler) adjust(ctx context.Context, o *observed, c change) error {
	for _, s := range c.said {
		r.event(o.pod, s.kind, s.reason, "%s", s.note)
	}
	refused, err := r.write(ctx, o, c)
	if err != nil {
		return err
	}
	if err := r.accepted(ctx, o, refused); err != nil {
		return err
	}
	if len(refused) == 0 { // else it is looked at again when there is room, or other terms
		o.record.uid, o.record.synced = o.pod.UID, o.opod.Generation
	}
	return nil
}

// write writes a change, and gives what of it is refused.
func (r *Reconciler) write(ctx context.Context, o *observed, c change) (refused []metav1.Condition, err error) {
	if c.fields != nil {
		err := r.client.Patch(ctx, c.fields, client.StrategicMergeFrom(c.is), client.FieldOwner(v1alpha1.ManagedBy))
		switch {
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			r.event(o.pod, corev1.EventTypeWarning, "NotChanged", "%v", err)
		case err != nil:
			return nil, client.IgnoreNotFound(err)
		default:
			o.changed(c.fields)
		}
	}
	if c.sized != nil {
		pending, err := r.resize(ctx, o, c)
		if err != nil {
			return nil, err
		}
		refused = append(refused, pending...)
	}
	if c.debug != nil {
		err := r.client.SubResource("ephemeralcontainers").Patch(ctx, c.debug, client.StrategicMergeFrom(c.is), client.FieldOwner(v1alpha1.ManagedBy))
		switch {
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			c.refused = err.Error()
		case apierrors.IsNotFound(err):
			return refused, nil
		case err != nil:
			return nil, err
		default:
			o.changed(c.debug)
		}
	}
	if c.refused != "" {
		if len(refused) == 0 { // other terms may allow it
			r.allocations.NoteRefused(o.key, grants.RefusedPod{Contract: o.terms.Contract, No: grants.Refusal{Reason: grants.ReasonPodSecurity, Message: grants.Cut(c.refused, 1024)}, Runs: true})
		}
		refused = append(refused, metav1.Condition{Type: v1alpha1.ConditionEphemeralContainersRefused, Status: metav1.ConditionTrue, Reason: grants.ReasonPodSecurity, Message: c.refused})
	}
	return refused, nil
}

// resize gives the Pod the amounts its template has, as far as the contract goes. Until the kubelet has done it, the
// greater of both counts.
func (r *Reconciler) resize(ctx context.Context, o *observed, c change) ([]metav1.Condition, error) {
	t, no := o.terms, negative(&c.sized.Spec)
	pending := metav1.Condition{Type: v1alpha1.ConditionResizePending, Status: metav1.ConditionTrue, Reason: corev1.PodReasonInfeasible}
	requests := requestsOf(c.sized)
	if no == nil {
		no = r.allocations.AdmitTo(o.key, t.Contract, t.PartOf(o.opod.Spec.Via), requests, t.Limit)
		if no != nil && sharing.Less(requests, t.Limit) == "" {
			pending.Reason = corev1.PodReasonDeferred // there is room for it when other guests have gone
		}
	}
	if no != nil {
		r.allocations.NoteRefused(o.key, grants.RefusedPod{Contract: t.Contract, No: *no, Runs: true})
		pending.Message = no.Message
		return []metav1.Condition{pending}, nil
	}
	err := r.client.SubResource("resize").Patch(ctx, c.sized, client.StrategicMergeFrom(c.is), client.FieldOwner(v1alpha1.ManagedBy))
	if err != nil {
		r.Wake(r.allocations.Correct(o.key, requestsOf(o.pod)))
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err),
		apierrors.IsNotFound(err): // before Kubernetes 1.33 no pod is resized
		pending.Message = err.Error()
		return []metav1.Condition{pending}, nil
	case err != nil:
		return nil, err
	}
	r.log.Info("guest resized", "peer", t.Consumer.Name, "namespace", o.key.Namespace, "pod", o.key.Name)
	o.changed(c.sized)
	return nil, nil
}

// changed takes the Pod as the API server answered after a write of ours.
func (o *observed) changed(pod *corev1.Pod) { o.pod, o.record.podVersion = pod, pod.ResourceVersion }
