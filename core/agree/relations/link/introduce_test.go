package link

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// three are a home and two of its providers, at addresses that mean something to each other.
type three struct{ alice, bob, carol *side }

// at is where a side is on the LAN.
var at = map[string]netip.Addr{"bob": netip.MustParseAddr("192.0.2.2"), "carol": netip.MustParseAddr("192.0.2.3")}

func meetThree(t *testing.T) three {
	t.Helper()
	w := three{newSide6(t, "alice"), newSide6(t, "bob"), newSide6(t, "carol")}
	w.alice.config.Introduces = true
	w.alice.restart()
	contracts(w.alice, w.bob)
	contracts(w.alice, w.carol)
	w.bob.lets(v1alpha1.AccessAllow)
	w.carol.lets(v1alpha1.AccessAllow)
	return w
}

// lets is the owner's word on direct ways.
func (s *side) lets(access v1alpha1.Access) {
	s.t.Helper()
	policy := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.SharingPolicySpec{
		Amounts: map[string]v1alpha1.Amount{"cpu": "50%"}, Network: &v1alpha1.GuestNetwork{Direct: access},
	}}
	err := s.client.Create(s.t.Context(), policy)
	if err != nil {
		err = s.client.Get(s.t.Context(), client.ObjectKeyFromObject(policy), policy)
		if err == nil {
			policy.Spec.Network.Direct = access
			err = s.client.Update(s.t.Context(), policy)
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// tell has alice tell both, as often as one of them would hear something new.
func (w three) tell() {
	t := w.alice.t
	t.Helper()
	told := map[*side]Space{}
	for range 5 {
		again := false
		for _, p := range []*side{w.bob, w.carol} {
			if now := w.alice.linker.Space(w.alice.peer(p)); !now.Equal(told[p]) {
				told[p], again = now, true
				if err := w.alice.linker.Propose(t.Context(), w.alice.peer(p), w.alice.to(p), at[p.name]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !again {
			return
		}
	}
	t.Fatal("alice is never done telling")
}

// direct are the ways that a side's gateway has past alice.
func (w three) direct(of *side) []gateway.Direct {
	g, _ := of.gateway.Peer(w.alice.me.ID().String())
	return g.Direct
}

// wants that a side has a way to the other, as alice knows it.
func (w three) wants(of, to *side) {
	of.t.Helper()
	there := w.alice.pair(to)
	want := gateway.Direct{
		ID: to.me.ID().String(), PublicKey: to.key.Public(), Guests: there.There, Guests6: there.IPv6.There,
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(at[to.name], 6450)},
	}
	if got := w.direct(of); len(got) != 1 || got[0].ID != want.ID || got[0].PublicKey != want.PublicKey || got[0].Guests != want.Guests ||
		got[0].Guests6 != want.Guests6 || !slices.Equal(got[0].Endpoints, want.Endpoints) {
		of.t.Errorf("%s has %+v, want %+v", of.name, got, want)
	}
}

func (w three) none(of ...*side) {
	for _, s := range of {
		s.t.Helper()
		if got := w.direct(s); len(got) > 0 {
			s.t.Errorf("%s has a way past alice: %+v", s.name, got)
		}
	}
}

func TestTwoProvidersAreIntroduced(t *testing.T) {
	w := meetThree(t)
	w.tell()
	w.wants(w.bob, w.carol)
	w.wants(w.carol, w.bob)
	linked(t, w.alice, w.bob)
	// It is there after a restart, before alice was heard.
	w.bob.restart()
	if err := w.bob.gateway.RemovePeer(w.alice.me.ID().String()); err != nil {
		t.Fatal(err)
	}
	if err := w.bob.linker.Restore(t.Context(), w.bob.peer(w.alice)); err != nil {
		t.Fatal(err)
	}
	w.wants(w.bob, w.carol)
}

func TestEachOfTheThreeMayRefuse(t *testing.T) {
	t.Run("home", func(t *testing.T) {
		w := meetThree(t)
		w.alice.config.Introduces = false
		w.alice.restart()
		w.tell()
		w.none(w.bob, w.carol)
	})
	for _, access := range []v1alpha1.Access{v1alpha1.AccessDeny, ""} {
		t.Run("a provider by "+string(access), func(t *testing.T) {
			w := meetThree(t)
			w.carol.lets(access)
			w.tell()
			w.none(w.bob, w.carol)
			w.carol.lets(v1alpha1.AccessAllow)
			if err := w.carol.propose(w.alice); err != nil { // it says so itself
				t.Fatal(err)
			}
			w.tell()
			w.wants(w.bob, w.carol)
			w.wants(w.carol, w.bob)
		})
	}
	t.Run("a provider that takes it back", func(t *testing.T) {
		w := meetThree(t)
		w.tell()
		w.carol.lets(v1alpha1.AccessDeny)
		if err := w.carol.linker.Keep(w.carol.peer(w.alice)); err != nil { // alice cannot be reached
			t.Fatal(err)
		}
		w.none(w.carol)
		if err := w.carol.propose(w.alice); err != nil {
			t.Fatal(err)
		}
		w.tell()
		w.none(w.bob, w.carol)
	})
	t.Run("one who is no provider any more", func(t *testing.T) {
		w := meetThree(t)
		w.tell()
		if err := w.alice.client.Delete(t.Context(), &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "with-carol"}}); err != nil {
			t.Fatal(err)
		}
		if now := w.alice.linker.Space(w.alice.peer(w.bob)); len(now.others) > 0 {
			t.Errorf("bob would be introduced to %+v", now.others)
		}
		if err := w.alice.propose(w.bob); err != nil {
			t.Fatal(err)
		}
		w.none(w.bob)
	})
}

// TestNobodyElseIntroduces: what is introduced was signed by the home, for this provider, as it is.
func TestNobodyElseIntroduces(t *testing.T) {
	w := meetThree(t)
	w.tell()
	mallory := newSide6(t, "mallory")
	ids := func(s *side) identity.ID { return s.me.ID() }
	guests := w.alice.pair(w.carol).There
	sign := func(by *side, home, to, other identity.ID, key gateway.Key, guests netip.Prefix) []byte {
		return by.me.Sign(introduction(home, to, other, key, guests))
	}
	good := peering.Introduction{
		ID: ids(w.carol), PublicKey: w.carol.key.Public().String(), Guests: guests, Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.3:6450")},
		Signature: sign(w.alice, ids(w.alice), ids(w.bob), ids(w.carol), w.carol.key.Public(), guests),
	}
	say := func(others ...peering.Introduction) error {
		ours, err := w.alice.linker.say(t.Context(), w.alice.peer(w.bob), w.alice.linker.plan(w.alice.peer(w.bob)), ids(w.bob), peering.Link{})
		if err != nil {
			t.Fatal(err)
		}
		if ours.Binding, err = w.alice.linker.bind(ids(w.bob), w.bob.key.Public().String()); err != nil {
			t.Fatal(err)
		}
		ours.Others = others
		_, err = w.bob.answer(w.alice, ours)
		return err
	}
	if err := say(good); err != nil {
		t.Fatal(err)
	}
	w.wants(w.bob, w.carol)
	for name, change := range map[string]func(*peering.Introduction){
		"another's signature": func(i *peering.Introduction) {
			i.Signature = sign(mallory, ids(w.alice), ids(w.bob), ids(w.carol), w.carol.key.Public(), guests)
		},
		"for another provider": func(i *peering.Introduction) {
			i.Signature = sign(w.alice, ids(w.alice), ids(mallory), ids(w.carol), w.carol.key.Public(), guests)
		},
		"as another home": func(i *peering.Introduction) {
			i.Signature = sign(w.alice, ids(mallory), ids(w.bob), ids(w.carol), w.carol.key.Public(), guests)
		},
		"another key":   func(i *peering.Introduction) { i.PublicKey = mallory.key.Public().String() },
		"another ID":    func(i *peering.Introduction) { i.ID = ids(mallory) },
		"another range": func(i *peering.Introduction) { i.Guests = netip.MustParsePrefix("10.200.0.0/24") },
	} {
		bad := good
		change(&bad)
		t.Run(name, func(t *testing.T) { refusedLink(t, say(bad), peering.CodeForbidden, "introduction of") })
	}
	refusedLink(t, say(good, good), peering.CodeBadRequest, "introduced twice")
	w.wants(w.bob, w.carol) // what was agreed stays
	// A range that is not of the space means nothing, and is not used.
	elsewhere := netip.MustParsePrefix("10.200.0.0/24")
	other := good
	other.Guests, other.Signature = elsewhere, sign(w.alice, ids(w.alice), ids(w.bob), ids(w.carol), w.carol.key.Public(), elsewhere)
	if err := say(other); err != nil {
		t.Error(err)
	}
	w.none(w.bob)
}

// TestWhoWritesAStatusIntroducesNobody: what is kept is checked again when it is read.
func TestWhoWritesAStatusIntroducesNobody(t *testing.T) {
	w := meetThree(t)
	w.tell()
	mallory := newSide6(t, "mallory")
	peer := w.bob.peer(w.alice)
	peer.Status.Network.Others[0].PublicKey = mallory.key.Public().String()
	if err := w.bob.client.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	w.bob.restart()
	if err := w.bob.gateway.RemovePeer(w.alice.me.ID().String()); err != nil {
		t.Fatal(err)
	}
	if err := w.bob.linker.Restore(t.Context(), w.bob.peer(w.alice)); err == nil {
		t.Error("a forged introduction is restored")
	}
	noLink(t, w.bob, w.alice) // it is agreed on anew
}

// TestEndpointsThatMeanNothingElsewhere: who is known by a link-local address alone is not introduced.
func TestEndpointsThatMeanNothingElsewhere(t *testing.T) {
	w := meetThree(t)
	w.tell()
	if err := w.alice.linker.Propose(t.Context(), w.alice.peer(w.carol), w.alice.to(w.carol), netip.MustParseAddr("fe80::3%eth0")); err != nil {
		t.Fatal(err)
	}
	if err := w.alice.linker.Propose(t.Context(), w.alice.peer(w.bob), w.alice.to(w.bob), at["bob"]); err != nil {
		t.Fatal(err)
	}
	w.none(w.bob)
	w.wants(w.carol, w.bob) // she can begin
}

// TestOneWhoTranslatesLetsNobody: its guests have no addresses of the range.
func TestOneWhoTranslatesLetsNobody(t *testing.T) {
	w := meetThree(t)
	w.carol.config.Links = false
	w.carol.config.Network.IPv6 = netplan.Cluster6{}
	w.carol.restart()
	w.tell()
	w.none(w.bob, w.carol)
}
