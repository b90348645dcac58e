package link

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
)

// document is what both sides signed, a as the consumer.
func document(t testing.TB, a, b *side, network string) []byte {
	t.Helper()
	doc := record.NewDocument(a.me, a.name, contract.Party{ID: b.me.ID(), Name: b.name, Key: b.me.Public()},
		contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Network: network}, record.Validity)
	signed, err := contract.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	return signed.Document
}

// apart signs, in place of the contract of two sides, one without a network.
func apart(t *testing.T, a, b *side) {
	t.Helper()
	for _, one := range []struct{ at, of *side }{{a, b}, {b, a}} {
		var ctr v1alpha1.Contract
		if err := one.at.client.Get(t.Context(), client.ObjectKey{Name: "with-" + one.of.name}, &ctr); err != nil {
			t.Fatal(err)
		}
		ctr.Spec.Document = document(t, a, b, contract.NetworkNone)
		if err := one.at.client.Update(t.Context(), &ctr); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutANetworkThereIsNoLink: whoever proposes one is refused, what there was goes, and the peer's guests have a range that is nobody else's.
func TestWithoutANetworkThereIsNoLink(t *testing.T) {
	alice, bob, carol := newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol")
	contracts(alice, bob)
	contracts(carol, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	apart(t, alice, bob)
	for _, one := range []struct {
		at, of *side
		guests bool
	}{{bob, alice, true}, {alice, bob, false}} {
		if err := one.at.linker.Apart(t.Context(), one.at.peer(one.of), one.guests); err != nil {
			t.Fatal(err)
		}
		if _, ok := one.at.gateway.Peer(one.of.me.ID().String()); ok {
			t.Errorf("the gateway of %s has a tunnel to %s", one.at.name, one.of.name)
		}
	}
	noLink(t, alice, bob)
	n := bob.peer(alice).Status.Network
	pair, err := n.Pair(netip.Prefix{})
	if err != nil || n.Linked() || !pair.Here.IsValid() || pair.There.IsValid() || len(pair.Space) != 0 {
		t.Fatalf("%+v, %v", n, err)
	}
	refusedLink(t, alice.propose(bob), peering.CodeNoContract, "without a network")
	if got := bob.peer(alice).Status.Network; got.GuestsHere != n.GuestsHere || got.Linked() {
		t.Errorf("a link that was refused left %+v", got)
	}
	if err := carol.propose(bob); err != nil {
		t.Fatal(err)
	}
	if other := bob.pair(carol).Here; other.Overlaps(pair.Here) {
		t.Errorf("guests of carol have %s, and those of alice %s", other, pair.Here)
	}

	// After a restart, and again.
	bob.restart()
	for range 2 {
		if err := bob.linker.Restore(t.Context(), bob.peer(alice)); err != nil {
			t.Fatal(err)
		}
		if err := bob.linker.Apart(t.Context(), bob.peer(alice), true); err != nil {
			t.Fatal(err)
		}
		if got := bob.peer(alice).Status.Network; got.GuestsHere != n.GuestsHere || !netplan.Within(pair.Here, netplan.DefaultPool()) {
			t.Errorf("%+v, and it was %+v", got, n)
		}
	}
}

// TestWhatCannotBeReadIsNotLinked: as after the return to an older Kith, which knows not all words of a contract that it keeps.
func TestWhatCannotBeReadIsNotLinked(t *testing.T) {
	alice, bob := newSide(t, "alice"), newSide(t, "bob")
	contracts(alice, bob)
	var ctr v1alpha1.Contract
	if err := bob.client.Get(t.Context(), client.ObjectKey{Name: "with-alice"}, &ctr); err != nil {
		t.Fatal(err)
	}
	ctr.Spec.Document = []byte(`{"version":"kith.dev/contract/v3","network":"none"}`)
	if err := bob.client.Update(t.Context(), &ctr); err != nil {
		t.Fatal(err)
	}
	refusedLink(t, alice.propose(bob), peering.CodeNoContract, "without a network")
	noLink(t, alice, bob)
}
