package guests

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmountsOfEvents(t *testing.T) {
	docs.Say(t, "security.md",
		fmt.Sprintf("| events about its refused pods | %d, then one in %v s, for each namespace |", eventsBurst, 1/eventsPerSecond))
}

func TestEventsAboutANamespaceAreFew(t *testing.T) {
	told := events.NewFakeRecorder(1000)
	r := newProvider(t).host(told)
	about := func(namespace string) (said int) {
		for i := range 300 {
			r.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(i)}}, corev1.EventTypeWarning, "Refused", "no")
		}
		for ; len(told.Events) > 0; said++ {
			<-told.Events
		}
		return said
	}
	for _, namespace := range []string{"shop", "market"} { // one does not silence the other
		if n := about(namespace); n < eventsBurst || n > eventsBurst+2 {
			t.Errorf("%s: %d events of 300", namespace, n)
		}
	}
}
