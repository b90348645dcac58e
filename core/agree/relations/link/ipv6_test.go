package link

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/agree/peering"
	"kith.dev/core/net/netplan"
)

// cafe is the IPv6 ranges of K3s's documentation, which both sides may have.
var cafe = netplan.Cluster6{Pods: netip.MustParsePrefix("2001:cafe:42::/56"), Services: netip.MustParsePrefix("2001:cafe:43::/112")}

// newSide6 is a side that has both families.
func newSide6(t *testing.T, name string) *side {
	s := newSide(t, name)
	s.set6(cafe)
	return s
}

// set6 is a restart with other IPv6 ranges.
func (s *side) set6(is netplan.Cluster6) {
	s.config.Network.IPv6 = is
	s.restart()
}

// message is what a side's Peer says of why there is IPv4 alone.
func (s *side) message(of *side) string {
	s.t.Helper()
	if n := s.peer(of).Status.Network; n != nil && n.IPv6 != nil {
		return n.IPv6.Message
	}
	return ""
}

// wants6 wants a pair's IPv6 as both IDs and the other side's ranges have it.
func wants6(t *testing.T, at, of *side, space ...netip.Prefix) {
	t.Helper()
	got := at.pair(of).IPv6
	there, here := netplan.Guests6(at.me.ID(), of.me.ID()), netplan.Guests6(of.me.ID(), at.me.ID())
	if got.There != there || got.Here != here || got.AtThere != netplan.GuestGateway(there) || got.AtHome != cafe.Gateway() || got.Services != cafe.Services ||
		!slices.Equal(got.Space, append([]netip.Prefix{cafe.Pods}, space...)) {
		t.Errorf("%s has of %s: %+v", at.name, of.name, got)
	}
}

func TestTwoThatHaveIPv6UseBothFamilies(t *testing.T) {
	alice, bob, carol := newSide6(t, "alice"), newSide6(t, "bob"), newSide6(t, "carol")
	contracts(alice, bob)
	contracts(alice, carol)
	for _, other := range []*side{bob, carol, bob, bob} { // the one before is told of the one behind
		if err := alice.propose(other); err != nil {
			t.Fatal(err)
		}
		linked(t, alice, other)
	}
	wants6(t, alice, bob)
	wants6(t, bob, alice, alice.pair(carol).IPv6.There)
	if bob.pair(alice).IPv6.Here != alice.pair(bob).IPv6.There || bob.pair(alice).IPv6.There != alice.pair(bob).IPv6.Here {
		t.Errorf("alice: %+v, bob: %+v", alice.pair(bob).IPv6, bob.pair(alice).IPv6)
	}
	before := bob.pair(alice).IPv6
	bob.restart()
	if err := bob.gateway.RemovePeer(alice.me.ID().String()); err != nil {
		t.Fatal(err)
	}
	if err := bob.linker.Restore(t.Context(), bob.peer(alice)); err != nil {
		t.Fatal(err)
	}
	if after := bob.pair(alice).IPv6; after.Here != before.Here || !slices.Equal(after.Space, before.Space) {
		t.Errorf("%+v, after a restart %+v", before, after)
	}
}

// TestOneThatHasIPv4AloneIsLinkedAsBefore: its message is that of every Kith before there was IPv6.
func TestOneThatHasIPv4AloneIsLinkedAsBefore(t *testing.T) {
	alice, older := newSide6(t, "alice"), newSide(t, "older")
	contracts(alice, older)
	for _, propose := range []func() error{func() error { return alice.propose(older) }, func() error { return older.propose(alice) }} {
		if err := propose(); err != nil {
			t.Fatal(err)
		}
		linked(t, alice, older)
		if alice.pair(older).IPv6.On() || older.pair(alice).IPv6.On() || !strings.Contains(alice.message(older), "older has no IPv6") {
			t.Errorf("alice: %+v (%q), older: %+v", alice.pair(older).IPv6, alice.message(older), older.pair(alice).IPv6)
		}
		if older.peer(alice).Status.Network.IPv6 != nil {
			t.Error("who has IPv4 alone is told of IPv6")
		}
	}
	before := alice.pair(older)
	older.set6(cafe) // it is turned on there
	if err := alice.propose(older); err != nil {
		t.Fatal(err)
	}
	wants6(t, alice, older)
	wants6(t, older, alice)
	if now := alice.pair(older); now.There != before.There || now.Here != before.Here {
		t.Errorf("guests had %s and %s, have %s and %s", before.There, before.Here, now.There, now.Here)
	}
}

func TestIPv6ThatIsTurnedOffLeavesIPv4(t *testing.T) {
	alice, bob := newSide6(t, "alice"), newSide6(t, "bob")
	contracts(alice, bob)
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	before := bob.pair(alice)
	bob.set6(netplan.Cluster6{})
	if err := bob.gateway.RemovePeer(alice.me.ID().String()); err != nil {
		t.Fatal(err)
	}
	if err := bob.linker.Restore(t.Context(), bob.peer(alice)); err != nil {
		t.Fatal(err)
	}
	if now := bob.pair(alice); now.IPv6.On() || now.Here != before.Here || bob.peer(alice).Status.Network.IPv6 != nil {
		t.Errorf("%+v, before %+v", now, before)
	}
	if err := alice.propose(bob); err != nil {
		t.Fatal(err)
	}
	linked(t, alice, bob)
	if alice.pair(bob).IPv6.On() {
		t.Errorf("alice has %+v", alice.pair(bob).IPv6)
	}
}

// TestARangeThatIsTakenLeavesIPv4: at either side; one of which guests have addresses stays.
func TestARangeThatIsTakenLeavesIPv4(t *testing.T) {
	for _, proposer := range []string{"alice", "bob"} {
		alice, bob := newSide6(t, "alice"), newSide6(t, "bob")
		contracts(alice, bob)
		propose := func() {
			t.Helper()
			one, other := alice, bob
			if proposer == "bob" {
				one, other = bob, alice
			}
			if err := one.propose(other); err != nil {
				t.Fatal(err)
			}
			linked(t, alice, bob)
		}
		bob.came = []netip.Prefix{netplan.Guests6(alice.me.ID(), bob.me.ID())}
		propose()
		if alice.pair(bob).IPv6.On() || bob.pair(alice).IPv6.On() || !strings.Contains(alice.message(bob), "where bob is") || !strings.Contains(bob.message(alice), "this host") {
			t.Errorf("alice: %q, bob: %q", alice.message(bob), bob.message(alice))
		}
		bob.came = nil
		propose()
		wants6(t, alice, bob)
		bob.came, bob.guestsHere = []netip.Prefix{netplan.Guests6(alice.me.ID(), bob.me.ID())}, true
		propose()
		wants6(t, bob, alice)
		if lap := bob.linker.Overlap(t.Context(), bob.peer(alice)); len(lap.Ranges) != 1 || !lap.Kept {
			t.Errorf("%+v", lap)
		}
		bob.guestsHere = false
		if lap := bob.linker.Overlap(t.Context(), bob.peer(alice)); lap.Kept {
			t.Errorf("%+v", lap)
		}
		propose()
		if bob.pair(alice).IPv6.On() {
			t.Error("a range that the network has, and no guest, stays")
		}
	}
}

// TestWhatAPeerMaySayOfIPv6: what would give an address two meanings ends the link, and changes nothing.
func TestWhatAPeerMaySayOfIPv6(t *testing.T) {
	alice, mallory := newSide6(t, "alice"), newSide6(t, "mallory")
	contracts(alice, mallory)
	guests := netplan.Guests6(mallory.me.ID(), alice.me.ID())
	say := func(change func(*peering.LinkIPv6)) error {
		return mallory.insist(alice, func(l *peering.Link) {
			l.IPv6 = &peering.LinkIPv6{Space: []netip.Prefix{cafe.Pods}, Services: cafe.Services, At: cafe.Gateway()}
			change(l.IPv6)
		})
	}
	for what, change := range map[string]func(*peering.LinkIPv6){
		"her guests in her address space":       func(l *peering.LinkIPv6) { l.Space = append(l.Space, guests) },
		"a range twice":                         func(l *peering.LinkIPv6) { l.Space = append(l.Space, cafe.Pods) },
		"a host outside":                        func(l *peering.LinkIPv6) { l.At = netip.MustParseAddr("2600::1") },
		"the link's addresses":                  func(l *peering.LinkIPv6) { l.Space = append(l.Space, netip.MustParsePrefix("fe80::/64")) },
		"services of those that stand for IPv4": func(l *peering.LinkIPv6) { l.Services = netip.MustParsePrefix("64:ff9b::/96") },
	} {
		refusedLink(t, say(change), peering.CodeBadRequest, "IPv6")
		if _, ok := alice.gateway.Peer(mallory.me.ID().String()); ok {
			t.Errorf("%s: the gateway has her", what)
		}
	}
	if err := say(func(*peering.LinkIPv6) {}); err != nil {
		t.Fatal(err)
	}
	if got := alice.pair(mallory).IPv6; got.Here != guests || !slices.Equal(got.Space, []netip.Prefix{cafe.Pods}) {
		t.Errorf("%+v", got)
	}
	if err := say(func(l *peering.LinkIPv6) { l.Taken = []netip.Prefix{netip.MustParsePrefix("fd00::/64")} }); err != nil || alice.pair(mallory).IPv6.On() {
		t.Errorf("%v, %+v", err, alice.pair(mallory).IPv6)
	}
}
