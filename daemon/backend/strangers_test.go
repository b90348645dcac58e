package backend

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// TestANameThatTwoAskUnderAnswersNeither: whoever calls himself bob while bob waits gets no answer that is meant for him.
func TestANameThatTwoAskUnderAnswersNeither(t *testing.T) {
	asks := func(name string, id identity.ID, called string) *v1alpha1.PeeringRequest {
		return &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringRequestSpec{PeerID: id.String(), PeerName: called, Expires: metav1.NewTime(time.Now().Add(time.Minute))}}
	}
	bob, mallory, carol := identity.ID{1}, identity.ID{2}, identity.ID{3}
	answered := asks("carol-old1", mallory, "carol")
	answered.Status.Answer = v1alpha1.AnswerDeclined
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	both := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(asks("bob-a1b2", bob, "bob"), asks("bob-c3d4", mallory, "bob"), asks("carol-e5f6", carol, "carol"), answered).Build())
	c := &Cluster{Client: both, Fresh: both}
	for ref, want := range map[string]string{
		"bob-a1b2": "bob-a1b2", "bob-c3d4": "bob-c3d4", bob.String(): "bob-a1b2", mallory.Short(): "bob-c3d4", "bob-c": "bob-c3d4", "carol": "carol-e5f6",
	} {
		if r, err := c.findRequest(ref); err != nil || r.Name != want {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
	}
	if r, err := c.findRequest("bob"); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("bob means %+v, %v", r, err)
	}
}
