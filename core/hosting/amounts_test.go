package hosting

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/apiproxy"
	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	l, none, one := apiproxy.DefaultLimits(), mostFor(nil), mostFor(list("pods", "1"))
	docs.Say(t, "security.md",
		fmt.Sprintf("| kept in the API server | %d objects and %d for each pod granted, %d MiB and %d KiB for each; %d namespaces |",
			none.Objects, one.Objects-none.Objects, none.Bytes>>20, (one.Bytes-none.Bytes)>>10, maxTwins),
		fmt.Sprintf("| requests to the API server | %v a second, %d at once after a rest; %d under way; %d streams |",
			l.Rate, l.Burst, l.Requests, l.Streams),
		fmt.Sprintf("| %d, of which a newer takes the place of the oldest; opened %d times at once, then once in %v s; %d objects that wait to be told |",
			maxViews, viewsBurst, viewsEvery.Seconds(), maxUntold),
		fmt.Sprintf("| %d under way; others wait for their turn, %v s at most |", l.Lists, l.Turn.Seconds()),
		fmt.Sprintf("| picking its guests out of what kubelets say | once in %v s |", usageFor.Seconds()),
		fmt.Sprintf("| bodies | %d MiB each, %d MiB under way,", l.Body>>20, l.Bodies>>20),
		fmt.Sprintf("| labels, annotations, finalizers of an object | %d, %d of %d KiB, %d |", maxMarks, maxMarks, maxMark>>10, maxFinalizers),
		fmt.Sprintf("| %d; %d, each of which counts as %d bytes that are kept |", maxPorts, maxPairs, 32),
		fmt.Sprintf("| entries of a ConfigMap or Secret | %d |", maxEntries),
		fmt.Sprintf("| events about its refused pods | %d, then one in %v s, for each namespace |", eventsBurst, 1/eventsPerSecond),
	)
}

func TestEventsAboutANamespaceAreFew(t *testing.T) {
	told := events.NewFakeRecorder(1000)
	r := newDesk(t).host(told)
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

func TestAContractHasSoManyNamespaces(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newDesk(t, peer, cb)
	for _, home := range []string{"n7", "n8"} {
		if _, err := d.ensure(cb, bob, home, ""); err != nil {
			t.Fatalf("namespace %s: %v", home, err)
		}
	}
	for i := range maxTwins - 2 {
		home := fmt.Sprintf("m%d", i)
		d.tenants.contracts.learn(twin{name: home + "-" + bob.Compact[:7], home: home, contract: "contractb", consumer: bob.Compact})
	}
	if _, err := d.ensure(cb, bob, "more", ""); !errors.Is(err, &api.Error{Code: api.CodeForbidden}) || !strings.Contains(err.Error(), "more are not allowed") {
		t.Errorf("one more: %v", err)
	}
	if _, err := d.ensure(cb, bob, "n7", ""); err != nil {
		t.Errorf("one that is there: %v", err)
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
		if got, err := d.tenants.contracts.userNamespaces(t.Context()); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
