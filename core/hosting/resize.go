package hosting

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// resizable are the amounts that a running pod may change (KEP-1287).
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resizeTo sets in pod, which runs, the amounts of want, and says whether any was another. What want does not name
// stays: in a running pod no amount can be taken away.
func resizeTo(pod, want *corev1.Pod) (changed bool) {
	set := func(has *corev1.ResourceRequirements, wants *corev1.ResourceRequirements) {
		for _, lists := range [][2]*corev1.ResourceList{{&has.Requests, &wants.Requests}, {&has.Limits, &wants.Limits}} {
			for _, name := range resizable {
				q, wanted := (*lists[1])[name]
				old, had := (*lists[0])[name]
				if !wanted || had && old.Cmp(q) == 0 {
					continue
				}
				if *lists[0] == nil {
					*lists[0] = corev1.ResourceList{}
				}
				(*lists[0])[name], changed = q, true
			}
		}
	}
	for _, containers := range [][2][]corev1.Container{{pod.Spec.InitContainers, want.Spec.InitContainers}, {pod.Spec.Containers, want.Spec.Containers}} {
		for i := range containers[1] {
			at := slices.IndexFunc(containers[0], func(c corev1.Container) bool { return c.Name == containers[1][i].Name })
			if at >= 0 {
				set(&containers[0][at].Resources, &containers[1][i].Resources)
			}
		}
	}
	if pod.Spec.Resources != nil && want.Spec.Resources != nil {
		set(pod.Spec.Resources, want.Spec.Resources)
	}
	return changed
}

// resize gives the Pod the amounts its template has, as far as the contract goes. Until the kubelet has done it, the
// greater of both counts.
func (r *reconciler) resize(ctx context.Context, o *one, t *terms, want *corev1.Pod) (*metav1.Condition, error) {
	next := o.pod.DeepCopy()
	if !resizeTo(next, want) {
		return nil, nil
	}
	no := negative(&next.Spec)
	pending := &metav1.Condition{Type: v1alpha1.ConditionResizePending, Status: metav1.ConditionTrue, Reason: corev1.PodReasonInfeasible}
	requests := requestsOf(next)
	if no == nil {
		no = r.book.admit(o.key, t.contract, requests, t.limit)
		if no != nil && within(requests, t.limit) {
			pending.Reason = corev1.PodReasonDeferred // there is room for it when other guests have gone
		}
	}
	if no != nil {
		r.book.wait(o.key, waiter{t.contract, *no, true})
		pending.Message = no.message
		return pending, nil
	}
	err := r.client.SubResource("resize").Patch(ctx, next, client.StrategicMergeFrom(o.pod), client.FieldOwner(v1alpha1.ManagedBy))
	if err != nil {
		r.wake(r.book.correct(o.key, requestsOf(o.pod)))
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err),
		apierrors.IsNotFound(err): // before Kubernetes 1.33 no pod is resized
		pending.Message = err.Error()
		return pending, nil
	case err != nil:
		return nil, err
	}
	r.log.Info("guest resized", "peer", t.consumer.Name, "namespace", o.key.Namespace, "pod", o.key.Name)
	r.changed(o, next)
	return nil, nil
}

// within says whether the amounts could ever be had under the contract.
func within(requests, limit corev1.ResourceList) bool {
	for name, q := range requests {
		if allowed := limit[name]; q.Cmp(allowed) > 0 {
			return false
		}
	}
	return true
}

// changed takes the Pod as the API server answered after a write of ours.
func (r *reconciler) changed(o *one, next *corev1.Pod) {
	o.pod = next
	m := r.memo(o.key)
	m.podVersion = next.ResourceVersion
	r.remember(o.key, m)
}

// maxDebuggers bounds the ephemeral containers of a pod: nothing ever takes one away.
const maxDebuggers = 32

// ptrace is what `kubectl debug` asks for by default. At the levels that forbid it the debugger does without.
const ptrace corev1.Capability = "SYS_PTRACE"

// debug adds the ephemeral containers that the template has and the Pod has not. They hold no amounts of their own.
func (r *reconciler) debug(ctx context.Context, o *one, t *terms) (*metav1.Condition, error) {
	next, why := o.pod.DeepCopy(), ""
	for _, c := range ephemeral(&o.opod.Spec.Template.Spec) {
		if slices.ContainsFunc(o.pod.Spec.EphemeralContainers, func(has corev1.EphemeralContainer) bool { return has.Name == c.Name }) {
			continue
		}
		tried := next.DeepCopy()
		c.ImagePullPolicy = t.images.pull(c.Image, c.ImagePullPolicy)
		tried.Spec.EphemeralContainers = append(tried.Spec.EphemeralContainers, c)
		no := r.checker.check(tried, t.level)
		if no != nil && withoutPtrace(&tried.Spec.EphemeralContainers[len(tried.Spec.EphemeralContainers)-1]) {
			if no = r.checker.check(tried, t.level); no == nil {
				r.event(o.pod, corev1.EventTypeNormal, "Debugger", "container %s runs without the capability %s, which level %s of this provider does not allow", c.Name, ptrace, t.level)
			}
		}
		if no == nil {
			no = t.images.refuse("its image", c.Image)
		}
		switch {
		case len(tried.Spec.EphemeralContainers) > maxDebuggers:
			why = fmt.Sprintf("%s: a pod here has at most %d ephemeral containers", c.Name, maxDebuggers)
		case no != nil:
			why = fmt.Sprintf("%s: %s", c.Name, no.message)
		default:
			next = tried
		}
	}
	if len(next.Spec.EphemeralContainers) > len(o.pod.Spec.EphemeralContainers) {
		err := r.client.SubResource("ephemeralcontainers").Patch(ctx, next, client.StrategicMergeFrom(o.pod), client.FieldOwner(v1alpha1.ManagedBy))
		switch {
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			why = err.Error()
		case err != nil:
			return nil, client.IgnoreNotFound(err)
		default:
			r.changed(o, next)
		}
	}
	if why == "" {
		return nil, nil
	}
	return &metav1.Condition{Type: v1alpha1.ConditionEphemeralContainersRefused, Status: metav1.ConditionTrue, Reason: reasonPodSecurity, Message: cut(why, 1024)}, nil
}

// ephemeral are those of the template, less the mounts of volumes that are not brought here.
func ephemeral(spec *corev1.PodSpec) []corev1.EphemeralContainer {
	if len(spec.EphemeralContainers) == 0 {
		return nil
	}
	spec = spec.DeepCopy()
	debuggers := spec.EphemeralContainers
	forgetHomeIdentity(spec)
	for i := range debuggers {
		debuggers[i].VolumeMounts = slices.DeleteFunc(debuggers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
			return !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		})
	}
	return debuggers
}

// withoutPtrace takes that capability out, and says whether it was there.
func withoutPtrace(c *corev1.EphemeralContainer) bool {
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return false
	}
	caps := c.SecurityContext.Capabilities
	before := len(caps.Add)
	caps.Add = slices.DeleteFunc(slices.Clone(caps.Add), func(c corev1.Capability) bool { return c == ptrace })
	return len(caps.Add) < before
}
