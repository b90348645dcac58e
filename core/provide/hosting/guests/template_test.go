package guests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/wire/wiretest"
)

func TestAmountsThatCannotBeParsedAreNotTried(t *testing.T) {
	for _, c := range []struct{ path, value, want string }{
		{"containers.resources.requests.cpu", "1e-99999999", "spec.template.spec.containers[0].resources.requests.cpu"},
		{"containers.resources.limits.memory", "1e999999999999", "spec.template.spec.containers[0].resources.limits.memory"},
		{"volumes.emptyDir.sizeLimit", strings.Repeat("9", 100_000), "spec.template.spec.volumes[0].emptyDir.sizeLimit"},
		{"overhead.cpu", "1E-999", "spec.template.spec.overhead.cpu"},
		{"containers.resources.requests.cpu", "1500m", ""},
		{"containers.resources.requests.memory", "1.5Gi", ""},
		{"containers.resources.requests.memory", "12e6", ""},
		{"containers.resources.requests.memory", "-1", ""},
	} {
		var v any = c.value
		steps := strings.Split(c.path, ".")
		for i := len(steps) - 1; i >= 0; i-- {
			v = map[string]any{steps[i]: v}
			if steps[i] == "containers" || steps[i] == "volumes" {
				v = map[string]any{steps[i]: []any{v.(map[string]any)[steps[i]]}}
			}
		}
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x", "namespace": "y"}, "spec": map[string]any{"template": map[string]any{"spec": v}}}}
		opod, no := typed(u)
		if (no != nil) != (c.want != "") || no != nil && !strings.Contains(no.Message, c.want+": ") {
			t.Errorf("%s=%.40s: %v, want %q", c.path, c.value, no, c.want)
		}
		if opod.Name != "x" {
			t.Errorf("%s: the name is lost", c.path)
		}
	}
	env := map[string]any{"homeNamespace": "y", "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"env": []any{map[string]any{"name": "A", "value": "1e-99999999"}}}}}}}
	if _, no := typed(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "spec": env}}); no != nil {
		t.Errorf("an environment variable is taken for an amount: %v", no)
	}
}

func TestTheGreaterOfPodAndContainersCounts(t *testing.T) {
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Resources:  &corev1.ResourceRequirements{Requests: list("8Mi")},
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("300Mi")}}},
	}}
	if q := requestsOf(pod)[corev1.ResourceMemory]; q.String() != "300Mi" {
		t.Errorf("containers ask for more than their pod: %s count", q.String())
	}
	pod.Spec.Resources.Requests = list("400Mi")
	if q := requestsOf(pod)[corev1.ResourceMemory]; q.String() != "400Mi" {
		t.Errorf("the pod asks for more: %s count", q.String())
	}
}

func TestAnOrphanedGuestIsStillOurs(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, Annotations: map[string]string{v1alpha1.AnnotationHomePod: "shop/web"},
	}}
	opod := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	if how := stateOf(opod, pod); how != stale {
		t.Errorf("without owner: %s", how)
	}
	pod.Annotations = nil
	if how := stateOf(opod, pod); how != foreign {
		t.Errorf("somebody else's pod: %s", how)
	}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: types.UID("2"), Controller: ptr.To(true)}}
	pod.Annotations = map[string]string{v1alpha1.AnnotationHomePod: "shop/web"}
	if how := stateOf(opod, pod); how != foreign {
		t.Errorf("a controller's pod: %s", how)
	}
}

// FuzzTemplate has a consumer write any pod template: what passes has no power over the host, and costs no time.
func FuzzTemplate(f *testing.F) {
	f.Add([]byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1e3","memory":"1Gi"},"limits":{"cpu":"2"}}}]}}`))
	f.Add([]byte(`{"spec":{"hostNetwork":true,"overhead":{"cpu":"1e-9999"},"volumes":[{"name":"v","hostPath":{"path":"/"}},{"name":"e","emptyDir":{"sizeLimit":"1e9"}}]}}`))
	f.Add([]byte(`{"spec":{"initContainers":[{"restartPolicy":"Always","securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}},"ports":[{"hostPort":1}]}],"resources":{"limits":{"memory":"-1"}}}}`))
	check, err := newRules()
	if err != nil {
		f.Fatal(err)
	}
	terms := bobsTerms(v1alpha1.PodSecurityBaseline)
	f.Fuzz(func(t *testing.T, text []byte) {
		var content map[string]any
		if utiljson.Unmarshal(text, &content) != nil {
			return
		}
		u := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "x", "namespace": "y"}, "spec": map[string]any{"homeNamespace": "shop", "template": content},
		}}
		var opod *v1alpha1.OffloadedPod
		var no *grants.Refusal
		wiretest.Within(t, 2*len(text), func() { opod, no = typed(u) }) // which writes it as text first
		if no != nil {
			return
		}
		pod := podFor(opod, terms)
		if check.check(pod, v1alpha1.PodSecurityBaseline) != nil {
			return
		}
		if s := &pod.Spec; s.HostNetwork || s.HostPID || s.HostIPC || s.NodeName != "" || s.ServiceAccountName != "" || *s.AutomountServiceAccountToken || s.RuntimeClassName != nil || s.Overhead != nil {
			t.Fatalf("%s passes", text)
		}
		for _, v := range pod.Spec.Volumes {
			if v.HostPath != nil || v.NFS != nil || v.CSI != nil || v.PersistentVolumeClaim != nil {
				t.Fatalf("%s passes", text)
			}
		}
		eachContainer(&pod.Spec, func(c *corev1.Container) {
			if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
				t.Fatalf("%s passes", text)
			}
		})
		for name, q := range requestsOf(pod) {
			if q.Sign() <= 0 {
				t.Fatalf("%s: %s of %s", text, q.String(), name)
			}
		}
	})
}
