package mdns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

var (
	wire   = linkKey{index: 2, zone: "eth0"}
	wire6  = linkKey{index: 2, v6: true, zone: "eth0"}
	wifi   = linkKey{index: 3, zone: "wlan0"}
	begin  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	nobody = func(identity.ID) bool { return false }
)

func at(after time.Duration) time.Time { return begin.Add(after) }

func helloFrom(name string, addresses ...string) hello {
	return hello{txtOf(testID(name), name), recordTTL, ports(addresses...)}
}

// drain takes all events that wait.
func drain(b *cache) (events []discovery.Event) {
	for {
		e, ok := b.pending()
		if !ok {
			return events
		}
		b.delivered(e)
		events = append(events, e)
	}
}

func numbered(n int) (id identity.ID) {
	binary.BigEndian.PutUint32(id[:], uint32(n+1))
	return id
}

func TestOneEventPerChange(t *testing.T) {
	b := newCache(nobody)
	bob := netip.MustParseAddr("192.168.77.2")
	b.hear(at(0), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	b.hear(at(time.Second), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	b.hear(at(time.Second), wire6, netip.MustParseAddr("fe80::2"), helloFrom("bob", "192.168.77.2:6450"))
	if e := drain(b); len(e) != 1 || e[0].Name != "bob" || e[0].Gone || !e[0].Seen.Equal(at(time.Second)) {
		t.Errorf("first: %+v", e)
	}
	b.hear(at(2*time.Second), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	if e := drain(b); len(e) != 0 {
		t.Errorf("the same again: %+v", e)
	}
	b.hear(at(2*time.Minute), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	if e := drain(b); len(e) != 1 || !e[0].Seen.Equal(at(2*time.Minute)) {
		t.Errorf("the same after two minutes: %+v", e)
	}
	b.hear(at(2*time.Minute), wire, bob, helloFrom("bob", "192.168.77.2:6450", "[fe80::2]:6450"))
	if e := drain(b); len(e) != 1 || !slices.Equal(e[0].Addresses, ports("192.168.77.2:6450", "[fe80::2%eth0]:6450")) {
		t.Errorf("another address: %+v", e)
	}
	b.bye(wire, bob, testID("bob"))
	if e := drain(b); len(e) != 1 || !e[0].Gone || e[0].ID != testID("bob") {
		t.Errorf("goodbye: %+v", e)
	}
	b.hear(at(3*time.Minute), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	b.bye(wire, bob, testID("bob"))
	if e := drain(b); len(e) != 0 {
		t.Errorf("came and went unseen: %+v", e)
	}
}

func TestTwoBobsAreTwo(t *testing.T) {
	b := newCache(nobody)
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.2"), hello{txtOf(numbered(1), "bob"), recordTTL, ports("192.168.77.2:6450")})
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.3"), hello{txtOf(numbered(2), "bob"), recordTTL, ports("192.168.77.3:6450")})
	if e := drain(b); len(e) != 2 || e[0].Name != "bob" || e[1].Name != "bob" || e[0].ID == e[1].ID {
		t.Errorf("%+v", e)
	}
}

func TestSpoofersDisplaceNothing(t *testing.T) {
	b := newCache(nobody)
	bob, mallory := netip.MustParseAddr("192.168.77.2"), netip.MustParseAddr("192.168.77.66")
	b.hear(at(0), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	var many []string
	for range discovery.MaxAddresses {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 6, 6, byte(len(many))}), 6450).String())
	}
	h := helloFrom("bob", many...)
	for i := range 100 { // with as many sender addresses as he likes, bob speaking now and then
		mallory = mallory.Next()
		b.hear(at(time.Duration(i)*time.Second), wire, mallory, h)
		if i%5 == 0 {
			b.hear(at(time.Duration(i)*time.Second), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
		}
	}
	s := b.entries[testID("bob")].sighting(testID("bob"))
	if !slices.Contains(s.Addresses, netip.MustParseAddrPort("192.168.77.2:6450")) || len(s.Addresses) != discovery.MaxAddresses {
		t.Errorf("%v", s.Addresses)
	}
	b.bye(wire, netip.MustParseAddr("192.168.77.250"), testID("bob"))
	b.bye(wifi, bob, testID("bob"))
	if b.entries[testID("bob")] == nil {
		t.Error("gone by a goodbye of a stranger, or from another link")
	}
}

func TestGoodbyeOnOneOfTwoLinks(t *testing.T) {
	b := newCache(nobody)
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.2"), helloFrom("bob", "192.168.77.2:6450"))
	b.hear(at(0), wifi, netip.MustParseAddr("10.0.0.2"), helloFrom("bob", "10.0.0.2:6450"))
	drain(b)
	b.bye(wifi, netip.MustParseAddr("10.0.0.2"), testID("bob"))
	if e := drain(b); len(e) != 1 || e[0].Gone || !slices.Equal(e[0].Addresses, ports("192.168.77.2:6450")) {
		t.Errorf("%+v", e)
	}
}

func TestRefreshAndExpiry(t *testing.T) {
	b := newCache(nobody)
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.2"), helloFrom("bob", "192.168.77.2:6450"))
	b.hear(at(0), wire6, netip.MustParseAddr("fe80::2"), helloFrom("bob", "192.168.77.2:6450"))
	drain(b)
	var asked []time.Duration
	for s := time.Duration(0); s < 299*time.Second; s += time.Second / 2 {
		ask, next := b.sweep(at(s))
		if len(ask[wire]) > 0 {
			asked = append(asked, s)
		}
		if len(ask[wire6]) > 0 {
			t.Errorf("asked over IPv6 what IPv4 tells")
		}
		if next.IsZero() || next.After(at(recordTTL)) {
			t.Fatalf("at %v next is %v", s, next)
		}
	}
	if len(asked) != 4 || asked[0] < 240*time.Second || asked[0] > 253*time.Second {
		t.Errorf("asked at %v", asked)
	}
	b.sweep(at(recordTTL))
	if e := drain(b); len(e) != 1 || !e[0].Gone {
		t.Errorf("expired: %+v", e)
	}
	if _, next := b.sweep(at(recordTTL)); !next.IsZero() {
		t.Error("the empty cache wants to be swept")
	}
}

func TestALostLinkForgetsSoon(t *testing.T) {
	b := newCache(nobody)
	bob := netip.MustParseAddr("192.168.77.2")
	b.hear(at(0), wire, bob, helloFrom("bob", "192.168.77.2:6450"))
	b.linkLost(at(time.Second), wire)
	b.hear(at(2*time.Second), wire, bob, helloFrom("bob", "192.168.77.2:6450")) // it only flapped
	b.sweep(at(time.Minute))
	if b.entries[testID("bob")] == nil {
		t.Error("forgotten though heard again")
	}
	b.linkLost(at(time.Minute), wire)
	b.sweep(at(time.Minute + lostLinkGrace))
	if b.entries[testID("bob")] != nil {
		t.Error("still there on another LAN")
	}
}

// A LAN lost its IPv4: what was told over that leads nowhere, and stands in the way of what is told now.
func TestWhatIsHeardElsewhereReplacesWhatWasSaidOnALostLink(t *testing.T) {
	b := newCache(nobody)
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.2"), helloFrom("bob", "192.168.77.2:6450", "[fd00::2]:6450"))
	b.hear(at(0), wire6, netip.MustParseAddr("fe80::2"), helloFrom("bob", "192.168.77.2:6450", "[fd00::2]:6450"))
	drain(b)
	b.linkLost(at(time.Second), wire)
	b.linkLost(at(time.Second), wire6)
	if e := drain(b); len(e) != 0 {
		t.Errorf("told before anything else is known: %+v", e)
	}
	b.hear(at(time.Second), wire6, netip.MustParseAddr("fe80::2"), helloFrom("bob", "[fe80::2]:6450"))
	if e := drain(b); len(e) != 1 || !slices.Equal(e[0].Addresses, ports("[fe80::2%"+wire6.zone+"]:6450")) {
		t.Errorf("%+v", e)
	}
	b.hear(at(2*time.Second), wire, netip.MustParseAddr("192.168.77.2"), helloFrom("bob", "192.168.77.2:6450")) // and IPv4 is back
	if e := drain(b); len(e) != 1 || len(e[0].Addresses) != 2 {
		t.Errorf("%+v", e)
	}
}

func TestFloodOfStrangers(t *testing.T) {
	friend := testID("carol")
	b := newCache(func(id identity.ID) bool { return id == friend })
	b.hear(at(0), wire, netip.MustParseAddr("192.168.77.3"), helloFrom("carol", "192.168.77.3:6450"))
	bob := testID("bob") // a friend, too, who comes in the middle of it
	sender, events, told := netip.MustParseAddr("10.0.0.1"), 0, map[identity.ID]bool{}
	for i := range 10_000 { // in a minute, each from another address
		now := at(time.Duration(i) * 6 * time.Millisecond)
		sender = sender.Next()
		b.hear(now, wire, sender, hello{txtOf(numbered(i), "x"), maxTTL, ports("10.0.0.1:6450")})
		if i == 5000 {
			b.trusted = func(id identity.ID) bool { return id == friend || id == bob }
			b.hear(now, wire, netip.MustParseAddr("192.168.77.2"), helloFrom("bob", "192.168.77.2:6450"))
		}
		for _, e := range drain(b) {
			events++
			told[e.ID] = true
		}
	}
	if !told[friend] || !told[bob] || b.entries[friend] == nil || b.entries[bob] == nil {
		t.Error("a friend was displaced")
	}
	if most := strangersBurst + 60*strangersSecond + 5; events > most {
		t.Errorf("%d events, want %d at most", events, most)
	}
	// For hours on end, and with a consumer that is stuck.
	for i := range 20_000 {
		sender = sender.Next()
		b.hear(at(time.Duration(i)*500*time.Millisecond), wire, sender, hello{txtOf(numbered(20_000+i), "x"), maxTTL, ports("10.0.0.1:6450")})
	}
	if len(b.entries) > maxEntries || len(b.dirty) > 2*maxEntries || len(b.reported) > 2*maxEntries || len(b.isDirty) != len(b.dirty) {
		t.Errorf("remembers %d entries, %d to be told, %d told", len(b.entries), len(b.dirty), len(b.reported))
	}
	if b.entries[friend] == nil {
		t.Error("a friend was evicted")
	}
}

func TestOneSenderFillsOnlyItsShare(t *testing.T) {
	b := newCache(nobody)
	for i := range 1000 {
		b.hear(at(time.Duration(i)*time.Second), wire, netip.MustParseAddr("192.168.77.66"), hello{txtOf(numbered(i), "x"), maxTTL, ports("10.0.0.1:6450")})
	}
	if len(b.entries) != maxPerSender {
		t.Errorf("%d entries", len(b.entries))
	}
}
