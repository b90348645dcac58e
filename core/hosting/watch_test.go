package hosting

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/guests"
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
		if got := own().Update(e) && guests.Updates(nodeElse).Update(e); got != c.news {
			t.Errorf("%v to %v: %t, want %t", c.was.Annotations, c.is.Annotations, got, c.news)
		}
	}
}
