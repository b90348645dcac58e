package link

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
)

// letsOffer has a provider's contract with a consumer let what it grants be offered on.
func (s *side) letsOffer(of *side) {
	s.t.Helper()
	var ctr v1alpha1.Contract
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "with-" + of.name}, &ctr); err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	d := contract.Document{ID: contract.NewID(), Revision: 1, NotBefore: now, NotAfter: now.Add(time.Hour), Created: now,
		Consumer: contract.Party{ID: of.me.ID(), Name: of.name, Key: of.me.Public()}, Provider: contract.Party{ID: s.me.ID(), Name: s.name, Key: s.me.Public()},
		Terms: contract.Terms{Resources: map[string]string{"cpu": "1"}, PodSecurity: contract.Baseline, Reoffer: true}}
	d.Version = d.Terms.DocumentVersion()
	doc, err := contract.Canonical(d)
	if err != nil {
		s.t.Fatal(err)
	}
	if ctr.Spec.Document = doc; s.client.Update(s.t.Context(), &ctr) != nil {
		s.t.Fatal(errors.New("the contract is not changed"))
	}
}

// relay has a broker send guests of a home on to providers.
func (s *side) relay(home *side, to ...*side) {
	s.t.Helper()
	var ids []string
	for _, one := range to {
		ids = append(ids, one.me.ID().String())
	}
	if err := s.linker.Relay(s.t.Context(), s.peer(home), ids); err != nil {
		s.t.Fatal(err)
	}
}

// brokered are alice, who consumes from bob, who consumes from carol and dave, who let it be offered on.
func brokered(t *testing.T) (alice, bob, carol, dave *side) {
	alice, bob, carol, dave = newSide(t, "alice"), newSide(t, "bob"), newSide(t, "carol"), newSide(t, "dave")
	contracts(alice, bob)
	for _, provider := range []*side{carol, dave} {
		contracts(bob, provider)
		provider.letsOffer(bob)
	}
	if err := errors.Join(alice.propose(bob), bob.propose(carol), bob.propose(dave)); err != nil {
		t.Fatal(err)
	}
	return alice, bob, carol, dave
}

// TestAHomeIsToldToWhomItsGuestsGoOn: bob gives each provider a part of the range for alice's guests, asks her for nothing, and tells each of them of
// her, who is a home of its own there then. What no more goes on is told, too.
func TestAHomeIsToldToWhomItsGuestsGoOn(t *testing.T) {
	alice, bob, carol, dave := brokered(t)
	before, here := alice.pair(bob), bob.pair(alice).Here
	space := bob.linker.Space(bob.peer(carol))
	bob.relay(alice, carol, dave)
	parts := bob.pair(alice).Relayed
	if len(parts) != 2 || parts[0].Guests == parts[1].Guests || !slices.ContainsFunc(parts, func(r netplan.Relayed) bool { return r.ID == carol.me.ID().String() }) {
		t.Fatalf("%+v", parts)
	}
	if !reflect.DeepEqual(alice.pair(bob), before) {
		t.Error("alice was asked for something")
	}
	if bob.linker.Space(bob.peer(carol)).Equal(space) {
		t.Error("nobody is told")
	}
	for _, provider := range []*side{carol, dave} {
		if err := bob.propose(provider); err != nil {
			t.Fatal(err)
		}
		linked(t, bob, provider)
		homes := provider.pair(bob).Onward
		at := slices.IndexFunc(parts, func(r netplan.Relayed) bool { return r.ID == provider.me.ID().String() })
		if want := []netplan.Onward{{ID: alice.me.ID().String(), Network: here, Guests: parts[at].Guests, Space: []netip.Prefix{usual.Pods}, Services: usual.Services}}; !reflect.DeepEqual(homes, want) {
			t.Errorf("%s has %+v, want %+v", provider.name, homes, want)
		}
	}
	// It is the same after a restart, after alice's link is settled anew, and when it is said again.
	bob.restart()
	if err := bob.linker.Restore(t.Context(), bob.peer(alice)); err != nil {
		t.Fatal(err)
	}
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	if bob.relay(alice, dave, carol); !reflect.DeepEqual(bob.pair(alice).Relayed, parts) {
		t.Errorf("%+v became %+v", parts, bob.pair(alice).Relayed)
	}
	bob.relay(alice, dave)
	if err := bob.propose(carol); err != nil {
		t.Fatal(err)
	}
	if now := bob.pair(alice).Relayed; len(now) != 1 || now[0].ID != dave.me.ID().String() || len(carol.pair(bob).Onward) != 0 {
		t.Errorf("%+v, carol has %+v", now, carol.pair(bob).Onward)
	}
}

// TestHomesThatAreNotTaken: what a consumer says of others counts as far as its contract lets it have them, and their addresses are free.
func TestHomesThatAreNotTaken(t *testing.T) {
	for what, c := range map[string]func(alice, bob, carol *side){
		"without the term": func(_, bob, carol *side) {
			var ctr v1alpha1.Contract
			if err := carol.client.Get(t.Context(), client.ObjectKey{Name: "with-bob"}, &ctr); err != nil {
				t.Fatal(err)
			}
			ctr.Spec.Document = nil
			if err := carol.client.Update(t.Context(), &ctr); err != nil {
				t.Fatal(err)
			}
		},
		"in use on its network":          func(alice, bob, carol *side) { carol.came = append(carol.came, bob.pair(alice).Here) },
		"the provider's own":             func(alice, _, carol *side) { carol.linker.cfg.Identity = alice.me },
		"where a plugin gives addresses": func(_, _, carol *side) { carol.linker.cfg.Links = false },
	} {
		t.Run(what, func(t *testing.T) {
			alice, bob, carol, _ := brokered(t)
			c(alice, bob, carol)
			said := bob.linker.onward(bob.peer(carol))
			if len(said) != 0 {
				t.Fatalf("before anything goes on bob says %+v", said)
			}
			bob.relay(alice, carol)
			said = bob.linker.onward(bob.peer(carol))
			if len(said) != 1 {
				t.Fatalf("bob says %+v", said)
			}
			if homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{}); err != nil || len(homes) != 0 {
				t.Errorf("%+v, %v", homes, err)
			}
		})
	}
}

// TestPartsThatGuestsHave: nobody's address leads elsewhere while a guest has it.
func TestPartsThatGuestsHave(t *testing.T) {
	alice, bob, carol, dave := brokered(t)
	here := bob.pair(alice).Here
	bob.addresses = []netip.Addr{netplan.RelayedPart(here, 0).Addr().Next()}
	if bob.relay(alice, carol, dave); len(bob.pair(alice).Relayed) != 1 || bob.pair(alice).Relayed[0].Guests != netplan.RelayedPart(here, 1) {
		t.Errorf("%+v", bob.pair(alice).Relayed)
	}
	bob.addresses = nil
	if bob.relay(alice, carol, dave); len(bob.pair(alice).Relayed) != 2 {
		t.Errorf("%+v", bob.pair(alice).Relayed)
	}
	if netplan.StayingPart(here).Overlaps(netplan.RelayedPart(here, 0)) {
		t.Error("who stays may have an address of who goes on")
	}
}

// TestAHomeStaysWhileItsGuestsHaveAddresses: whatever the consumer says by then, its contract lets it have, or the laptop came to. Nobody else gets the range,
// and nothing else of the same peer.
func TestAHomeStaysWhileItsGuestsHaveAddresses(t *testing.T) {
	for what, next := range map[string]func(t *testing.T, said []peering.Onward, bob, carol *side) []peering.Onward{
		"it is said no more": func(*testing.T, []peering.Onward, *side, *side) []peering.Onward { return nil },
		"its part is another": func(_ *testing.T, said []peering.Onward, _, _ *side) []peering.Onward {
			said[0].Guests = netplan.RelayedPart(said[0].Network, 1)
			return said
		},
		"its range is another's": func(t *testing.T, said []peering.Onward, _, _ *side) []peering.Onward {
			said[0].ID = load(t).ID()
			return said
		},
		"the laptop came to that network": func(_ *testing.T, said []peering.Onward, _, carol *side) []peering.Onward {
			carol.came = append(carol.came, said[0].Network)
			return said
		},
		"the contract lets it no more": func(t *testing.T, said []peering.Onward, bob, carol *side) []peering.Onward {
			var ctr v1alpha1.Contract
			if err := carol.client.Get(t.Context(), client.ObjectKey{Name: "with-bob"}, &ctr); err != nil {
				t.Fatal(err)
			}
			if ctr.Spec.Document = nil; carol.client.Update(t.Context(), &ctr) != nil {
				t.Fatal("the contract is not changed")
			}
			return said
		},
	} {
		t.Run(what, func(t *testing.T) {
			alice, bob, carol, _ := brokered(t)
			bob.relay(alice, carol)
			if err := bob.propose(carol); err != nil {
				t.Fatal(err)
			}
			before := carol.peer(bob).Status.Network.Onward
			if len(before) != 1 {
				t.Fatalf("%+v", before)
			}
			carol.addresses = []netip.Addr{prefix(before[0].Guests).Addr().Next()}
			said := next(t, bob.linker.onward(bob.peer(carol)), bob, carol)
			if homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{}); err != nil || !reflect.DeepEqual(homes, before) {
				t.Errorf("with guests: %+v, %v; want %+v", homes, err, before)
			}
			carol.addresses = []netip.Addr{prefix(before[0].Guests).Addr().Prev()} // of a guest elsewhere
			if homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{}); err != nil || reflect.DeepEqual(homes, before) {
				t.Errorf("without: %+v, %v", homes, err)
			}
		})
	}
	t.Run("through a link", func(t *testing.T) {
		alice, bob, carol, _ := brokered(t)
		bob.relay(alice, carol)
		if err := bob.propose(carol); err != nil {
			t.Fatal(err)
		}
		held := carol.pair(bob).Onward
		carol.addresses = []netip.Addr{held[0].Guests.Addr().Next()}
		bob.relay(alice)
		erin := newSide(t, "erin")
		contracts(erin, carol)
		if err := errors.Join(bob.propose(carol), erin.propose(carol)); err != nil {
			t.Fatal(err)
		}
		if now := carol.pair(bob).Onward; !reflect.DeepEqual(now, held) {
			t.Errorf("carol has %+v, had %+v", now, held)
		}
		if err := erin.insist(carol, func(l *peering.Link) { l.There = held[0].Network }); err != nil || carol.pair(erin).Here.Overlaps(held[0].Network) {
			t.Errorf("erin has %s, %v", carol.pair(erin).Here, err)
		}
		if err := bob.insist(carol, func(l *peering.Link) { l.Here = held[0].Network; l.AtHere = netplan.GuestGateway(l.Here) }); err != nil || carol.pair(bob).There.Overlaps(held[0].Network) {
			t.Errorf("bob has carol's guests at %s, %v", carol.pair(bob).There, err)
		}
		carol.addresses = nil
		if err := bob.propose(carol); err != nil || len(carol.pair(bob).Onward) != 0 {
			t.Errorf("when they ended: %+v, %v", carol.pair(bob).Onward, err)
		}
	})
}

// TestAPeerHoldsNoMoreHomesThanItMayName: those of which guests have addresses count.
func TestAPeerHoldsNoMoreHomesThanItMayName(t *testing.T) {
	alice, bob, carol, _ := brokered(t)
	bob.relay(alice, carol)
	if err := bob.propose(carol); err != nil {
		t.Fatal(err)
	}
	held := carol.pair(bob).Onward[0]
	carol.addresses = []netip.Addr{held.Guests.Addr()}
	var said []peering.Onward
	for i := range netplan.MaxOnward {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(100 + i), 0}), netplan.GuestBits)
		said = append(said, peering.Onward{ID: load(t).ID(), Network: network, Guests: netplan.RelayedPart(network, 0), Space: []netip.Prefix{usual.Pods}})
	}
	homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{})
	if err != nil || len(homes) != netplan.MaxOnward || !slices.ContainsFunc(homes, func(h v1alpha1.OnwardHome) bool { return h.ID == held.ID }) {
		t.Errorf("%d homes, %v", len(homes), err)
	}
}

// TestMoreHomesThanAProviderHearsOf: those whose guests go on to it stay, and it is told of the same ones each time; others' go elsewhere.
func TestMoreHomesThanAProviderHearsOf(t *testing.T) {
	alice, bob, carol, dave := brokered(t)
	there := carol.me.ID().String()
	goes := func(i int) *v1alpha1.Peer {
		here := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(100 + i), 0}), netplan.GuestBits)
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("home%d", i)}, Spec: v1alpha1.PeerSpec{ID: load(t).ID().String()}}
		if err := bob.client.Create(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: here.String(), Space: []string{usual.Pods.String()}, Relayed: []v1alpha1.RelayedRange{{ID: there, Guests: netplan.RelayedPart(here, 0).String()}}}
		if err := bob.client.Status().Update(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		return peer
	}
	for i := range netplan.MaxOnward - 1 {
		goes(i)
	}
	if bob.relay(alice, carol, dave); len(bob.pair(alice).Relayed) != 2 || len(bob.linker.onward(bob.peer(carol))) != netplan.MaxOnward {
		t.Fatalf("the last that has room: %+v", bob.pair(alice).Relayed)
	}
	more := goes(netplan.MaxOnward)
	first := bob.linker.onward(bob.peer(carol))
	for range 20 {
		if again := bob.linker.onward(bob.peer(carol)); len(again) != netplan.MaxOnward || !reflect.DeepEqual(again, first) {
			t.Fatalf("%+v, then %+v", first, again)
		}
	}
	if parts, err := bob.linker.parts(t.Context(), bob.peer(alice), []string{there}); err != nil || len(parts) != 1 {
		t.Errorf("one that had a part: %+v, %v", parts, err)
	}
	more.Status.Network.Relayed = nil
	parts, err := bob.linker.parts(t.Context(), more, []string{there, dave.me.ID().String()})
	if err != nil || len(parts) != 1 || parts[0].ID != dave.me.ID().String() {
		t.Errorf("one more: %+v, %v", parts, err)
	}
}

// TestAHomeIsNotWhereItsBrokersAliasesAre: what the pods that are shared with the broker know its space by is in use, and is chosen beside the homes.
func TestAHomeIsNotWhereItsBrokersAliasesAre(t *testing.T) {
	alice, bob, carol, _ := brokered(t)
	carol.hasInCommon("shop")
	bob.relay(alice, carol)
	said := bob.linker.onward(bob.peer(carol))
	carol.share(bob, "10.42.0.5")
	aliases := carol.pair(bob).Aliases
	if homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{}); err != nil || len(homes) != 1 {
		t.Fatalf("%+v, %v", homes, err)
	}
	said[0].Network = netip.PrefixFrom(aliases[0].Alias.Addr(), netplan.GuestBits)
	said[0].Guests = netplan.RelayedPart(said[0].Network, 0)
	if homes, err := carol.linker.homes(t.Context(), carol.peer(bob), said, peering.Link{}); err != nil || len(homes) != 0 {
		t.Errorf("beside %v: %+v, %v", aliases, homes, err)
	}
	if err := bob.propose(carol); err != nil {
		t.Fatal(err)
	}
	linked(t, bob, carol)
}

// TestAProviderKeepsItsPartWhileGuestsAreThere: what it grants is offered on no longer, and they run on; nobody else gets their addresses, here or at another.
func TestAProviderKeepsItsPartWhileGuestsAreThere(t *testing.T) {
	alice, bob, carol, dave := brokered(t)
	bob.relay(alice, carol)
	of := bob.pair(alice).Relayed[0]
	bob.wentOn = []*side{carol}
	for _, to := range [][]*side{{dave}, {}} {
		bob.relay(alice, to...)
		parts := bob.pair(alice).Relayed
		if len(parts) != 1+len(to) || !slices.Contains(parts, of) || len(bob.linker.onward(bob.peer(carol))) != 1 {
			t.Errorf("with %d others: %+v, want %+v in it", len(to), parts, of)
		}
	}
	bob.wentOn = nil
	if bob.relay(alice); len(bob.pair(alice).Relayed) != 0 {
		t.Errorf("when they ended: %+v", bob.pair(alice).Relayed)
	}
}
