package hosting

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/guests"
)

// The engine finds out some moments after kithd has read what guests get: they would run without until a peering changes.
func TestTermsFollowWhatNodesSayOfUserNamespaces(t *testing.T) {
	node := func(word, peer string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "bob", Labels: map[string]string{v1alpha1.LabelPeer: peer}, Annotations: map[string]string{v1alpha1.AnnotationUserNamespaces: word},
		}}
	}
	for _, c := range []struct {
		was, is *corev1.Node
		news    bool
	}{
		{node("", ""), node("yes", ""), true},
		{node("yes", ""), node("no such file", ""), true},
		{node("yes", ""), node("yes", ""), false},
		{node("", "alice"), node("yes", "alice"), false},
	} {
		e := event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}
		if got := guests.Updates(nodeChanged).Update(e); got != c.news {
			t.Errorf("%v to %v: %t, want %t", c.was.Annotations, c.is.Annotations, got, c.news)
		}
	}
}

// A twin with its bare name is known by who wrote its labels, which the cache must not forget: else each news of its namespace would
// make it somebody else's.
func TestATwinWithItsBareNameIsOneInTheCacheToo(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	d := newProvider(t, peer, contractWith("bob", "contractb"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: bob.Compact, v1alpha1.LabelHomeNamespace: "shop", v1alpha1.LabelContract: "contractb",
	}, ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:note":{}}}}`)},
		{Manager: v1alpha1.ManagedBy, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kith.dev/consumer":{}}}}`)},
	}}}
	options := CacheOptions()
	transform := options.DefaultTransform
	for o, by := range options.ByObject {
		if _, ok := o.(*corev1.Namespace); ok {
			transform = by.Transform
		}
	}
	kept, err := transform(ns)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, is := d.contracts.NamespaceChanged(kept.(*corev1.Namespace), false); !is || len(ns.ManagedFields) != 1 {
		t.Errorf("it is a twin: %t, with %d writers", is, len(ns.ManagedFields))
	}
}
