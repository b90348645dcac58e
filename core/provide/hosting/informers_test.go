package hosting

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// The owner's events, and those in a twin that a consumer is not told of, are kept by name alone.
func TestWhatIsKeptOfEvents(t *testing.T) {
	g := newGallery(t)
	c := fake.NewClientset()
	for namespace, list := range map[string][]string{"default": {"PersistentVolumeClaim"}, bobsShop: {"PersistentVolumeClaim", "Secret", "Endpoints"}} {
		for _, kind := range list {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kind}, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: "x"}, Message: "words"}
			if err := c.Tracker().Add(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	informer := g.host.events(c, otherEvents)
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("it does not sync")
	}
	for _, o := range informer.GetStore().List() {
		e := o.(*corev1.Event)
		want := e.Namespace == bobsShop && e.Name != "Endpoints"
		if has := e.Message != ""; has != want || ofTravelled(e) != want {
			t.Errorf("%s/%s: %+v", e.Namespace, e.Name, e)
		}
	}
	if n := len(informer.GetStore().List()); n != 4 {
		t.Errorf("%d events", n)
	}
}
