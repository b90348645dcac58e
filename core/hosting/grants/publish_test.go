package grants

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

func TestUseOfAContractIsWrittenHoweverFarBehindTheCacheIs(t *testing.T) {
	peer, _ := peerOf("bob", 1)
	d := newDesk(t, peer, contractWith("bob", "contractb"))
	var before v1alpha1.Contract
	get := func(into *v1alpha1.Contract) {
		t.Helper()
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: "bob-contractb"}, into); err != nil {
			t.Fatal(err)
		}
	}
	get(&before)
	cached := interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			before.DeepCopyInto(obj.(*v1alpha1.Contract))
			return nil
		},
	})
	if err := d.contracts.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { d.book.Enter(key(bobsShop, "p"), "contractb", list("cpu", "1")) }, "1"},
		{func() { d.book.Release(key(bobsShop, "p")) }, "0"},
	} {
		c.do()
		if err := d.contracts.publishOne(t.Context(), cached, d.book, "contractb"); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.Contract
		if get(&now); now.Status.Used.Cpu().String() != c.want {
			t.Errorf("used %v, want cpu %s", now.Status.Used, c.want)
		}
	}
}

// Of a cluster that is not ours its owner says by an annotation whether its nodes can; virtual nodes run no guests.
func TestGuestsHaveUserNamespacesWhereAllNodesCan(t *testing.T) {
	node := func(name, word string, labels map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if word != "" {
			n.Annotations = map[string]string{v1alpha1.AnnotationUserNamespaces: word}
		}
		return n
	}
	virtual := node("kith-alice", "", map[string]string{v1alpha1.LabelPeer: "alice"})
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  bool
	}{
		"none":                  {[]*corev1.Node{virtual}, false},
		"one that can":          {[]*corev1.Node{node("a", "yes", nil), virtual}, true},
		"one that says nothing": {[]*corev1.Node{node("a", "", nil)}, false},
		"one that cannot":       {[]*corev1.Node{node("a", "yes", nil), node("b", "the kernel is too old", nil)}, false},
	} {
		d := newDesk(t)
		for _, n := range c.nodes {
			if err := d.client.Create(t.Context(), n.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.contracts.userNamespaces(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
