package guests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
)

func sized(name, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: name, Resources: corev1.ResourceRequirements{Requests: list("cpu", cpu, "memory", memory)}},
	}}}
}

func TestResizeTakesOverAmountsAndNothingElse(t *testing.T) {
	pod, want := sized("web", "100m", "64Mi"), sized("web", "200m", "64Mi")
	pod.Spec.Containers[0].Resources.Requests["example.org/gpu"] = list("g", "1")["g"]
	want.Spec.Containers[0].Resources.Requests["example.org/gpu"] = list("g", "2")["g"]
	want.Spec.Containers[0].Resources.Limits = list("cpu", "300m")
	if !resizeTo(pod, want) {
		t.Fatal("nothing changed")
	}
	r := pod.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "200m" || r.Limits.Cpu().String() != "300m" || r.Requests["example.org/gpu"] != list("g", "1")["g"] {
		t.Errorf("resources %v", r)
	}
	if resizeTo(pod, want) {
		t.Error("changed again")
	}
	less := sized("web", "200m", "64Mi")
	delete(less.Spec.Containers[0].Resources.Requests, "memory")
	if resizeTo(pod, less) || resizeTo(pod, sized("other", "9", "9Gi")) {
		t.Error("an amount that is not named, or a container that is not there, changed something")
	}
}

func TestWhileAPodIsResizedTheGreaterAmountCounts(t *testing.T) {
	pod := sized("web", "100m", "64Mi")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "web", AllocatedResources: list("cpu", "100m", "memory", "96Mi"),
		Resources: &corev1.ResourceRequirements{Requests: list("cpu", "300m", "memory", "64Mi")},
	}}
	got := requestsOf(pod)
	if got.Cpu().String() != "300m" || got.Memory().String() != "96Mi" {
		t.Errorf("counts %v", got)
	}
	// Also when the kubelet said that it never can: what is asked for counts until it is asked for no more.
	pod.Spec.Containers[0].Resources.Requests = list("cpu", "4", "memory", "64Mi")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	if got := requestsOf(pod); got.Cpu().String() != "4" {
		t.Errorf("counts %v", got)
	}
}

func TestDebuggersAreHeldToTheLevel(t *testing.T) {
	c, err := newRules()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*corev1.EphemeralContainer)) *corev1.Pod {
		pod := sized("web", "100m", "64Mi")
		d := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "busybox"}}
		change(&d)
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{d}
		return pod
	}
	plain := with(func(*corev1.EphemeralContainer) {})
	if no := c.check(plain, v1alpha1.PodSecurityBaseline); no != nil {
		t.Errorf("a plain one: %v", no)
	}
	mighty := with(func(d *corev1.EphemeralContainer) { d.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} })
	if no := c.check(mighty, v1alpha1.PodSecurityBaseline); no == nil || !strings.Contains(no.Message, "privileged") {
		t.Errorf("a privileged one: %v", no)
	}
	traces := with(func(d *corev1.EphemeralContainer) {
		d.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{ptrace}}}
	})
	if no := c.check(traces, v1alpha1.PodSecurityBaseline); no == nil {
		t.Error("the capability is allowed, so nothing has to take it out")
	}
	if !withoutPtrace(&traces.Spec.EphemeralContainers[0]) {
		t.Error("the capability was not found")
	}
	if no := c.check(traces, v1alpha1.PodSecurityBaseline); no != nil {
		t.Errorf("without the capability: %v", no)
	}
}

func TestDebuggersMountOnlyWhatIsHere(t *testing.T) {
	spec := corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "data"}, {Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d",
			VolumeMounts: []corev1.VolumeMount{{Name: "data"}, {Name: "kube-api-access-x"}}}}},
	}
	got := ephemeral(&spec)
	if len(got) != 1 || len(got[0].VolumeMounts) != 1 || got[0].VolumeMounts[0].Name != "data" {
		t.Errorf("mounts %v", got)
	}
	if len(spec.EphemeralContainers[0].VolumeMounts) != 2 {
		t.Error("the template was changed")
	}
}
