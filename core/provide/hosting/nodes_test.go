package hosting

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

func TestWhatIsSaidOfTheMachineIsTrueOfAllNodes(t *testing.T) {
	node := func(name, kernel, runtime string, features ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: fencedLabels}, Status: corev1.NodeStatus{
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
		"one has no fence":    {[]corev1.Node{one, {Status: two.Status}}, remote.Machine{KernelVersion: "6.12", BootID: "boot of a", ContainerRuntimeVersion: "containerd://2.2", DeclaredFeatures: []string{"A", "B", "C"}}},
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

// fencedLabels are those of a node where a fence is alive.
var fencedLabels = map[string]string{v1alpha1.LabelFenced: "true"}

func TestWhenNoNodeTakesGuests(t *testing.T) {
	node := func(cordoned bool, conditions ...corev1.NodeConditionType) any {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: fencedLabels}, Spec: corev1.NodeSpec{Unschedulable: cordoned, Taints: []corev1.Taint{
			{Key: "example.com/mine", Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule}, // of an hour ago
		}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
		for _, is := range conditions {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: is, Status: corev1.ConditionTrue})
		}
		return n
	}
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelPeer: "carol"}}}
	for name, c := range map[string]struct {
		nodes []any
		want  string
	}{
		"none is known yet":                {nil, ""},
		"open, not Ready, with a taint":    {[]any{node(false)}, ""},
		"cordoned":                         {[]any{node(true, corev1.NodeDiskPressure)}, "cordoned"},
		"one of two is open":               {[]any{node(true), node(false)}, ""},
		"a virtual node takes no guests":   {[]any{node(true), virtual}, "cordoned"},
		"no fence is alive":                {[]any{&corev1.Node{}, virtual}, "unfenced"},
		"one is cordoned, one unfenced":    {[]any{&corev1.Node{}, node(true), &corev1.Node{}}, "cordoned"},
		"one is open, one unfenced":        {[]any{&corev1.Node{}, node(false)}, ""},
		"no room on the disk":              {[]any{node(false, corev1.NodeDiskPressure)}, "disk-pressure"},
		"no processes left":                {[]any{node(false, corev1.NodePIDPressure)}, "pid-pressure"},
		"little memory: guests ask for it": {[]any{node(false, corev1.NodeMemoryPressure)}, ""},
	} {
		if got := closedBy(c.nodes); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Every consumer is told, those that come later too, and nobody of anything else for it.
func TestConsumersAreToldThatNoNodeTakesGuests(t *testing.T) {
	g := newGallery(t)
	closed, open := []any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: fencedLabels}, Spec: corev1.NodeSpec{Unschedulable: true}}}, []any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: fencedLabels}}}
	views := g.host.views
	lines := func(one *stream) (told []string) {
		for {
			ref, is, ok := one.next()
			if !ok {
				return told
			}
			if ref.kind != remote.KindClosed {
				continue
			}
			line, err := one.line(ref, is, func(objectRef) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, string(line))
		}
	}
	early := newStream(func(error) {})
	views.enter(g.bob.ID, early)
	views.fill(g.bob.ID, early)
	if got := lines(early); len(got) != 0 {
		t.Errorf("while a node is open: %q", got)
	}
	views.nodesChanged(closed)
	views.nodesChanged(closed)
	late := newStream(func(error) {})
	views.enter(g.carol.ID, late)
	views.fill(g.carol.ID, late)
	const says = `{"kind":"Closed","object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":"cordoned"}}}}` + "\n"
	for name, one := range map[string]*stream{"who was there": early, "who came then": late} {
		if got := lines(one); len(got) != 1 || got[0] != says {
			t.Errorf("%s is told %q", name, got)
		}
	}
	views.nodesChanged(open)
	for _, one := range []*stream{early, late} {
		if got := lines(one); len(got) != 1 || got[0] != `{"kind":"Closed","gone":true,"object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":""}}}}`+"\n" {
			t.Errorf("open again: %q", got)
		}
	}
}
