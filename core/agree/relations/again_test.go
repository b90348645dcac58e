package relations

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// After an end a peer is asked as it was the first time; its key is known by then, so nobody compares. A contract of its own comes
// of it, and nothing of the old one is in the way.
func TestPeeringAgain(t *testing.T) {
	bob, alice := newCluster(t), newCluster(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Labels: map[string]string{v1alpha1.LabelFenced: "true"}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110"),
	}}}
	policy, peer := sharing.Default(50), acceptedPeer("bob", bob.me.ID())
	policy.Spec.AutoAccept, policy.Spec.Peers = true, []string{alice.me.ID().String()}
	status := peer.Status
	for _, err := range []error{bob.Create(t.Context(), node), bob.Create(t.Context(), policy), alice.Create(t.Context(), peer)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if peer.Status = status; alice.Status().Update(t.Context(), peer) != nil {
		t.Fatal("bob is no peer")
	}
	p := provider.New(provider.Config{Client: bob.Ledger, Fresh: bob.Client, Identity: bob.me, Name: "bob", Patience: time.Minute,
		Announce: func(api.Event) {}, Log: slog.New(slog.DiscardHandler)})
	directory := newAt(t, alice.me, serveHandler(t, bob.me, provided{Provider: p}))
	r := newReconciler(alice, directory, &noted{}, &provider.Notices{})
	t.Cleanup(r.Consumer.Close)
	look := func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "bob"}}); err != nil {
			t.Fatal(err)
		}
	}
	// signs has alice ask for cpu, and waits for the contract.
	signs := func(attempt int64, cpu string) v1alpha1.Contract {
		t.Helper()
		peer := alice.peer(t, "bob")
		peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt, Resources: corev1.ResourceList{
			"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("5"),
		}}
		if err := alice.Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		look()
		for range 200 {
			if out := alice.peer(t, "bob").Status.Outgoing; out.State == v1alpha1.StateContracted && out.RequestID == "" {
				if out.Code != "" {
					t.Errorf("a key that is known has a code to compare: %+v", out)
				}
				return alice.contracts(t)[0]
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatalf("nothing is signed: %+v", alice.peer(t, "bob").Status.Outgoing)
		return v1alpha1.Contract{}
	}
	first := signs(1, "1")
	peer = alice.peer(t, "bob")
	peer.Spec.Request = nil
	if err := alice.Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	directory.away = true // bob hears nothing of the end
	look()
	if _, err := r.contract(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&first)}); err != nil {
		t.Fatal(err)
	}
	if out := alice.peer(t, "bob").Status.Outgoing; len(alice.contracts(t)) != 0 || out.State != v1alpha1.StateNone || out.Contract != "" {
		t.Fatalf("%d contracts, %+v", len(alice.contracts(t)), out)
	}
	directory.away = false
	second := signs(2, "2")
	cpu := second.Spec.Resources[corev1.ResourceCPU]
	if second.Spec.ID == first.Spec.ID || second.Spec.Revision != 1 || cpu.String() != "2" {
		t.Errorf("%s revision %d, cpu %s; before that %s", second.Spec.ID, second.Spec.Revision, cpu.String(), first.Spec.ID)
	}
	for _, ctr := range bob.contracts(t) {
		if (ctr.Spec.ID == second.Spec.ID) == (ctr.DeletionTimestamp != nil) {
			t.Errorf("at bob %s revision %d, deleted %v", ctr.Spec.ID, ctr.Spec.Revision, ctr.DeletionTimestamp)
		}
	}
}

// provided is a Provider behind the peer API.
type provided struct {
	*provider.Provider
	others
}

// others are the calls that no Provider answers.
type others struct{ peering.Handler }

func (provided) Notices(context.Context, peering.Caller) <-chan peering.Notice { return nil }

// at leads to whoever answers at an address, and has the key that the Peer names.
type at struct {
	me      *identity.Identity
	address string
	away    bool

	mu      sync.Mutex
	clients []*peering.Client
}

func newAt(t *testing.T, me *identity.Identity, address string) *at {
	d := &at{me: me, address: address}
	t.Cleanup(func() {
		for _, c := range d.clients {
			c.Close()
		}
	})
	return d
}

func (d *at) Client(peer *v1alpha1.Peer) (*peering.Client, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := peering.NewClient(peering.ClientConfig{Identity: d.me, Expect: id, Addresses: []string{d.address}})
	d.clients = append(d.clients, c)
	return c, nil
}

func (d *at) Contact(*v1alpha1.Peer) (c peering.Contact) {
	if !d.away {
		c.State = presence.Reachable
	}
	return c
}

func serveHandler(t *testing.T, me *identity.Identity, handler peering.Handler) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := peering.NewServer(peering.ServerConfig{Identity: me, Name: func() string { return "bob" }, Version: "test", Handler: handler, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
