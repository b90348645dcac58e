package guests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"kith.dev/core/api"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
)

// setClass sets the RuntimeClass of a guest. That of all guests gives it a link of its own. An admission policy does the same for whoever makes
// a pod with a consumer's label; while somebody took that away, hosting's own guests are fenced all the same. devices is the owner's word on
// guests that ask for devices.
func (r *rules) setClass(spec *corev1.PodSpec, devices string) *grants.Refusal {
	class := r.Class
	if devices != "" && asksForDevices(spec) {
		class = devices
		if r.Class != "" {
			class = guestnet.With(devices)
		}
		if class == "" {
			return grants.Refused(grants.ReasonNotSupported, "it asks for devices, which need the RuntimeClass %s by this provider's policy, and guests here cannot have that: "+
				"it would take the place of the one that fences them (%s)", devices, r.Class)
		}
	}
	if class != "" {
		spec.RuntimeClassName = ptr.To(class)
	}
	return nil
}

// asksForDevices reports whether any container has extended resources. The spec must have gone through stateRequests.
func asksForDevices(spec *corev1.PodSpec) (asks bool) {
	eachContainer(spec, func(c *corev1.Container) {
		for name, q := range c.Resources.Requests {
			asks = asks || q.Sign() > 0 && api.Extended(string(name))
		}
	})
	return asks
}
