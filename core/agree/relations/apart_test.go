package relations

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// empty is a gateway with no tunnel.
type empty struct{ link.Gateway }

func (empty) RemovePeer(string) error               { return nil }
func (empty) Taken(string) ([]netip.Prefix, error)  { return nil, nil }
func (empty) Overlapping(string) (l []netip.Prefix) { return nil }

// about is the document of a contract that says so of the network.
func about(t *testing.T, network string) []byte {
	t.Helper()
	alice, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bob, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := contract.New(record.NewDocument(alice, "alice", contract.Party{ID: bob.ID(), Name: "bob", Key: bob.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Network: network}, record.Validity))
	if err != nil {
		t.Fatal(err)
	}
	return signed.Document
}

// Guests of a contract that ends have their addresses until they have ended, whatever is in force the other way.
func TestWithoutANetworkGuestsKeepTheirAddressesToTheEnd(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	document := about(t, contract.NetworkNone)
	const range4 = "10.65.0.0/24"
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "bob"},
		Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{GuestsHere: range4}}}
	ctr := func(name string, role v1alpha1.Role) *v1alpha1.Contract {
		return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ContractSpec{Peer: "bob", Role: role, Document: document}}
	}
	uses, gives := ctr("uses", v1alpha1.RoleConsumer), ctr("gives", v1alpha1.RoleProvider)
	gives.DeletionTimestamp, gives.Finalizers = &metav1.Time{Time: time.Now()}, []string{"kith.dev/guests"}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}).WithObjects(peer, uses, gives).Build())
	r := New(Config{Client: objects, Directory: deaf{}, Log: slog.New(slog.DiscardHandler), Linker: link.New(objects, link.Config{
		Gateway: empty{}, Provides: true, Log: slog.New(slog.DiscardHandler),
		Guests: func(context.Context, *v1alpha1.Peer) (bool, bool, error) { return true, false, nil },
	})})
	has := func() *v1alpha1.NetworkStatus {
		t.Helper()
		if _, err := r.sync(t.Context(), peer, peering.Contact{}, uses, nil); err != nil {
			t.Fatal(err)
		}
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(peer), peer); err != nil {
			t.Fatal(err)
		}
		return peer.Status.Network
	}
	if n := has(); n == nil || n.GuestsHere != range4 {
		t.Errorf("while the contract ends its guests have %+v", n)
	}
	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(gives), gives); err != nil {
		t.Fatal(err)
	}
	gives.Finalizers = nil
	if err := objects.Update(t.Context(), gives); err != nil {
		t.Fatal(err)
	}
	if n := has(); n != nil {
		t.Errorf("afterwards there is %+v", n)
	}
}

// Two contracts of which one alone has a network cannot both hold. Both sides end the same one, and say why.
func TestOfTwoContractsThatDifferOneEnds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uses, gives string // what they say of the network
		ends        bool   // one does
	}{{"", "", false}, {contract.NetworkNone, contract.NetworkNone, false}, {contract.NetworkNone, "", true}, {"", contract.NetworkNone, true}} {
		for _, first := range []v1alpha1.Role{v1alpha1.RoleConsumer, v1alpha1.RoleProvider} { // by its ID
			ctr := func(role v1alpha1.Role, network string) *v1alpha1.Contract {
				id := "b"
				if role == first {
					id = "a"
				}
				return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: string(role), Finalizers: []string{v1alpha1.FinalizerContract}},
					Spec: v1alpha1.ContractSpec{ID: id, Peer: "bob", Role: role, Document: about(t, network)}}
			}
			uses, gives := ctr(v1alpha1.RoleConsumer, c.uses), ctr(v1alpha1.RoleProvider, c.gives)
			objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Contract{}).WithObjects(uses, gives).Build())
			if err := New(Config{Client: objects, Log: slog.New(slog.DiscardHandler)}).unmix(t.Context(), uses, gives); err != nil {
				t.Fatal(err)
			}
			for _, ctr := range []*v1alpha1.Contract{uses, gives} {
				if err := objects.Get(t.Context(), client.ObjectKeyFromObject(ctr), ctr); err != nil {
					t.Fatal(err)
				}
				ends := c.ends && ctr.Spec.Role != first
				if (ctr.DeletionTimestamp != nil) != ends || strings.Contains(ctr.Status.Why, "network between the clusters") != ends || ends && record.EndReason(ctr) != v1alpha1.EndedHere {
					t.Errorf("uses %q, gives %q, first %s: %s is %+v", c.uses, c.gives, first, ctr.Spec.Role, ctr.Status)
				}
			}
		}
	}
}
