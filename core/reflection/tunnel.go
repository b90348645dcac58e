package reflection

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"kith.dev/core/kinds"
)

// SetTunnel tells whether packets pass between the pods at home and at the peer. While none do, guests there are sent to each
// other only: home's own endpoints are not ready in the twins, and the guests are as ready as they are there. Until told
// otherwise a Reflector takes the tunnel for up.
func (r *Reflector) SetTunnel(up bool) {
	r.mu.Lock()
	changed := r.apart == up
	r.apart = !up
	r.mu.Unlock()
	if changed {
		r.Replan()
	}
}

// asThere is a home slice with the conditions that its endpoints have at the peer: those of home, as long as packets pass.
func (r *Reflector) asThere(s *session, home *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	r.mu.Lock()
	apart := r.apart
	r.mu.Unlock()
	if !apart {
		return home
	}
	unready := false // published ready or not
	if o := s.member.get(item{kinds.Service, home.Namespace, home.Labels[discoveryv1.LabelServiceName]}); o != nil {
		unready = o.(*corev1.Service).Spec.PublishNotReadyAddresses
	}
	return apartFrom(home, unready, func(e *discoveryv1.Endpoint) bool { return r.guestReady(home.Namespace, e) })
}

// apartFrom changes the conditions of a slice to those where home is out of reach: only guests that are ready there serve. A
// service whose addresses are published ready or not (unready) keeps them.
func apartFrom(home *discoveryv1.EndpointSlice, unready bool, ready func(*discoveryv1.Endpoint) bool) *discoveryv1.EndpointSlice {
	there := home.DeepCopy()
	for i := range there.Endpoints {
		e := &there.Endpoints[i]
		up := ready(e) && (e.Conditions.Terminating == nil || !*e.Conditions.Terminating)
		if e.Conditions.Serving = &up; !unready {
			e.Conditions.Ready = &up
		}
	}
	return there
}

// guestReady reports whether an endpoint is a guest at the peer, and ready there.
func (r *Reflector) guestReady(namespace string, e *discoveryv1.Endpoint) bool {
	return r.cfg.GuestReady != nil && e.TargetRef != nil && e.TargetRef.Kind == "Pod" && e.NodeName != nil && *e.NodeName == r.cfg.NodeName &&
		r.cfg.GuestReady(namespace, e.TargetRef.Name)
}
