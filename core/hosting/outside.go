package hosting

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
)

// Confine names the RuntimeClass that every guest must have: the fence is around those alone. Call it before the manager
// starts; with "" guests have none.
func (h *Host) Confine(class string) { h.reconciler.class = class }

// putBehind gives a guest the class whose pods are behind a link of their own. An admission policy does the same for
// whoever makes a pod with a consumer's label; while somebody took that away, hosting's own guests are fenced all the same.
func (r *reconciler) putBehind(pod *corev1.Pod) {
	if r.class != "" {
		pod.Spec.RuntimeClassName = ptr.To(r.class)
	}
}

// outside reports whether the fence does not hold a Pod that hosting made: it lacks the class, or the label by which it is
// known for a guest.
func (r *reconciler) outside(pod *corev1.Pod) bool {
	return r.class != "" && (ptr.Deref(pod.Spec.RuntimeClassName, "") != r.class || pod.Labels[v1alpha1.LabelConsumer] == "")
}

// expel deletes a guest that is outside, at once. It is made again, ever more slowly if that does not help.
func (r *reconciler) expel(ctx context.Context, o *one) error {
	if o.pod.DeletionTimestamp != nil {
		return nil
	}
	m := r.memo(o.key)
	m.made, m.remakes = r.now(), m.remakes+1
	r.remember(o.key, m)
	const why = "the pod was not behind the fence: its RuntimeClass or its label was taken away; it is deleted and made again"
	r.log.Warn("guest outside the fence is deleted", "namespace", o.key.Namespace, "pod", o.key.Name,
		"class", ptr.Deref(o.pod.Spec.RuntimeClassName, ""), "want", r.class)
	r.event(o.raw, corev1.EventTypeWarning, "Unfenced", why)
	return r.delete(ctx, o.pod, ptr.To(int64(1)))
}
