package consumer

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// deaf is a directory whose one peer answers nobody.
type deaf struct {
	id    identity.ID
	me    *identity.Identity
	calls atomic.Int32
}

func (d *deaf) Client(*v1alpha1.Peer) (*peering.Client, error) {
	d.calls.Add(1)
	return peering.NewClient(peering.ClientConfig{Identity: d.me, Expect: d.id, Addresses: []string{"127.0.0.1:1"}}), nil
}

func (d *deaf) Contact(*v1alpha1.Peer) peering.Contact { return peering.Contact{} }

// A cache that is behind shows a request as open when its answer was acted on already; the peer knows it no more.
func TestAnAnswerIsActedOnOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	peers := &deaf{id: load(t).ID(), me: load(t)}
	cluster := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).Build())
	r := New(Config{Client: cluster, Fresh: cluster, Directory: peers, Log: slog.New(slog.DiscardHandler)})
	defer r.Close()
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}
	peer.Status.Outgoing = v1alpha1.DirectionStatus{RequestID: "alice-abcd"}
	to, _ := peers.Client(peer)
	w := &waiter{request: "alice-abcd", cancel: func() {}}
	r.waiting["bob"] = w
	r.wait(t.Context(), "bob", w, to, time.Now()) // lapsed, and the Peer is gone: there is nothing to do, and that ends it
	r.await(peer)
	if n := peers.calls.Load(); n != 1 {
		t.Errorf("waited %d times for one answer", n)
	}
	peer.Status.Outgoing.RequestID = "alice-efgh"
	r.await(peer)
	if n := peers.calls.Load(); n != 2 {
		t.Errorf("%d: the next question's answer is not waited for", n)
	}
}
