package backend

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/ledger/ledgertest"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
)

// A cache may show the attempt before: a yes to its terms is none to those of the attempt that took its place.
func TestAWordOnOneAttemptIsNoneOnTheNext(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "BOB",
		Request: &v1alpha1.ResourceRequest{Attempt: 2, Confirm: &v1alpha1.Confirm{Attempt: 2, ID: "BOB"}}}}
	peer.Status.Outgoing.Attempt = 2
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(peer).WithObjects(peer).Build())
	seen := peer.DeepCopy()
	seen.Spec.Request, seen.Status.Outgoing.Attempt = &v1alpha1.ResourceRequest{Attempt: 1, Confirm: &v1alpha1.Confirm{Attempt: 1, Code: "069210"}}, 1
	if err := (&Cluster{Client: objects}).confirm(t.Context(), seen, api.PeerConfirm{Terms: true}); err != nil {
		t.Fatal(err)
	}
	var now v1alpha1.Peer
	if err := objects.Get(t.Context(), named("bob"), &now); err != nil {
		t.Fatal(err)
	}
	if word := asking.Word(&now); word.Terms {
		t.Errorf("%+v", word)
	}
}

func TestAMistypedCodeMayBeTypedOnceMore(t *testing.T) {
	for _, c := range []struct {
		codes []string
		says  string // at last, in the object; "" is nothing
		tries int
	}{
		{[]string{"111111", "069210"}, "069210", 1},
		{[]string{"111111", "222222"}, "222222", 1},
		{[]string{"069210"}, "069210", 0},
		{[]string{"111111"}, "", 1},
	} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "BOB", Request: &v1alpha1.ResourceRequest{Attempt: 2}}}
		peer.Status.Outgoing = v1alpha1.DirectionStatus{Attempt: 2, Code: "069210", Confirm: &v1alpha1.Confirmation{Code: "069210"}}
		objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(peer).WithObjects(peer).Build())
		var now v1alpha1.Peer
		tries := 0
		for _, code := range c.codes {
			if err := objects.Get(t.Context(), named("bob"), &now); err != nil {
				t.Fatal(err)
			}
			err := (&Cluster{Client: objects}).confirm(t.Context(), &now, api.PeerConfirm{Code: code})
			if errors.Is(err, &api.Error{Code: api.CodeInvalid}) {
				tries++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if err := objects.Get(t.Context(), named("bob"), &now); err != nil {
			t.Fatal(err)
		}
		if word := asking.Word(&now); word.Code != c.says || tries != c.tries {
			t.Errorf("%v: %+v, %d to try again", c.codes, word, tries)
		}
	}
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)))
	return s
}

// A script answers the moment it is told, and the cache may be behind what it was told of.
func TestWhoIsAskedMayAnswerAtOnce(t *testing.T) {
	before := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{Request: &v1alpha1.ResourceRequest{Attempt: 2}}}
	now := before.DeepCopy()
	now.Status.Outgoing = v1alpha1.DirectionStatus{Attempt: 2, Confirm: &v1alpha1.Confirmation{Code: "069210"}}
	with := func(peer *v1alpha1.Peer) *ledger.Ledger {
		return ledgertest.Over(t, fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(peer).Build())
	}
	k := directory.Known{Name: "bob", Peer: before}
	if peer, err := (&Cluster{Client: with(now)}).asked(t.Context(), k); err != nil || peer.Status.Outgoing.Confirm == nil {
		t.Errorf("%+v, %v", peer, err)
	}
	if _, err := (&Cluster{Client: with(before)}).asked(t.Context(), k); !errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("answered already: %v", err)
	}
}
