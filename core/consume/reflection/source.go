package reflection

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"kith.dev/core/agree/kinds"
)

// source is what an item at home says of its counterpart abroad.
type source struct {
	owner corev1.ObjectReference // what events are about
	// needed: a pod there refers to it, or its kind goes anyway.
	needed bool
	// stamp changes whenever build would give something else.
	stamp string
	// build makes the object abroad, or says why there is none.
	build func(context.Context) (want kinds.Object, why string, err error)
	// fresh says of what is abroad, when it is not known from what it was made, that it is as it should be; may be nil.
	fresh func(have metav1.Object) bool
}

// upToDate: nothing has to be written, neither for a change at home nor for one abroad.
func (s *source) upToDate(m written, have metav1.Object) bool {
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
	if r.cfg.NoNetwork && (it.kind == kinds.Service || it.kind == kinds.EndpointSlice) {
		return nil
	}
	onward := r.onward(it.namespace)
	o := s.member.get(it, onward)
	if it.kind == kinds.Pod && given != nil {
		o = given
	}
	if o == nil {
		return nil
	}
	src := &source{needed: true, stamp: string(o.GetUID()) + "/" + o.GetResourceVersion(), owner: corev1.ObjectReference{
		APIVersion: it.kind.Resource.GroupVersion().String(), Kind: it.kind.Name, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}
	if pod, ok := o.(*corev1.Pod); ok {
		return r.ofPod(t, pod, src)
	}
	if onward {
		src.stamp += "/onward"
	}
	switch {
	case it != it.atHome() && !onward:
		if !r.cfg.APIServer.IsValid() {
			return nil
		}
	case o.GetLabels()[LabelReflect] == "false", it.kind.Stays != nil && it.kind.Stays(o):
		return nil
	}
	there := r.there(t, s)
	if it.kind.ByReference {
		src.needed = o.GetLabels()[LabelReflect] == "true" || s.member.referred(r.cfg.NodeName, it, r.goes)
	} else if it.kind.Depends != nil {
		src.stamp += "/" + it.kind.Depends(o.(kinds.Object), there)
	}
	src.build = func(ctx context.Context) (kinds.Object, string, error) {
		home, _ := o.(kinds.Object)
		if it.kind.ByReference { // of which the metadata alone is held
			home = it.kind.New()
			if err := r.cfg.Home.core.CoreV1().RESTClient().Get().AbsPath(append(it.kind.Path(it.namespace), it.name)...).Do(ctx).Into(home); err != nil {
				return nil, "", err
			}
		}
		abroad, why := it.kind.Map(home, there)
		if onward && it.kind == kinds.Service && abroad != nil && why == "" {
			keepAddresses(home, abroad)
		}
		if there.LeftOut > 0 {
			r.log.Debug("endpoints left out", "namespace", it.namespace, "name", it.name, "count", there.LeftOut)
		}
		return abroad, why, nil
	}
	return src
}

// there is what mappings know of the peer, now.
func (r *Reflector) there(t *twin, s *session) *kinds.There {
	r.mu.Lock()
	defer r.mu.Unlock()
	reaches, six := r.cfg.Reaches, r.cfg.IPv6 != nil && r.cfg.IPv6()
	if r.onward(t.home) { // the provider knows what means something to that cluster, and takes no other
		reaches, six = netip.Addr.Is4, false
	}
	return &kinds.There{
		Twin: t.name, Plan: r.plan, Reaches: reaches, IPv6: six,
		NodeOf: func(e *discoveryv1.Endpoint) string { return r.guestNode(t.home, e) },
		Healthy: func(selector labels.Selector) (guests, elsewhere int32) {
			return s.member.healthy(t.home, r.cfg.NodeName, selector)
		},
		Seen: func(home *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice { return r.asThere(s, home) },
	}
}

// guestNode names the peer's node of an endpoint that is a guest there.
func (r *Reflector) guestNode(namespace string, e *discoveryv1.Endpoint) string {
	if !r.isGuest(e) {
		return ""
	}
	return r.cfg.GuestNode(namespace, e.TargetRef.Name)
}

// guestReady reports whether an endpoint is a guest at the peer, and ready there.
func (r *Reflector) guestReady(namespace string, e *discoveryv1.Endpoint) bool {
	return r.isGuest(e) && r.cfg.GuestReady(namespace, e.TargetRef.Name)
}

func (r *Reflector) isGuest(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && e.TargetRef.Kind == kinds.Pod.Name && e.NodeName != nil && nodeOfPeer(*e.NodeName) == r.cfg.NodeName
}

// goes reports whether a pod on the virtual node gets what it refers to: it is abroad, or may go there.
func (r *Reflector) goes(pod *corev1.Pod) bool {
	return r.cfg.GuestNode(pod.Namespace, pod.Name) != "" || pod.Status.Phase == corev1.PodRunning || r.cfg.Permit(pod.Namespace)
}

// ofPod is the companion of a pod that runs there.
func (r *Reflector) ofPod(t *twin, pod *corev1.Pod, src *source) *source {
	c := companionOf(pod)
	if c.empty() || !needs(pod, r.cfg.NodeName) || !r.goes(pod) {
		return nil
	}
	fields := c.fieldsStamp(pod)
	src.stamp = string(pod.UID) + "/" + fields
	src.build = func(ctx context.Context) (kinds.Object, string, error) { return r.companion(ctx, t, pod, c) }
	src.fresh = func(have metav1.Object) bool {
		if have.GetAnnotations()[annotationPodUID] != string(pod.UID) || have.GetAnnotations()[annotationFields] != fields {
			return false
		}
		renew, err := time.Parse(time.RFC3339, have.GetAnnotations()[annotationRenew])
		return len(c.tokens) == 0 || err == nil && time.Now().Before(renew)
	}
	return src
}

// asThere is a home slice with the conditions that its endpoints have at the peer: those of home, as long as packets pass. But of a guest
// that is ready there home may not have heard yet: when it was away for a while, all guests are unready at home for a moment more.
func (r *Reflector) asThere(s *session, home *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	apart := r.cfg.Apart != nil && r.cfg.Apart()
	unready := false // published ready or not
	if o := s.member.get(item{kinds.Service, home.Namespace, home.Labels[discoveryv1.LabelServiceName]}, false); o != nil {
		unready = o.(*corev1.Service).Spec.PublishNotReadyAddresses
	}
	return seenThere(home, apart, unready, func(e *discoveryv1.Endpoint) bool {
		return r.guestReady(home.Namespace, e) && (apart || !s.member.gated(home.Namespace, e.TargetRef.Name))
	})
}

// seenThere changes the conditions of a slice to those at the peer: guests that are ready there serve, and, where the peer is apart from
// home, nobody else. A service whose addresses are published ready or not (unready) keeps them.
func seenThere(home *discoveryv1.EndpointSlice, apart, unready bool, ready func(*discoveryv1.Endpoint) bool) *discoveryv1.EndpointSlice {
	there := home.DeepCopy()
	for i := range there.Endpoints {
		e := &there.Endpoints[i]
		up := ready(e) && (e.Conditions.Terminating == nil || !*e.Conditions.Terminating)
		if !up && !apart {
			continue
		}
		if e.Conditions.Serving = &up; !unready {
			e.Conditions.Ready = &up
		}
	}
	return there
}
