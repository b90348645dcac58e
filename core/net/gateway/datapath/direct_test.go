package datapath

import (
	"bytes"
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

// introduced are bob and carol as alice introduced them to each other, with both families. Bob has guests of dave, too, with addresses of alice's space.
type introduced struct {
	bob, carol     *Table
	bobs, carols   *Way
	atBob, atCarol Direct
	woken          int // at bob
}

const (
	sixAtBob   = "fd01:0:0:1::/64"
	sixAtCarol = "fd01:0:0:2::/64"
	sixAtDave  = "fd01:0:0:3::/64"
)

func introduce() *introduced {
	in := &introduced{bobs: &Way{}, carols: &Way{Wake: func() {}}}
	in.bobs.Wake = func() { in.woken++ }
	name := netip.MustParseAddr
	in.atBob = Direct{Handle: name("240.0.0.1"), Called: name("240.0.0.2"), Guests: prefix("10.128.0.0/24"), Guests6: prefix(sixAtCarol), MTU: 1300, Way: in.bobs}
	in.atCarol = Direct{Handle: name("240.0.0.2"), Called: name("240.0.0.1"), Guests: prefix("10.127.0.0/24"), Guests6: prefix(sixAtBob), MTU: 1300, Way: in.carols}
	table := func(here, here6 string, d Direct) *Table {
		six := netplan.Pair6{Here: prefix(here6), Space: prefixes("fd00:42::/56", sixAtBob, sixAtCarol)}
		four := netplan.Pair{Here: prefix(here), Space: prefixes("10.42.0.0/16", "10.127.0.0/24", "10.128.0.0/24"), IPv6: six}
		dave := netplan.Pair{Here: prefix("10.127.4.0/24"), Space: prefixes("10.42.0.0/16", "10.128.0.0/24"), IPv6: netplan.Pair6{Here: prefix(sixAtDave), Space: six.Space}}
		h := testHost()
		h.Pods, h.Self6 = append(h.Pods, prefix("fd00:42::/56")), name("fd00:42:0:ff::1")
		return New(h, []Peer{{Pair: four, MTU: 1400, Up: up(), Direct: []Direct{d}}, {Pair: dave, MTU: 1400, Up: up()}})
	}
	in.bob, in.carol = table("10.127.0.0/24", sixAtBob, in.atBob), table("10.128.0.0/24", sixAtCarol, in.atCarol)
	return in
}

// way is by whom a packet is called that leaves.
func way(t *testing.T, b []byte) string {
	t.Helper()
	if b == nil {
		return "dropped"
	}
	return addressAt(b, atDestination).String()
}

func TestAGuestsPacketGoesPastHomeWhileTheWayIsUp(t *testing.T) {
	in := introduce()
	byHome := netplan.Pair{Here: prefix("10.127.0.0/24")}.Handle().String()
	udp := udpSegment(1000, 40000, []byte("hello"))
	four := func(dst string, size int) []byte {
		return ipv4Packet("10.127.0.130", dst, protoUDP, udpSegment(1000, 40000, make([]byte, size)))
	}
	six := func(dst string) []byte { return ipv6Packet("fd01:0:0:1::5", dst, protoUDP, udp) }
	for _, c := range []struct {
		name string
		p    []byte
		up   bool
		want string
	}{
		{"down", four("10.128.0.7", 10), false, byHome},
		{"up", four("10.128.0.7", 10), true, "240.0.0.1"},
		{"to home itself", four("10.42.0.5", 10), true, byHome},
		{"too large for the way", four("10.128.0.7", 1300), true, byHome},
		{"IPv6, down", six("fd01:0:0:2::7"), false, byHome},
		{"IPv6, up", six("fd01:0:0:2::7"), true, "240.0.0.1"},
		{"IPv6 to home itself", six("fd00:42::5"), true, byHome},
		{"another home's guest", ipv4Packet("10.127.4.130", "10.128.0.7", protoUDP, udp), true, netplan.Pair{Here: prefix("10.127.4.0/24")}.Handle().String()},
		{"another home's guest, IPv6", ipv6Packet("fd01:0:0:3::5", "fd01:0:0:2::7", protoUDP, udp), true, netplan.Pair{Here: prefix("10.127.4.0/24")}.Handle().String()},
	} {
		in.bobs.Up.Store(c.up)
		if b, _ := leave(in.bob, c.p); way(t, b) != c.want {
			t.Errorf("%s: goes to %s, want %s", c.name, way(t, b), c.want)
		}
	}
}

func TestAWayIsWantedOnceUntilItWasLookedAt(t *testing.T) {
	in := introduce()
	send := func() { leave(in.bob, ipv4Packet("10.127.0.130", "10.128.0.7", protoUDP, udpSegment(1, 2, nil))) }
	if in.bobs.Wanted() {
		t.Error("wanted by nobody")
	}
	send()
	send()
	if in.woken != 1 || !in.bobs.Wanted() || in.bobs.Wanted() {
		t.Errorf("woken %d times, or not wanted", in.woken)
	}
	send()
	if in.woken != 2 {
		t.Errorf("woken %d times after a look, want 2", in.woken)
	}
}

// TestADirectWayCarriesTwoRangesAlone: whatever the other provider sends.
func TestADirectWayCarriesTwoRangesAlone(t *testing.T) {
	in := introduce()
	in.carols.Up.Store(true)
	udp := udpSegment(1000, 40000, []byte("hello"))
	sent := func(p []byte, proto byte) []byte { // by carol, whatever her own data path thinks of it
		b := append(make([]byte, Header), p...)
		(&tunnel{header: headerOf(in.atCarol.Called, in.atCarol.Handle)}).wrap(b)
		b[9] = proto
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want Verdict
	}{
		{"guest to guest", sent(ipv4Packet("10.128.0.7", "10.127.0.130", protoUDP, udp), protoIPIP), Pass},
		{"guest to guest, IPv6", sent(ipv6Packet("fd01:0:0:2::7", "fd01:0:0:1::5", protoUDP, udp), protoIPv6), Pass},
		{"the gateway's echo", sent(ipv4Packet("10.128.0.1", "10.127.0.130", protoICMP, icmpMessage(8, nil)), protoIPIP), Pass},
		{"as home's pod", sent(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), protoIPIP), dropSender},
		{"as a guest here", sent(ipv4Packet("10.127.0.131", "10.127.0.130", protoUDP, udp), protoIPIP), dropSender},
		{"to another home's guest", sent(ipv4Packet("10.128.0.7", "10.127.4.130", protoUDP, udp), protoIPIP), dropDestination},
		{"to our pods", sent(ipv4Packet("10.128.0.7", "10.42.0.5", protoUDP, udp), protoIPIP), dropDestination},
		{"to the internet", sent(ipv4Packet("10.128.0.7", "1.1.1.1", protoUDP, udp), protoIPIP), dropDestination},
		{"IPv6 as home's pod", sent(ipv6Packet("fd00:42::5", "fd01:0:0:1::5", protoUDP, udp), protoIPv6), dropSender},
		{"IPv6 to our pods", sent(ipv6Packet("fd01:0:0:2::7", "fd00:42::5", protoUDP, udp), protoIPv6), dropDestination},
		{"IPv6 to another home's guest", sent(ipv6Packet("fd01:0:0:2::7", "fd01:0:0:3::5", protoUDP, udp), protoIPv6), dropDestination},
		{"a question that is cut", in.atCarol.Question(1)[:questionSize-1], Malformed},
		{"a question of no kind", func() []byte { b := in.atCarol.Question(1); b[Header] = 9; return b }(), Malformed},
		{"a question longer than it is", append(in.atCarol.Question(1), 0), Malformed},
	} {
		if v, onward := in.bob.Ingress(bytes.Clone(c.b)); v != c.want || onward {
			t.Errorf("%s: verdict %d, want %d (onward: %v)", c.name, v, c.want, onward)
		}
	}
	// A peer that has no such way asks in vain.
	home := netplan.Pair{There: prefix("10.127.0.0/24")}
	b := in.atCarol.Question(1)
	copy(b[atSource:], home.Called().AsSlice())
	if v, _ := in.bob.Ingress(b); v != Malformed {
		t.Errorf("a question from home: verdict %d", v)
	}
}

func TestAQuestionIsAnsweredByItsNumber(t *testing.T) {
	in := introduce()
	b := in.atBob.Question(7)
	if v, onward := in.carol.Ingress(b); v != Pass || !onward || !IsQuestion(b) {
		t.Fatalf("carol: verdict %d, onward %v", v, onward)
	}
	if in.carols.Answered.Load() != 0 || !in.carols.Asked() || in.carols.Asked() {
		t.Error("carol took a question for an answer, or was not asked")
	}
	if v, onward := in.bob.Ingress(b); v != Taken || onward || in.bobs.Answered.Load() != 7 || in.bobs.Asked() || in.woken != 1 {
		t.Errorf("bob: verdict %d, onward %v, answered %d, woken %d", v, onward, in.bobs.Answered.Load(), in.woken)
	}
}

func FuzzADirectWay(f *testing.F) {
	in := introduce()
	f.Add(in.atCarol.Question(3))
	for _, p := range [][]byte{ipv4Packet("10.128.0.7", "10.127.0.130", protoTCP, tcpSegment(2, []byte{2, 4, 5, 180}, nil)), ipv4Packet("10.128.0.7", "10.42.0.5", protoUDP, udpSegment(1, 2, nil))} {
		b := append(make([]byte, Header), p...)
		(&tunnel{header: headerOf(in.atCarol.Called, in.atCarol.Handle)}).wrap(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= Header {
			b[0] = 0x45 // what WireGuard has checked, and the name
			copy(b[atSource:], in.atCarol.Called.AsSlice())
		}
		v, onward := in.bob.Ingress(b)
		if v != Pass || onward {
			return
		}
		src, dst := addressAt(b[Header:], atSource), addressAt(b[Header:], atDestination)
		if b[9] == protoIPIP && (!in.atBob.Guests.Contains(src) || !in.atCarol.Guests.Contains(dst)) {
			t.Fatalf("passes: %s to %s", src, dst)
		}
	})
}
