package guests

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
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

// A guest makes no packets by hand: no container has NET_RAW, which runtimes give unasked, and none may ask for it; it can ping all the same.
func TestGuestsHaveNoRawSockets(t *testing.T) {
	checker, err := newRules()
	if err != nil {
		t.Fatal(err)
	}
	caps := func(add, drop []corev1.Capability) *corev1.SecurityContext {
		return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: add, Drop: drop}}
	}
	for _, level := range []v1alpha1.PodSecurityLevel{v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted, v1alpha1.PodSecurityPrivileged} {
		confined := level != v1alpha1.PodSecurityPrivileged
		terms := bobsTerms(level)
		template := corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "c"}, {Name: "chown", SecurityContext: caps([]corev1.Capability{"CHOWN"}, []corev1.Capability{"KILL"})}, {Name: "none", SecurityContext: caps(nil, []corev1.Capability{"ALL"})}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d",
				SecurityContext: &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}},
		}
		if level != v1alpha1.PodSecurityRestricted { // where a debugger has to drop all of them by itself
			template.EphemeralContainers[0].SecurityContext = nil
		}
		pod := guestOf(template, terms)
		if next, _, why := checker.debuggers(guestOf(corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}}, terms), &template, terms); why != "" || len(next.Spec.EphemeralContainers) != 1 {
			t.Fatalf("%s: the debugger: %s", level, why)
		} else {
			pod.Spec.EphemeralContainers = next.Spec.EphemeralContainers
		}
		seen := 0
		everyContainer(&pod.Spec, func(c *corev1.Container) {
			seen++
			without := c.SecurityContext != nil && c.SecurityContext.Capabilities != nil &&
				(slices.Contains(c.SecurityContext.Capabilities.Drop, netRaw) || slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL"))
			if own := c.Name == "none" || c.Name == "d" && level == v1alpha1.PodSecurityRestricted; without != (confined || own) {
				t.Errorf("%s: container %s has %+v", level, c.Name, c.SecurityContext)
			}
		})
		if seen != 6 {
			t.Errorf("%s: %d containers", level, seen)
		}
		if c := pod.Spec.Containers[1].SecurityContext.Capabilities; !slices.Contains(c.Add, "CHOWN") || !slices.Contains(c.Drop, "KILL") {
			t.Errorf("%s: what it said itself became %+v", level, c)
		}
		if c := template.Containers[1].SecurityContext.Capabilities; len(c.Drop) != 1 {
			t.Errorf("%s: the template itself was changed: %+v", level, c)
		}
		// Asked for, it is refused as the level says.
		for _, asked := range []corev1.Capability{"NET_RAW", "CAP_NET_RAW", "ALL"} {
			if no := checker.check(guestOf(corev1.PodSpec{Containers: []corev1.Container{{Name: "c", SecurityContext: caps([]corev1.Capability{asked}, nil)}}}, terms), level); (no != nil) != confined {
				t.Errorf("%s: %s asked for: %v", level, asked, no)
			}
		}
		for _, c := range []struct {
			asked          []corev1.Sysctl
			userNamespaces bool
			want           string
		}{
			{nil, false, "0 2147483647"},
			{nil, true, "0 65535"}, // of a user namespace; the kernel takes none that it has not
			{[]corev1.Sysctl{{Name: "net/ipv4/ping_group_range", Value: "7 7"}}, true, "7 7"},
		} {
			terms.UserNamespaces = c.userNamespaces
			if len(c.asked) == 0 && !confined {
				continue
			}
			spec := guestOf(corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{Sysctls: c.asked}}, terms).Spec
			if got := spec.SecurityContext.Sysctls; len(got) != 1 || got[0].Name != pingGroups || got[0].Value != c.want {
				t.Errorf("%s: groups that may ping: %+v, want %s", level, got, c.want)
			}
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
