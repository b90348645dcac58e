package hosting

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/remote"
)

func TestWhenNoNodeTakesGuests(t *testing.T) {
	node := func(cordoned bool, taints ...string) any {
		n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: cordoned}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelPeer: "carol"}}}
	for name, c := range map[string]struct {
		nodes []any
		want  string
	}{
		"none is known yet":                 {nil, ""},
		"open":                              {[]any{node(false)}, ""},
		"cordoned":                          {[]any{node(true, corev1.TaintNodeUnschedulable)}, "cordoned"},
		"one of two is open":                {[]any{node(true), node(false)}, ""},
		"a virtual node takes no guests":    {[]any{node(true), virtual}, "cordoned"},
		"no room on the disk":               {[]any{node(false, corev1.TaintNodeDiskPressure)}, "disk-pressure"},
		"no processes left":                 {[]any{node(false, corev1.TaintNodePIDPressure)}, "pid-pressure"},
		"little memory: guests ask for it":  {[]any{node(false, corev1.TaintNodeMemoryPressure)}, ""},
		"not Ready for a moment, on waking": {[]any{node(false, corev1.TaintNodeNotReady)}, ""},
		"a taint of the owner's":            {[]any{node(false, "example.com/mine")}, ""},
	} {
		if got := closedBy(c.nodes); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Every consumer is told, those that come later too, and nobody of anything else for it.
func TestConsumersAreToldThatNoNodeTakesGuests(t *testing.T) {
	g := newGallery(t)
	closed, open := []any{&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}}, []any{&corev1.Node{}}
	views := g.host.views
	lines := func(one *viewer) (told []string) {
		for {
			ref, is, ok := one.next()
			if !ok {
				return told
			}
			if ref.kind != remote.KindClosed {
				continue
			}
			line, err := one.line(ref, is, func(viewed) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, string(line))
		}
	}
	early := newViewer(func(error) {})
	views.enter(g.bob.ID, early)
	views.fill(g.bob.ID, early)
	if got := lines(early); len(got) != 0 {
		t.Errorf("while a node is open: %q", got)
	}
	views.nodesChanged(closed)
	views.nodesChanged(closed)
	late := newViewer(func(error) {})
	views.enter(g.carol.ID, late)
	views.fill(g.carol.ID, late)
	const says = `{"kind":"Closed","object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":"cordoned"}}}}` + "\n"
	for name, one := range map[string]*viewer{"who was there": early, "who came then": late} {
		if got := lines(one); len(got) != 1 || got[0] != says {
			t.Errorf("%s is told %q", name, got)
		}
	}
	views.nodesChanged(open)
	for _, one := range []*viewer{early, late} {
		if got := lines(one); len(got) != 1 || got[0] != `{"kind":"Closed","gone":true,"object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":""}}}}`+"\n" {
			t.Errorf("open again: %q", got)
		}
	}
}
