package supply

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func words(l corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		parts = append(parts, fmt.Sprintf("%s %s", name, q.String()))
	}
	return strings.Join(parts, ", ")
}

// pod requests something on a node.
func pod(node string, requests corev1.ResourceList, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: node}}
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: requests}}}
	for _, f := range change {
		f(&p)
	}
	return p
}

// fencedNode is one that takes guests.
func fencedNode(name string, allocatable corev1.ResourceList) (n corev1.Node) {
	n.Name, n.Labels, n.Status.Allocatable = name, map[string]string{v1alpha1.LabelFenced: "true"}, allocatable
	return n
}

func TestWhatMayBePromised(t *testing.T) {
	node := list("cpu", "8", "memory", "16Gi", "pods", "110")
	for name, c := range map[string]struct {
		Supply
		cpu, memory string
	}{
		"an idle laptop":           {Supply{Nodes: node}, "8", "16Gi"},
		"own pods":                 {Supply{Nodes: node, Own: list("cpu", "2", "memory", "1Gi")}, "6", "15Gi"},
		"one grant":                {Supply{Nodes: node, Granted: []corev1.ResourceList{list("cpu", "4")}}, "4", "16Gi"},
		"two grants, and own pods": {Supply{Nodes: node, Own: list("cpu", "500m"), Granted: []corev1.ResourceList{list("cpu", "4"), list("cpu", "2", "memory", "4Gi")}}, "1500m", "12Gi"},
		"more than there is":       {Supply{Nodes: node, Own: list("cpu", "6"), Granted: []corev1.ResourceList{list("cpu", "4")}}, "0", "16Gi"},
		"no node is known":         {Supply{Own: list("cpu", "6")}, "", ""},
	} {
		for resource, want := range map[corev1.ResourceName]string{"cpu": c.cpu, "memory": c.memory} {
			left, _, known := c.Left(resource)
			if known != (want != "") || known && left.String() != want {
				t.Errorf("%s: %s %s is left, known %v; want %s", name, resource, left.String(), known, want)
			}
		}
	}
}

func TestWhatDisksHaveRoomFor(t *testing.T) {
	const gi = int64(1 << 30)
	node := func(name, allocatable, capacity string) corev1.Node {
		n := fencedNode(name, list("ephemeral-storage", allocatable))
		n.Status.Capacity = list("ephemeral-storage", capacity)
		return n
	}
	closed := node("bob", "225Gi", "250Gi")
	closed.Labels = nil
	for name, c := range map[string]struct {
		nodes []corev1.Node
		on    string
		free  int64
		want  string
	}{
		"an empty disk":                   {[]corev1.Node{node("bob", "225Gi", "250Gi")}, "bob", 249 * gi, "224Gi"},
		"half of it is free":              {[]corev1.Node{node("bob", "225Gi", "250Gi")}, "bob", 64*gi + 5, "39Gi"},
		"less than the node itself keeps": {[]corev1.Node{node("bob", "225Gi", "250Gi")}, "bob", 20 * gi, "0"},
		"one of two is known":             {[]corev1.Node{node("bob", "225Gi", "250Gi"), node("two", "90Gi", "100Gi")}, "bob", 35 * gi, "100Gi"},
		"it takes no guests":              {[]corev1.Node{closed, node("two", "90Gi", "100Gi")}, "bob", 35 * gi, "nobody knows"},
		"none is known":                   {[]corev1.Node{node("bob", "225Gi", "250Gi")}, "", 0, "nobody knows"},
	} {
		got := "nobody knows"
		if room := Room(c.nodes, func() (string, int64) { return c.on, c.free }); room != nil {
			got = room.String()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if Room(nil, nil) != nil {
		t.Error("without a disk there is room")
	}
}

func TestWhatOwnPodsTake(t *testing.T) {
	laptop := list("cpu", "8", "memory", "16Gi", "pods", "110")
	small := list("cpu", "100m", "memory", "70Mi")
	guest := func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelConsumer: "alice"} }
	phase := func(is corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = is } }
	for name, c := range map[string]struct {
		pods  []corev1.Pod
		nodes corev1.ResourceList
		want  string
	}{
		"none":                      {nil, laptop, ""},
		"one":                       {[]corev1.Pod{pod("bob", small)}, laptop, "cpu 500m, memory 512Mi, pods 10"},
		"four, and it is the same":  {slices.Repeat([]corev1.Pod{pod("bob", small)}, 4), laptop, "cpu 500m, memory 512Mi, pods 10"},
		"eleven":                    {slices.Repeat([]corev1.Pod{pod("bob", small)}, 11), laptop, "cpu 1500m, memory 1Gi, pods 20"},
		"says nothing":              {[]corev1.Pod{pod("bob", nil)}, laptop, "pods 10"},
		"a device is a device":      {[]corev1.Pod{pod("bob", list("nvidia.com/gpu", "1"))}, laptop, "nvidia.com/gpu 1, pods 10"},
		"all there is, and no more": {[]corev1.Pod{pod("bob", list("cpu", "7800m"))}, list("cpu", "7900m", "pods", "110"), "cpu 7900m, pods 10"},
		"a guest":                   {[]corev1.Pod{pod("bob", small, guest)}, laptop, ""},
		"ended":                     {[]corev1.Pod{pod("bob", small, phase(corev1.PodSucceeded)), pod("bob", small, phase(corev1.PodFailed))}, laptop, ""},
		"at a peer":                 {[]corev1.Pod{pod("kith-carol", small)}, laptop, ""},
		"without a node":            {[]corev1.Pod{pod("", list("cpu", "100"))}, laptop, ""},
		"of a large cluster":        {[]corev1.Pod{pod("n1", small)}, list("cpu", "3200", "memory", "12Ti", "pods", "32000"), "cpu 100, memory 384Gi, pods 1k"},
	} {
		at := "bob"
		if name == "of a large cluster" {
			at = "n1"
		}
		unfenced := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "beside"}}
		if got := words(Own(append(c.pods, pod("beside", small), pod("unknown", small)), []corev1.Node{fencedNode(at, c.nodes), unfenced})); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What nodes without a living fence have, and those that stand for peers, is not promised.
func TestNodesThatTakeNoGuestsHaveNothing(t *testing.T) {
	node := func(labels map[string]string) corev1.Node {
		n := fencedNode("n", list("cpu", "4", "memory", "8Gi"))
		n.Labels = labels
		return n
	}
	fenced := map[string]string{v1alpha1.LabelFenced: "true"}
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  string
	}{
		"fenced, a peer, none, not, fenced": {[]corev1.Node{
			node(fenced), node(map[string]string{v1alpha1.LabelPeer: "carol", v1alpha1.LabelFenced: "true"}), node(nil), node(map[string]string{v1alpha1.LabelFenced: "false"}), node(fenced),
		}, "cpu 8, memory 16Gi"},
		"no fence is alive": {[]corev1.Node{node(nil), node(nil)}, ""},
	} {
		if got := words(Nodes(c.nodes)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What is taken off an own pod is what nobody counts, and of guests and travellers nothing is.
func TestSlim(t *testing.T) {
	full := func(change ...func(*corev1.Pod)) *corev1.Pod {
		always := corev1.ContainerRestartPolicyAlways
		p := pod("bob", list("cpu", "1"), append(change, func(p *corev1.Pod) {
			p.Annotations, p.ManagedFields = map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{Manager: "m"}}
			p.OwnerReferences = []metav1.OwnerReference{{Name: "set"}}
			p.Spec.Volumes = []corev1.Volume{{Name: "data"}}
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 53, HostPort: 53}}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 10000)}}
			p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always, Args: []string{"x"},
				Resources: corev1.ResourceRequirements{Requests: list("cpu", "500m")}}}
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.42.0.7"}}
		})...)
		return &p
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		slim   bool
	}{
		"own":            {func(*corev1.Pod) {}, true},
		"a guest":        {func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelConsumer: "alice"} }, false},
		"at a peer":      {func(p *corev1.Pod) { p.Spec.NodeName = "kith-carol" }, false},
		"without a node": {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
	} {
		whole := full(c.change)
		got, err := Slim(full(c.change))
		slimmed, ok := got.(*corev1.Pod)
		if err != nil || !ok || slimmed.ManagedFields != nil {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		small, _ := json.Marshal(slimmed)
		if (len(small) < 1000) != c.slim || (slimmed.Annotations == nil) != c.slim {
			t.Errorf("%s: %d bytes", name, len(small))
		}
		all := []corev1.Node{fencedNode("bob", list("cpu", "8", "pods", "110"))}
		if a, b := words(Own([]corev1.Pod{*whole}, all)), words(Own([]corev1.Pod{*slimmed}, all)); a != b {
			t.Errorf("%s: counted %q, slim %q", name, a, b)
		}
		if slimmed.Status.PodIPs == nil || slimmed.OwnerReferences == nil || slimmed.Spec.NodeName != whole.Spec.NodeName ||
			!slices.ContainsFunc(slimmed.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.HostPort == 53 }) {
			t.Errorf("%s: %+v", name, slimmed)
		}
	}
	if got, err := Slim("not a pod"); err != nil || got != "not a pod" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestVolumesAreOnTheDisksHere: what others have of scratch space leaves no more room for them, and what of it was promised may be used here.
func TestVolumesAreOnTheDisksHere(t *testing.T) {
	const here, all = "100Gi", "300Gi" // of which others have 200Gi
	for what, c := range map[string]struct {
		granted          []corev1.ResourceList
		scratch, volumes string
	}{
		"nothing is promised": {nil, "280Gi", "80Gi"},
		"scratch space is":    {[]corev1.ResourceList{list("ephemeral-storage", "50Gi")}, "230Gi", "30Gi"},
		"more than is here":   {[]corev1.ResourceList{list("ephemeral-storage", "150Gi")}, "130Gi", "0"},
		"volumes are":         {[]corev1.ResourceList{list("storage", "50Gi")}, "230Gi", "30Gi"},
	} {
		s := Supply{Nodes: list("ephemeral-storage", all, "storage", here), Granted: c.granted, Room: new(resource.MustParse("80Gi")), Scratch: resource.MustParse("200Gi")}
		for name, want := range map[corev1.ResourceName]string{"ephemeral-storage": c.scratch, "storage": c.volumes} {
			if left, _, _ := s.Left(name); left.String() != want {
				t.Errorf("%s: %s %s is left, want %s", what, left.String(), name, want)
			}
		}
	}
}
