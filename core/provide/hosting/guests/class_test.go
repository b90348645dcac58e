package guests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// The class that shows devices is combined with the one that fences, and never takes its place.
func TestTheClassOfGuestsThatAskForDevices(t *testing.T) {
	with := func(name corev1.ResourceName) corev1.PodSpec {
		r := corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse("1")}}
		return corev1.PodSpec{RuntimeClassName: ptr.To("mine"), Containers: []corev1.Container{{Name: "a"}, {Name: "b", Resources: r}}}
	}
	for _, c := range []struct {
		spec                corev1.PodSpec
		all, devices, class string
		refused             bool
	}{
		{with("nvidia.com/gpu"), "kith-guest", "nvidia", "kith-guest-nvidia", false},
		{with("nvidia.com/gpu"), "kith-guest", "", "kith-guest", false},
		{with("nvidia.com/gpu"), "kith-guest", "other", "", true},
		{with("nvidia.com/gpu"), "kith-guest", "runc", "", true},
		{with("cpu"), "kith-guest", "nvidia", "kith-guest", false},
		{with("cpu"), "kith-guest", "other", "kith-guest", false},
		{with("kubernetes.io/odd"), "kith-guest", "other", "kith-guest", false},
		{with("nvidia.com/gpu"), "", "other", "other", false},
		{with("nvidia.com/gpu"), "", "", "", false},
		{with("cpu"), "", "other", "", false},
	} {
		terms := bobsTerms(v1alpha1.PodSecurityBaseline)
		terms.DeviceClass = c.devices
		pod := podFor(offloadedOf(corev1.PodTemplateSpec{Spec: c.spec}), terms)
		r := rules{Class: c.all}
		no := r.setClass(&pod.Spec, terms.DeviceClass)
		if (no != nil) != c.refused || no != nil && no.Reason != grants.ReasonNotSupported {
			t.Errorf("%+v: refused: %v", c, no)
		}
		if got := ptr.Deref(pod.Spec.RuntimeClassName, ""); got != c.class {
			t.Errorf("%+v: class %q", c, got)
		}
		if no == nil && r.outside(pod) {
			t.Errorf("%+v: it counts as outside the fence", c)
		}
	}
}
