package guests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

func template(t *testing.T, file string) corev1.PodTemplateSpec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var out corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func offloadedOf(template corev1.PodTemplateSpec) *v1alpha1.OffloadedPod {
	return &v1alpha1.OffloadedPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-twin", Name: "web-0", UID: "opod-uid"},
		Spec:       v1alpha1.OffloadedPodSpec{HomeNamespace: "shop", HomeUID: "home-uid", Template: template},
	}
}

func bobsTerms(level v1alpha1.PodSecurityLevel) *grants.Terms {
	return &grants.Terms{Contract: "contract1", Consumer: bob, Level: level}
}

// TestPodFromTemplate compares with testdata/rich.out.yaml; KITH_UPDATE=1 writes it.
func TestPodFromTemplate(t *testing.T) {
	in := template(t, "rich.in.yaml")
	before := in.DeepCopy()
	pod := podFor(offloadedOf(in), bobsTerms(v1alpha1.PodSecurityBaseline))
	if !equality.Semantic.DeepEqual(&in, before) {
		t.Error("the template itself was changed: it belongs to the cache")
	}
	got, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "rich.out.yaml")
	if os.Getenv("KITH_UPDATE") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if want := list("cpu", "150m", "memory", "64Mi", "nvidia.com/gpu", "1", "pods", "1"); !equality.Semantic.DeepEqual(requestsOf(pod), want) {
		t.Errorf("requests %v, want %v", requestsOf(pod), want)
	}
}

func TestPrivilegedLevelKeepsPowerfulAnnotations(t *testing.T) {
	pod := podFor(offloadedOf(template(t, "rich.in.yaml")), bobsTerms(v1alpha1.PodSecurityPrivileged))
	if pod.Annotations["k8s.v1.cni.cncf.io/networks"] == "" || pod.Annotations["cdi.k8s.io/gpu"] == "" {
		t.Errorf("annotations: %v", pod.Annotations)
	}
}

func TestTokenVolumesOnly(t *testing.T) {
	spec := corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "kube-api-access-mine", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "other", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
		},
		Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-mine"}, {Name: "other"}}}},
	}
	forgetHomeIdentity(&spec)
	if len(spec.Volumes) != 2 || len(spec.Containers[0].VolumeMounts) != 2 {
		t.Errorf("volumes of the pod's own were taken: %+v", spec)
	}
}

func TestSilentPodsAskForNothing(t *testing.T) {
	pod := podFor(offloadedOf(corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}), bobsTerms("baseline"))
	if got := requestsOf(pod); !equality.Semantic.DeepEqual(got, list("pods", "1")) {
		t.Errorf("requests: %v", got)
	}
	// What it may write is limited all the same; see TestScratchOfSilentGuestsStaysWithinTheContract.
	if r := pod.Spec.Containers[0].Resources; len(r.Limits) != 1 || len(r.Requests) != 1 {
		t.Errorf("resources: %v", r)
	}
}

func TestRequests(t *testing.T) {
	container := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container(list("cpu", "100m"), nil)
	sidecar.RestartPolicy = &always
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		want corev1.ResourceList
	}{
		{"limits are requests", corev1.PodSpec{Containers: []corev1.Container{container(nil, list("cpu", "1", "hugepages-2Mi", "4Mi"))}},
			list("cpu", "1", "hugepages-2Mi", "4Mi")},
		{"requests before limits", corev1.PodSpec{Containers: []corev1.Container{container(list("cpu", "0"), list("cpu", "1"))}}, list()},
		{"containers add up", corev1.PodSpec{Containers: []corev1.Container{container(list("cpu", "1"), nil), container(list("cpu", "1"), nil)}}, list("cpu", "2")},
		{"init containers run before", corev1.PodSpec{InitContainers: []corev1.Container{container(list("cpu", "3"), nil)}, Containers: []corev1.Container{container(list("cpu", "1"), nil)}}, list("cpu", "3")},
		{"sidecars run beside", corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container(list("cpu", "1"), nil)}}, list("cpu", "1100m")},
		{"the pod as a whole", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("cpu", "4")}, Containers: []corev1.Container{container(nil, nil)}}, list("cpu", "4")},
		{"the pod as a whole, its containers in particular", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("cpu", "4")}, Containers: []corev1.Container{container(list("cpu", "1"), nil)}}, list("cpu", "2")},
		{"empty resources of the pod", corev1.PodSpec{Resources: &corev1.ResourceRequirements{}, Containers: []corev1.Container{container(list("memory", "1Gi"), nil)}}, list("memory", "1Gi")},
		{"overhead of home", corev1.PodSpec{Overhead: list("cpu", "1"), Containers: []corev1.Container{container(list("cpu", "1"), nil)}}, list("cpu", "1")},
	} {
		pod := podFor(offloadedOf(corev1.PodTemplateSpec{Spec: c.spec}), bobsTerms("baseline"))
		c.want[corev1.ResourcePods] = list("pods", "1")[corev1.ResourcePods]
		if got := requestsOf(pod); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSyncInPlace(t *testing.T) {
	in := template(t, "rich.in.yaml")
	pod := podFor(offloadedOf(in), bobsTerms("baseline"))
	pod.Labels["topology.kubernetes.io/zone"] = "here"
	pod.Annotations["cni/ip"] = "10.0.0.1"

	if changed, cannot := syncInPlace(pod.DeepCopy(), podFor(offloadedOf(in), bobsTerms("baseline"))); changed || len(cannot) > 0 {
		t.Errorf("nothing changed at home, yet: %v, %v", changed, cannot)
	}
	in.Labels = map[string]string{"app": "api"}
	in.Annotations = nil
	in.Spec.Containers[0].Image = "web:3"
	in.Spec.InitContainers[0].Image = "setup:2"
	in.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	changed, cannot := syncInPlace(pod, podFor(offloadedOf(in), bobsTerms("baseline")))
	if !changed || len(cannot) > 0 {
		t.Errorf("%v, %v", changed, cannot)
	}
	if pod.Labels["app"] != "api" || pod.Labels["pod-template-hash"] != "" || pod.Labels["topology.kubernetes.io/zone"] != "here" || pod.Labels[v1alpha1.LabelManagedBy] != "kith" {
		t.Errorf("labels: %v", pod.Labels)
	}
	if pod.Annotations["note"] != "" || pod.Annotations["cni/ip"] == "" || pod.Annotations[v1alpha1.AnnotationHomePod] != "shop/web-0" || pod.Annotations[annotationHomeKeys] != "l:app" {
		t.Errorf("annotations: %v", pod.Annotations)
	}
	if pod.Spec.Containers[0].Image != "web:3" || pod.Spec.InitContainers[0].Image != "setup:2" || *pod.Spec.ActiveDeadlineSeconds != 60 {
		t.Errorf("spec: %+v", pod.Spec)
	}
	in.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
	in.Spec.Containers[0].Name = "renamed"
	if _, cannot := syncInPlace(pod, podFor(offloadedOf(in), bobsTerms("baseline"))); !slices.Equal(cannot, []string{"spec.containers[renamed]", "spec.activeDeadlineSeconds"}) {
		t.Errorf("cannot: %v", cannot)
	}
}

func TestChecks(t *testing.T) {
	checker, err := newRules()
	if err != nil {
		t.Fatal(err)
	}
	volume := func(s corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
	}
	const privileged, baseline, restricted = v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted
	levels := []v1alpha1.PodSecurityLevel{privileged, baseline, restricted}
	for _, c := range []struct {
		name   string
		change func(*corev1.PodSpec)
		strict v1alpha1.PodSecurityLevel // the strictest level that takes it, "" when none does
		says   string
	}{
		{"a hardened pod", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			s.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		}, restricted, ""},
		{"an ordinary pod", func(*corev1.PodSpec) {}, baseline, "allowPrivilegeEscalation"},
		{"host network", func(s *corev1.PodSpec) { s.HostNetwork = true }, privileged, "spec.hostNetwork"},
		{"host PID", func(s *corev1.PodSpec) { s.HostPID = true }, privileged, "spec.hostPID"},
		{"host IPC", func(s *corev1.PodSpec) { s.HostIPC = true }, privileged, "spec.hostIPC"},
		{"host port", func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 53}} }, privileged, "hostPort 53"},
		{"privileged", func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
		}, privileged, "spec.containers (i).securityContext.privileged"},
		{"unmasked proc", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)}
		}, privileged, "procMount"},
		{"sysctl", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax"}}}
		}, privileged, "SysctlForbidden: "},
		{"sysctl beside another wish", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax"}}}
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		}, privileged, "PodSecurity: "},
		{"host path", volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), privileged, "spec.volumes[0] (v)"},
		{"NFS", volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), privileged, "spec.volumes[0] (v)"},
		{"iSCSI", volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}), privileged, "spec.volumes[0] (v)"},
		{"inline CSI", volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), privileged, "spec.volumes[0] (v)"},
		{"emptyDir", volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), baseline, ""},
		{"no source, which is an emptyDir", volume(corev1.VolumeSource{}), baseline, ""},
		{"image", volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}), baseline, ""},
		{"config map", volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), baseline, ""},
		{"claim", volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), baseline, ""},
		{"ephemeral claim", volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), "", "not made of a pod's template"},
		{"token", volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}), "", "sources[1]"},
		{"resource claim", func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, "", "spec.resourceClaims[0] (gpu)"},
		{"negative request", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("cpu", "-10") }, "", "cpu -10 is negative"},
		{"negative limit", func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Limits: list("memory", "-1")} }, "", "memory -1 is negative"},
	} {
		taken := slices.Index(levels, c.strict)
		for i, level := range levels {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
			c.change(&pod.Spec)
			no := checker.check(pod, level)
			if (no == nil) != (i <= taken) {
				t.Errorf("%s at %s: %v", c.name, level, no)
			}
			if no != nil && i == taken+1 && !strings.Contains(no.Error(), c.says) {
				t.Errorf("%s at %s says %q, not %q", c.name, level, no, c.says)
			}
		}
	}
}

func TestMalformedTemplatesAreRefusedNotDropped(t *testing.T) {
	for _, spec := range []any{"text", map[string]any{"template": "text"}, map[string]any{"template": map[string]any{"spec": map[string]any{"containers": map[string]any{}}}}} {
		u := NewOffloaded()
		u.SetName("x")
		u.SetNamespace("y")
		u.SetFinalizers([]string{v1alpha1.FinalizerOffloadedPod})
		u.Object["spec"] = spec
		_ = unstructured.SetNestedField(u.Object, "Accepted", "status", "phase")
		opod, no := typed(u)
		if no == nil || opod.Name != "x" || !held(opod) || opod.Status.Phase != v1alpha1.OffloadedPodAccepted {
			t.Errorf("%v: %v, %+v", spec, no, opod)
		}
	}
}

func TestGraceAsked(t *testing.T) {
	for value, want := range map[string]*int64{"": nil, "0": ptr.To[int64](0), "30": ptr.To[int64](30), "-1": nil, "x": nil, "99999999999": nil} {
		opod := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationGrace: value}}}
		if got := graceAsked(opod); !ptr.Equal(got, want) {
			t.Errorf("%q: %v", value, got)
		}
	}
}

// TestGuestsAreToldOfServicesAsAtHome: by variables that all others they are given go before, unless they want none.
func TestGuestsAreToldOfServicesAsAtHome(t *testing.T) {
	for wants, told := range map[*bool]bool{nil: true, ptr.To(true): true, ptr.To(false): false} {
		own := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{}}
		spec := corev1.PodSpec{EnableServiceLinks: wants, InitContainers: []corev1.Container{{}}, Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{own}}}}
		linkServices(&spec)
		first, init := spec.Containers[0].EnvFrom[0].ConfigMapRef, len(spec.InitContainers[0].EnvFrom)
		if (first != nil && first.Name == Links && *first.Optional) != told || (init == 1) != told || *spec.EnableServiceLinks {
			t.Errorf("%v: %+v", wants, spec)
		}
		if last := spec.Containers[0].EnvFrom[len(spec.Containers[0].EnvFrom)-1]; last.SecretRef == nil {
			t.Errorf("%v: its own do not come last: %+v", wants, spec.Containers[0].EnvFrom)
		}
	}
}

// Where the contract grants no storage, no claim was made: the pod would wait for ever.
func TestClaimsNeedStorageInTheContract(t *testing.T) {
	spec := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "scratch"}, {Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}
	if no := checkClaims(spec, list("cpu", "1", "storage", "1Gi")); no != nil {
		t.Error(no)
	}
	for _, limit := range []corev1.ResourceList{nil, list("cpu", "1"), list("storage", "0")} {
		if no := checkClaims(spec, limit); no == nil || no.Reason != grants.ReasonNotSupported || !strings.Contains(no.Message, "spec.volumes[1] (v)") {
			t.Errorf("%v: %v", limit, no)
		}
	}
	if no := checkClaims(&corev1.PodSpec{Volumes: spec.Volumes[:1]}, nil); no != nil {
		t.Error(no)
	}
}
