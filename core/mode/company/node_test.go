package company

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

func taint(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

func onNodes(labels map[string]string, taints ...corev1.Taint) func(*v1alpha1.TetherPolicySpec) {
	return func(s *v1alpha1.TetherPolicySpec) { s.Node = v1alpha1.TetheredNode{Labels: labels, Taints: taints} }
}

func nodeOf(peer string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodePrefix + peer, Labels: map[string]string{v1alpha1.LabelPeer: peer, "kubernetes.io/os": "linux"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{taint(v1alpha1.TaintPeer, peer)}},
	}
}

func (w *world) node(peer string) *corev1.Node {
	w.Helper()
	var n corev1.Node
	if err := w.client.Get(w.Context(), client.ObjectKey{Name: v1alpha1.VirtualNodePrefix + peer}, &n); err != nil {
		w.Fatal(err)
	}
	return &n
}

// shown are labels and taints of a node, but for those of every peer's.
func shown(n *corev1.Node) string {
	var all []string
	for key, value := range n.Labels {
		if key != v1alpha1.LabelPeer && key != "kubernetes.io/os" {
			all = append(all, key+"="+value)
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Key != v1alpha1.TaintPeer {
			all = append(all, t.Key+"="+t.Value+":")
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

func TestNodesCarryWhatThePolicySays(t *testing.T) {
	staff := policy("staff", onNodes(map[string]string{"corp/desk": "yes", "corp/floor": "2"}, taint("corp/laptop", "yes")))
	w := newWorld(t, staff, laptop("alice", alice, tethered), nodeOf("alice"), nodeOf("bob"), laptop("bob", bob))
	is := func(when, want string) {
		t.Helper()
		w.reconcile("alice")
		if got := shown(w.node("alice")); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	is("first", "[corp/desk=yes corp/floor=2 corp/laptop=yes: kith.dev/tethered=true]")

	// What an administrator does by hand stays, also of what the policy says.
	n := w.node("alice")
	w.change(n, func() {
		n.Spec.Unschedulable = true
		n.Labels["corp/floor"], n.Labels["mine"] = "3", "1"
		delete(n.Labels, "corp/desk")
		n.Spec.Taints = append(n.Spec.Taints, taint("mine", "1"))
	})
	is("by hand", "[corp/floor=3 corp/laptop=yes: kith.dev/tethered=true mine=1 mine=1:]")

	p := &v1alpha1.TetherPolicy{ObjectMeta: metav1.ObjectMeta{Name: "staff"}}
	w.change(p, func() { onNodes(map[string]string{"corp/desk": "no"}, taint("corp/laptop", "of-staff"))(&p.Spec) })
	is("another policy", "[corp/desk=no corp/floor=3 corp/laptop=of-staff: kith.dev/tethered=true mine=1 mine=1:]")
	w.change(p, func() { onNodes(nil)(&p.Spec) })
	is("a policy that says nothing", "[corp/floor=3 kith.dev/tethered=true mine=1 mine=1:]")
	if !w.node("alice").Spec.Unschedulable {
		t.Error("the cordon was lifted")
	}

	w.change(p, func() { onNodes(map[string]string{"corp/desk": "yes"})(&p.Spec) })
	if err := w.client.Delete(t.Context(), w.node("alice")); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Create(t.Context(), nodeOf("alice")); err != nil {
		t.Fatal(err)
	}
	is("a node that was made anew", "[corp/desk=yes kith.dev/tethered=true]")

	a := w.peer("alice")
	w.change(a, func() { a.Spec.Tethered = nil })
	is("after the end", "[]")
	if n := w.node("alice"); n.Annotations[v1alpha1.AnnotationTetherNode] != "" {
		t.Errorf("%v", n.Annotations)
	}
	if got := shown(w.node("bob")); got != "[]" {
		t.Errorf("an ordinary peer's: %s", got)
	}
}

// A DaemonSet makes its pods anew on a node that is drained, as long as the node is one for it.
func TestANodeThatIsLeftIsNoneForDaemonSets(t *testing.T) {
	for name, leave := range map[string]func(*v1alpha1.Peer){
		"the tether ended":   func(p *v1alpha1.Peer) { p.Spec.Tethered, p.Spec.Request = nil, nil },
		"the contract ended": func(p *v1alpha1.Peer) { p.Status.Outgoing.State = v1alpha1.StateEnding },
	} {
		contract := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "alice-out"}, Spec: v1alpha1.ContractSpec{Peer: "alice", Role: v1alpha1.RoleConsumer}}
		w := newWorld(t, policy("staff"), laptop("alice", alice, tethered, outgoing(v1alpha1.StateConnected, 1)), nodeOf("alice"), contract)
		if w.reconcile("alice"); shown(w.node("alice")) != "[kith.dev/tethered=true]" {
			t.Fatal(shown(w.node("alice")))
		}
		p := w.peer("alice")
		w.change(p, func() { leave(p) })
		if w.reconcile("alice"); shown(w.node("alice")) != "[]" {
			t.Errorf("%s: %s", name, shown(w.node("alice")))
		}
	}
}

func TestWhatNoPolicyPutsOnANode(t *testing.T) {
	labels := map[string]string{"fine": "1"}
	taints := []corev1.Taint{taint("fine", "")}
	for _, key := range []string{"kubernetes.io/arch", "node.kubernetes.io/x", "topology.kubernetes.io/zone", "x.k8s.io/y", "kith.dev/peer", "a.kith.dev/x", "type", "a b", "/x"} {
		labels[key] = "x"
		taints = append(taints, taint(key, "x"))
	}
	labels["value"] = "a b"
	w := newWorld(t, policy("staff", onNodes(labels, taints...)), laptop("alice", alice, tethered), nodeOf("alice"))
	w.reconcile("alice")
	if got := shown(w.node("alice")); got != "[fine=1 fine=: kith.dev/tethered=true]" {
		t.Error(got)
	}
	if n := w.node("alice"); n.Labels[v1alpha1.LabelPeer] != "alice" || n.Labels["kubernetes.io/os"] != "linux" {
		t.Errorf("%v", n.Labels)
	}
	if why := w.peer("alice").Status.Tether.Why; !strings.Contains(why, "kubernetes.io/arch") || !strings.Contains(why, "taint") && len(why) < maxWhy {
		t.Errorf("%q", why)
	}
}

// A node that is called like a peer's, and is none, is somebody's own.
func TestARealNodeIsNotMarked(t *testing.T) {
	real := nodeOf("alice")
	delete(real.Labels, v1alpha1.LabelPeer)
	w := newWorld(t, policy("staff", onNodes(map[string]string{"a": "b"})), laptop("alice", alice, tethered), real)
	w.reconcile("alice")
	if got := w.node("alice"); len(got.Labels) != 1 || len(got.Annotations) != 0 {
		t.Errorf("%v", got.ObjectMeta)
	}
}
