package hosting

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/remote"
)

func TestWhatIsSaidOfTheMachineIsTrueOfAllNodes(t *testing.T) {
	node := func(name, kernel, runtime string, features ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: kernel, ContainerRuntimeVersion: runtime, BootID: "boot of " + name}, DeclaredFeatures: features,
		}}
	}
	virtual := node("kith-carol", "9.9", "else", "Lies")
	virtual.Labels = map[string]string{v1alpha1.LabelPeer: "carol"}
	one, two := node("a", "6.12", "containerd://2.2", "A", "B", "C"), node("b", "6.13", "containerd://2.2", "C", "A")
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  remote.Machine
	}{
		"none":                {[]corev1.Node{virtual}, remote.Machine{}},
		"one":                 {[]corev1.Node{virtual, one}, remote.Machine{KernelVersion: "6.12", BootID: "boot of a", ContainerRuntimeVersion: "containerd://2.2", DeclaredFeatures: []string{"A", "B", "C"}}},
		"two":                 {[]corev1.Node{one, virtual, two}, remote.Machine{KernelVersion: "", BootID: "", ContainerRuntimeVersion: "containerd://2.2", DeclaredFeatures: []string{"A", "C"}}},
		"two, one says none":  {[]corev1.Node{one, node("c", "6.12", "containerd://2.2")}, remote.Machine{KernelVersion: "6.12", BootID: "", ContainerRuntimeVersion: "containerd://2.2", DeclaredFeatures: []string{}}},
		"two, the first none": {[]corev1.Node{node("c", "6.12", ""), one}, remote.Machine{KernelVersion: "6.12"}},
	} {
		got := machineOf(c.nodes)
		if len(got.DeclaredFeatures) == 0 && len(c.want.DeclaredFeatures) == 0 {
			got.DeclaredFeatures, c.want.DeclaredFeatures = nil, nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if len(one.Status.DeclaredFeatures) != 3 || one.Status.DeclaredFeatures[1] != "B" {
		t.Errorf("what the cache holds was changed: %v", one.Status.DeclaredFeatures)
	}
}
