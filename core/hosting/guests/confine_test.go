package guests

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
)

func guestOf(spec corev1.PodSpec, t *grants.Terms) *corev1.Pod {
	return podFor(offloadedOf(corev1.PodTemplateSpec{Spec: spec}), t)
}

func TestGuestsHaveASystemCallFilterAndUserNamespace(t *testing.T) {
	checker, err := newRules()
	if err != nil {
		t.Fatal(err)
	}
	profile := func(kind corev1.SeccompProfileType) *corev1.SeccompProfile {
		p := &corev1.SeccompProfile{Type: kind}
		if kind == corev1.SeccompProfileTypeLocalhost {
			p.LocalhostProfile = ptr.To("audit.json") // logs, and forbids nothing
		}
		return p
	}
	for _, level := range []v1alpha1.PodSecurityLevel{v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted, v1alpha1.PodSecurityPrivileged} {
		confined := level != v1alpha1.PodSecurityPrivileged
		terms := bobsTerms(level)
		terms.UserNamespaces = true
		spec := guestOf(corev1.PodSpec{HostUsers: ptr.To(true), Containers: []corev1.Container{{Name: "c"}}}, terms).Spec
		filtered := spec.SecurityContext != nil && equality.Semantic.DeepEqual(spec.SecurityContext.SeccompProfile, profile(corev1.SeccompProfileTypeRuntimeDefault))
		if filtered != confined || *spec.HostUsers == confined {
			t.Errorf("%s: %+v", level, spec)
		}
		terms.UserNamespaces = false // this cluster cannot
		if spec := guestOf(corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, terms).Spec; spec.HostUsers != nil {
			t.Errorf("%s: hostUsers %v", level, *spec.HostUsers)
		}
		for _, kind := range []corev1.SeccompProfileType{corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeLocalhost} {
			for place, spec := range map[string]corev1.PodSpec{
				"pod":       {SecurityContext: &corev1.PodSecurityContext{SeccompProfile: profile(kind)}, Containers: []corev1.Container{{Name: "c"}}},
				"container": {Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{SeccompProfile: profile(kind)}}}},
				"init": {InitContainers: []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{SeccompProfile: profile(kind)}}},
					Containers: []corev1.Container{{Name: "c"}}},
				"debugger": {Containers: []corev1.Container{{Name: "c"}}, EphemeralContainers: []corev1.EphemeralContainer{
					{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", SecurityContext: &corev1.SecurityContext{SeccompProfile: profile(kind)}}}}},
			} {
				pod := guestOf(spec, terms)
				pod.Spec.EphemeralContainers = spec.EphemeralContainers
				if no := checker.check(pod, level); (no != nil) != confined {
					t.Errorf("%s: seccomp profile %s of the %s: %v", level, kind, place, no)
				}
			}
		}
		unmasked := guestOf(corev1.PodSpec{HostUsers: ptr.To(false), Containers: []corev1.Container{
			{Name: "c", SecurityContext: &corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)}}}}, terms)
		if no := checker.check(unmasked, level); (no != nil) != confined {
			t.Errorf("%s: an unmasked /proc: %v", level, no)
		}
	}
}

func TestGuestsHaveTheLowestPriority(t *testing.T) {
	for _, level := range []v1alpha1.PodSecurityLevel{v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityPrivileged} {
		spec := guestOf(corev1.PodSpec{Priority: ptr.To[int32](1e9), PriorityClassName: "system-node-critical", Containers: []corev1.Container{{Name: "c"}}}, bobsTerms(level)).Spec
		if spec.PriorityClassName != v1alpha1.GuestPriorityClass || spec.Priority != nil {
			t.Errorf("%s: priority class %q, priority %v: the owner's default class would be taken", level, spec.PriorityClassName, spec.Priority)
		}
	}
	if class := Priority(); *class.Value >= 0 || *class.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("%+v", class)
	}
}

// scratch is what the kubelet holds the whole pod to.
func scratch(pod *corev1.Pod) *resource.Quantity {
	q := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return &q
}

func TestScratchOfSilentGuestsStaysWithinTheContract(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	terms := bobsTerms("baseline")
	terms.Limit = list("ephemeral-storage", "40Gi", "pods", "20")
	for name, spec := range map[string]corev1.PodSpec{
		"one container":  {Containers: []corev1.Container{{Name: "c"}}},
		"three":          {Containers: []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		"with helpers":   {InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}, Containers: []corev1.Container{{Name: "c"}}},
		"asks for a lot": {Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("ephemeral-storage", "0"), Limits: list("ephemeral-storage", "100Ti")}}}},
	} {
		pod := guestOf(spec, terms)
		if got := scratch(pod); got.Cmp(resource.MustParse("2Gi")) > 0 || got.Cmp(resource.MustParse("2047Mi")) < 0 {
			t.Errorf("%s: a twentieth of 40Gi is 2Gi, the pod may write %v", name, got)
		}
		// The limit must not become a request, neither here nor in the API server: all pods would count it.
		if got := requestsOf(pod); !equality.Semantic.DeepEqual(got, list("pods", "1")) {
			t.Errorf("%s: counts as %v", name, got)
		}
		eachContainer(&pod.Spec, func(c *corev1.Container) {
			if _, ok := c.Resources.Requests[corev1.ResourceEphemeralStorage]; !ok {
				t.Errorf("%s: container %s is silent about its request", name, c.Name)
			}
		})
	}
}

func TestScratchThatIsRequestedComesOnTop(t *testing.T) {
	of := func(requests, limits corev1.ResourceList) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}
	}
	for _, c := range []struct {
		grant corev1.ResourceList
		spec  corev1.PodSpec
		want  string
	}{
		{list("ephemeral-storage", "40Gi", "pods", "20"), of(list("ephemeral-storage", "10Gi"), nil), "12Gi"},
		{list("ephemeral-storage", "40Gi", "pods", "20"), of(list("ephemeral-storage", "10Gi"), list("ephemeral-storage", "11Gi")), "11Gi"},
		{list("ephemeral-storage", "40Gi", "pods", "20"), of(nil, list("ephemeral-storage", "10Gi")), "10Gi"}, // a limit is a request
		{list("ephemeral-storage", "40Gi", "pods", "20"), of(nil, list("ephemeral-storage", "1Gi")), "1Gi"},
		{list("ephemeral-storage", "1Gi", "pods", "1024"), of(nil, nil), "1Mi"},
		{list("pods", "20"), of(nil, nil), "128Mi"},
		{list(), of(nil, nil), "128Mi"},
		{list("ephemeral-storage", "1Gi", "pods", "0"), of(nil, nil), "1Gi"},
	} {
		terms := bobsTerms("baseline")
		terms.Limit = c.grant
		if got := scratch(guestOf(c.spec, terms)); got.Cmp(resource.MustParse(c.want)) != 0 {
			t.Errorf("%v of %v: may write %s, want %s", c.spec.Containers[0].Resources, c.grant, fmt.Sprint(got), c.want)
		}
	}
}
