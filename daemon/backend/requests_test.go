package backend

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

func TestWhatWasAcceptedAlreadyIsSaid(t *testing.T) {
	request := func(name string, answer v1alpha1.Answer) *v1alpha1.PeeringRequest {
		return &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: name + "-7f3a"}, Spec: v1alpha1.PeeringRequestSpec{PeerID: name, PeerName: name, Code: "069210"},
			Status: v1alpha1.PeeringRequestStatus{Answer: answer}}
	}
	dave := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "dave"}, Status: v1alpha1.PeerStatus{Incoming: v1alpha1.DirectionStatus{State: v1alpha1.StateConnected}}}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(dave, request("alice", v1alpha1.AnswerAccepted), request("carol", v1alpha1.AnswerDeclined)).Build())
	c := &Cluster{Client: objects, Fresh: objects}
	for ref, want := range map[string]string{
		"alice": "the request of alice was accepted already: its owner compares the code 069 210", "alice-7": "the request of alice was accepted already",
		"dave": "the request of dave was accepted already", "carol": "", "nobody": "",
	} {
		if err := c.already(ref); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// Whoever calls himself as a known Peer gets a name, and so a request, that begins with it: "bob" is not he.
func TestTheNameOfAPeerMeansNoRequestOfAnother(t *testing.T) {
	request := func(name, peer, id string) *v1alpha1.PeeringRequest {
		return &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.PeeringRequestSpec{PeerID: id, PeerName: peer, Expires: metav1.NewTime(time.Now().Add(time.Minute))}}
	}
	bob := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "BOB"}}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(bob, request("bob-mallory-wxyz", "bob-mallory", "MALLORY"), request("carol-abcd", "carol", "CAROL")).Build())
	c := &Cluster{Client: objects, Fresh: objects}
	if r, err := c.findRequest("bob"); !errors.Is(err, &api.Error{Code: api.CodeNotFound}) {
		t.Errorf("bob, who asks for nothing: %+v, %v", r, err)
	}
	for ref, want := range map[string]string{"bob-m": "bob-mallory-wxyz", "bob-mallory": "bob-mallory-wxyz", "car": "carol-abcd", "carol": "carol-abcd"} {
		if r, err := c.findRequest(ref); err != nil || r.Name != want {
			t.Errorf("%s: %+v, %v", ref, r, err)
		}
	}
	if err := objects.Create(t.Context(), request("bob-efgh", "bob", "BOB")); err != nil {
		t.Fatal(err)
	}
	if r, err := c.findRequest("bob"); err != nil || r.Name != "bob-efgh" {
		t.Errorf("bob, who asks: %+v, %v", r, err)
	}
}
