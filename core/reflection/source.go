package reflection

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// source is what an item at home says of its counterpart abroad.
type source struct {
	owner corev1.ObjectReference // what events are about
	// needed: a pod there refers to it, or its kind goes anyway.
	needed bool
	// stamp changes whenever build would give something else.
	stamp string
	// build makes the object abroad, or says why there is none.
	build func(context.Context) (want client.Object, why string, err error)
	// fresh says of what is abroad, when it is not known from what it was made, that it is as it should be; may be nil.
	fresh func(have metav1.Object) bool
}

// upToDate: nothing has to be written, neither for a change at home nor for one abroad.
func (s *source) upToDate(m memo, have metav1.Object) bool {
	if s.fresh != nil && !s.fresh(have) {
		return false
	}
	if m.version == "" {
		return s.fresh != nil
	}
	return m.stamp == s.stamp && m.version == have.GetResourceVersion()
}

// source looks an item up at home; nil means that nothing of it belongs abroad.
func (r *Reflector) source(t *twin, s *session, it item, given *corev1.Pod) *source {
	o := s.member.get(it)
	if it.kind == kindPod && given != nil {
		o = given
	}
	if o == nil || o.GetLabels()[LabelReflect] == "false" && it.kind != kindPod {
		return nil
	}
	src := &source{needed: true, stamp: string(o.GetUID()) + "/" + o.GetResourceVersion(), owner: corev1.ObjectReference{
		APIVersion: it.kind.gvk().GroupVersion().String(), Kind: string(it.kind), Namespace: it.namespace, Name: it.name, UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}
	switch o := o.(type) {
	case *corev1.Service:
		if ofAPIServer(it.namespace, it.name) {
			return nil
		}
		src.build = func(context.Context) (client.Object, string, error) {
			return orWhy(mapService(o, t.name))
		}
	case *discoveryv1.EndpointSlice:
		if service := o.Labels[discoveryv1.LabelServiceName]; service == "" || ofAPIServer(it.namespace, service) {
			return nil
		}
		r.ofSlice(t, s, it, o, src)
	case *corev1.Pod:
		return r.ofPod(t, o, src)
	default:
		if it.kind == kindConfigMap && it.name == rootCA {
			return nil
		}
		src.needed = o.GetLabels()[LabelReflect] == "true" || s.member.referred(r.cfg.NodeName, it, r.goes)
		src.build = func(ctx context.Context) (client.Object, string, error) { return r.fetch(ctx, t, it) }
	}
	return src
}

// ofAPIServer: this one Service means the cluster itself.
func ofAPIServer(namespace, service string) bool {
	return namespace == metav1.NamespaceDefault && service == "kubernetes"
}

func orWhy[T client.Object](o T, why string) (client.Object, string, error) {
	if why != "" {
		return nil, why, nil
	}
	return o, "", nil
}

func (r *Reflector) ofSlice(t *twin, s *session, it item, home *discoveryv1.EndpointSlice, src *source) {
	r.mu.Lock()
	src.stamp = fmt.Sprintf("%s/%d", src.stamp, r.plan)
	r.mu.Unlock()
	src.build = func(context.Context) (client.Object, string, error) {
		slice, leftOut, why := mapSlice(r.asThere(s, home), t.name, r.cfg.Translate, func(e *discoveryv1.Endpoint) string { return r.guestNode(it.namespace, e) })
		if leftOut > 0 {
			r.log.Debug("endpoints left out", "namespace", it.namespace, "name", it.name, "count", leftOut)
		}
		return orWhy(slice, why)
	}
}

func (r *Reflector) guestNode(namespace string, e *discoveryv1.Endpoint) string {
	if r.cfg.GuestNode == nil || e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.NodeName == nil || *e.NodeName != r.cfg.NodeName {
		return ""
	}
	return r.cfg.GuestNode(namespace, e.TargetRef.Name)
}

// fetch reads content at home.
func (r *Reflector) fetch(ctx context.Context, t *twin, it item) (client.Object, string, error) {
	core := r.cfg.Home.core.CoreV1()
	if it.kind == kindConfigMap {
		home, err := core.ConfigMaps(it.namespace).Get(ctx, it.name, metav1.GetOptions{})
		if err != nil {
			return nil, "", err
		}
		return mapConfigMap(home, t.name), "", nil
	}
	home, err := core.Secrets(it.namespace).Get(ctx, it.name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	return mapSecret(home, t.name), "", nil
}

// goes reports whether a pod on the virtual node gets what it refers to: it is abroad, or may go there.
func (r *Reflector) goes(pod *corev1.Pod) bool {
	abroad := r.cfg.GuestNode != nil && r.cfg.GuestNode(pod.Namespace, pod.Name) != ""
	return abroad || pod.Status.Phase == corev1.PodRunning || r.cfg.Permit(pod.Namespace)
}

// ofPod is the companion of a pod that runs there.
func (r *Reflector) ofPod(t *twin, pod *corev1.Pod, src *source) *source {
	c := companionOf(pod)
	if c.empty() || !needs(pod, r.cfg.NodeName) || !r.goes(pod) {
		return nil
	}
	fields := c.fieldsStamp(pod)
	src.stamp = string(pod.UID) + "/" + fields
	src.build = func(ctx context.Context) (client.Object, string, error) { return r.companion(ctx, t, pod, c) }
	src.fresh = func(have metav1.Object) bool {
		if have.GetAnnotations()[annotationPodUID] != string(pod.UID) || have.GetAnnotations()[annotationFields] != fields {
			return false
		}
		renew, err := time.Parse(time.RFC3339, have.GetAnnotations()[annotationRenew])
		return len(c.tokens) == 0 || err == nil && time.Now().Before(renew)
	}
	return src
}
