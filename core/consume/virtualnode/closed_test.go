package virtualnode

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// While none of the peer's nodes takes pods the scheduler here is to take another; what its owner did to the node stays.
func TestANodeWhosePeerTakesNoPodsIsClosed(t *testing.T) {
	standing(t, func(s *stand) {
		s.say(synced) // before the node is registered
		own := corev1.Taint{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kith-bob"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{own}, Unschedulable: true}}
		closed := func(why string) string {
			return `{"kind":"Closed","object":{"metadata":{"name":"closed","labels":{"kith.dev/closed":"` + why + `"}}}}`
		}
		is := func(what, want string) {
			t.Helper()
			time.Sleep(time.Minute) // whatever is tried again
			now, err := s.home.CoreV1().Nodes().Get(t.Context(), "kith-bob", metav1.GetOptions{})
			if err != nil {
				s.Fatal(err)
			}
			var got []string
			for _, taint := range now.Spec.Taints {
				got = append(got, taint.ToString())
			}
			if strings.Join(got, " ") != strings.TrimSpace(own.ToString()+" "+want) || !now.Spec.Unschedulable {
				s.Errorf("%s: %q, cordoned at home %t", what, got, now.Spec.Unschedulable)
			}
		}
		s.say(closed("cordoned"))
		if err := s.home.Tracker().Add(node); err != nil {
			s.Fatal(err)
		}
		is("registered after it was said", v1alpha1.TaintClosed+"=cordoned:NoSchedule")
		s.say(closed("disk-pressure"))
		is("for another reason", v1alpha1.TaintClosed+"=disk-pressure:NoSchedule")
		s.say(closed("no label's value!"))
		is("in words that no taint can have", v1alpha1.TaintClosed+"=unknown:NoSchedule")
		s.say(`{"kind":"Closed","gone":true,"object":{"metadata":{"name":"closed"}}}`)
		is("open again", "")
	})
}
