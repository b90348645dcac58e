package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"kith.dev/core/net/netplan"
)

// Alice, bob and carol as in parties, with both families: all have the ranges of K3s's documentation. To each other they are called by IPv4.
func parties6() (p party) {
	host := func(own ...string) Host {
		h := testHost()
		h.Self6 = netip.MustParseAddr("2001:cafe:42:ff::2")
		h.Pods = append(h.Pods, prefix("2001:cafe:42::/56"))
		h.Own = append(h.Own, prefixes(append(own, "2001:cafe:42::1/128", "2001:cafe:42::/128", "2001:cafe:42:ff::2/128", "fe80::1/128", "2001:db8::1/128")...)...)
		h.LAN = append(h.LAN, prefixes("2001:cafe:42:7::/64", "2001:db8::/64")...)
		return h
	}
	six := prefixes("2001:cafe:42::/56", "fd00:b::/64", "fd00:c::/64")
	pair := func(ipv4 string, six netplan.Pair6, there bool) netplan.Pair {
		if there {
			return netplan.Pair{There: prefix(ipv4), IPv6: six}
		}
		return netplan.Pair{Here: prefix(ipv4), Space: prefixes("10.42.0.0/16"), IPv6: six}
	}
	p.alice = New(host(), []Peer{
		{Pair: pair("10.127.0.0/24", netplan.Pair6{There: prefix("fd00:b::/64")}, true), MTU: 1400, Up: up()},
		{Pair: pair("10.128.0.0/24", netplan.Pair6{There: prefix("fd00:c::/64")}, true), MTU: 1212, Up: up()},
		{Pair: netplan.Pair{There: prefix("10.129.0.0/16")}, MTU: 1400, Up: up()}, // erin has IPv4 alone
	})
	p.bob = New(host("fd00:b::1/128", "fd00:d::1/128"), []Peer{
		{Pair: pair("10.127.0.0/24", netplan.Pair6{Here: prefix("fd00:b::/64"), Space: six}, false), MTU: 1400, Up: up()},
		{Pair: pair("10.127.4.0/24", netplan.Pair6{Here: prefix("fd00:d::/64"), Space: six[:1]}, false), MTU: 1400, Up: up()},
	})
	p.carol = New(host("fd00:c::1/128"), []Peer{
		{Pair: pair("10.128.0.0/24", netplan.Pair6{Here: prefix("fd00:c::/64"), Space: six}, false), MTU: 1212, Up: up()},
	})
	p.erin = parties().erin
	return p
}

// ipv6Packet builds a packet with its checksum right; ext are headers between, each without its next header.
func ipv6Packet(src, dst string, proto byte, payload []byte, ext ...extension) []byte {
	p := make([]byte, header6Len)
	p[0], p[7] = 0x60, 64
	copy(p[atSource6:], netip.MustParseAddr(src).AsSlice())
	copy(p[atDestination6:], netip.MustParseAddr(dst).AsSlice())
	next := 6
	for _, e := range ext {
		p[next], next = e.kind, len(p)
		p = append(p, e.body...)
	}
	p[next] = proto
	p = append(p, payload...)
	seal6(p, proto, len(p)-len(payload))
	return p
}

type extension struct {
	kind byte
	body []byte // its first byte is what comes next
}

func fragmentHeader(offset uint16, more bool) extension {
	b := make([]byte, 8)
	v := offset << 3
	if more {
		v |= 1
	}
	binary.BigEndian.PutUint16(b[2:], v)
	return extension{extFragment, b}
}

// destinationOptions has to be a multiple of eight bytes, less two.
func destinationOptions(options ...byte) extension {
	return extension{extDestination, append([]byte{0, byte((len(options) - 6) / 8)}, options...)}
}

// sum6At is where the checksum of what a packet carries lies, behind its header; 0 where it has none.
func sum6At(proto byte) int {
	return map[byte]int{protoTCP: 16, protoUDP: 6, protoICMPv6: 2}[proto]
}

func sumOf6(p []byte, proto byte, at int) uint16 {
	return sum(p[at:], uint32(sum(p[atSource6:header6Len], 0))+uint32(proto)+uint32(len(p)-at))
}

// seal6 makes length and checksum of a packet right that carries proto at an offset.
func seal6(p []byte, proto byte, at int) {
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)-header6Len))
	if c := at + sum6At(proto); c > at && len(p) >= c+2 {
		p[c], p[c+1] = 0, 0
		binary.BigEndian.PutUint16(p[c:], ^sumOf6(p, proto, at))
	}
}

func with6(p []byte, f func([]byte)) []byte { f(p); return p }

func addresses6(p []byte) string {
	return netip.AddrFrom16([16]byte(p[atSource6:])).String() + " > " + netip.AddrFrom16([16]byte(p[atDestination6:])).String()
}

// TestPackets6: from one's kernel to another's.
func TestPackets6(t *testing.T) {
	all := parties6()
	const pod, guest, other, router = "2001:cafe:42::5", "fd00:b::130", "fd00:c::130", "2001:db8::9"
	udp := udpSegment(1000, 40000, []byte("hello, odd"))
	tcp := tcpSegment(16, nil, []byte("x"))
	const syn = 2
	for _, c := range []struct {
		name     string
		from, to *Table
		p        []byte
		leaves   Verdict
		arrives  Verdict
		as       string // addresses, when they are others
	}{
		{"to a guest", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udp), Pass, Pass, ""},
		{"and back", all.bob, all.alice, ipv6Packet(guest, pod, protoTCP, tcp), Pass, Pass, ""},
		{"a guest to home's pod of an address that the provider has too", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::1", protoICMPv6, icmpMessage(128, nil)), Pass, Pass, ""},
		{"a guest to home's API server", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::1", protoTCP, port(6443, syn)), Pass, Pass, ""},
		{"a guest to a node port of home's", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::1", protoTCP, port(30080, syn)), Pass, Pass, ""},
		{"a guest behind the last node port", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::1", protoTCP, port(32768, syn)), Pass, dropHost, ""},
		{"home to a node port of the provider's", all.alice, all.bob, ipv6Packet("2001:cafe:42:ff::2", "fd00:b::1", protoTCP, port(30080, syn)), Pass, dropHost, ""},
		{"a guest to another service of home's host", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::1", protoTCP, port(22, syn)), Pass, dropHost, ""},
		{"a guest to the address that all routers of home's pods have", all.bob, all.alice, ipv6Packet(guest, "2001:cafe:42::", protoTCP, port(22, syn)), Pass, dropHost, ""},
		{"a guest at bob to one at carol, from home on", all.alice, all.carol, ipv6Packet(guest, other, protoTCP, tcp), Pass, Pass, ""},
		{"home's host to a guest", all.alice, all.bob, ipv6Packet("2001:cafe:42:ff::2", guest, protoTCP, tcp), Pass, Pass, ""},
		{"home to the gateway of its guests", all.alice, all.bob, ipv6Packet("2001:cafe:42:ff::2", "fd00:b::1", protoICMPv6, icmpMessage(128, nil)), Pass, Pass, ""},
		{"home to a service of the provider's host", all.alice, all.bob, ipv6Packet("2001:cafe:42:ff::2", "fd00:b::1", protoTCP, port(22, syn)), Pass, dropHost, ""},
		{"destination options", all.alice, all.bob, ipv6Packet(pod, guest, protoTCP, tcp, destinationOptions(1, 4, 0, 0, 0, 0)), Pass, Pass, ""},
		{"a first fragment", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udp, fragmentHeader(0, true)), Pass, Pass, ""},
		{"a fragment", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udp, fragmentHeader(185, false)), Pass, Pass, ""},
		{"options in fragments", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udp, fragmentHeader(0, true), destinationOptions(0, 1, 3, 201, 201, 201)), Pass, Pass, ""},
		{"a later fragment of options", all.alice, all.bob, ipv6Packet(pod, guest, extDestination, []byte{255, 255, 255, 255, 255, 255, 255, 255}, fragmentHeader(3, true)), Pass, Pass, ""},
		{"gre", all.alice, all.bob, ipv6Packet(pod, guest, 47, make([]byte, 9)), Pass, Pass, ""},
		{"nothing", all.alice, all.bob, ipv6Packet(pod, guest, 59, nil), Pass, Pass, ""},
		{"too big", all.bob, all.alice, ipv6Packet(guest, pod, protoICMPv6, icmpMessage(2, ipv6Packet(pod, guest, protoUDP, udp))), Pass, Pass, ""},
		{"a router at home complains", all.alice, all.bob, ipv6Packet(router, guest, protoICMPv6, icmpMessage(3, ipv6Packet(guest, pod, protoUDP, udp))),
			Pass, Pass, "2001:cafe:42:ff::2 > " + guest},

		{"to nobody", all.alice, nil, ipv6Packet(pod, "fd00:e::1", protoUDP, udp), dropPeer, 0, ""},
		{"before a range", all.alice, nil, ipv6Packet(pod, "fd00:a:ffff:ffff:ffff:ffff:ffff:ffff", protoUDP, udp), dropPeer, 0, ""},
		{"behind a range", all.alice, nil, ipv6Packet(pod, "fd00:b:0:1::", protoUDP, udp), dropPeer, 0, ""},
		{"from the LAN", all.alice, nil, ipv6Packet("2001:db8::5", guest, protoUDP, udp), dropSource, 0, ""},
		{"from the link", all.alice, nil, ipv6Packet("fe80::5", guest, protoUDP, udp), dropSource, 0, ""},
		{"from nowhere", all.alice, nil, ipv6Packet("::", guest, protoUDP, udp), dropSource, 0, ""},
		{"to many", all.alice, nil, ipv6Packet(pod, "ff02::1", protoUDP, udp), dropPeer, 0, ""},
		{"to the link", all.alice, nil, ipv6Packet(pod, "fe80::1", protoUDP, udp), dropPeer, 0, ""},
		{"the provider's pod to a home", all.bob, nil, ipv6Packet("2001:cafe:42::9", pod, protoUDP, udp), dropPeer, 0, ""},
		{"a guest to what its home does not have", all.bob, nil, ipv6Packet(guest, "2001:cafe:43::5", protoUDP, udp), dropPeer, 0, ""},
		{"a guest to many", all.bob, nil, ipv6Packet(guest, "ff02::2", protoUDP, udp), dropPeer, 0, ""},
		{"a guest of another home to the first one's elsewhere", all.bob, nil, ipv6Packet("fd00:d::130", other, protoUDP, udp), dropPeer, 0, ""},
		{"a guest to the guest of another home", all.bob, nil, ipv6Packet(guest, "fd00:d::130", protoUDP, udp), dropPeer, 0, ""},
		{"a redirect", all.alice, nil, ipv6Packet(pod, guest, protoICMPv6, icmpMessage(137, make([]byte, 40))), dropNeighbour, 0, ""},
		{"a router's advertisement", all.bob, nil, ipv6Packet(guest, pod, protoICMPv6, icmpMessage(134, make([]byte, 8))), dropNeighbour, 0, ""},
		{"a neighbour's advertisement behind options", all.bob, nil, ipv6Packet(guest, pod, protoICMPv6, icmpMessage(136, make([]byte, 24)), destinationOptions(1, 4, 0, 0, 0, 0)), dropNeighbour, 0, ""},
		{"the tunnel itself", all.alice, nil, ipv6Packet("2001:cafe:42:ff::2", guest, protoUDP, udpSegment(6450, 6450, udp)), dropLoop, 0, ""},
		{"a pod on that port", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udpSegment(6450, 6450, udp)), Pass, Pass, ""},
		{"of one who has IPv4 alone", all.erin, nil, ipv6Packet(pod, guest, protoUDP, udp), dropIPv6, 0, ""},
		{"short", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp)[:39], Malformed, 0, ""},
		{"longer than it says", all.alice, nil, append(ipv6Packet(pod, guest, protoUDP, udp), 0), Malformed, 0, ""},
		{"shorter than it says", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp)[:45], Malformed, 0, ""},
		{"a routing header", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, extension{extRouting, []byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}), Malformed, 0, ""},
		{"a routing header that is used up", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, extension{extRouting, make([]byte, 8)}), Malformed, 0, ""},
		{"a routing header behind options", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, destinationOptions(1, 4, 0, 0, 0, 0), extension{extRouting, make([]byte, 8)}), Malformed, 0, ""},
		{"a routing header in fragments", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, fragmentHeader(0, true), extension{extRouting, make([]byte, 8)}), Malformed, 0, ""},
		{"hop by hop", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, extension{extHopByHop, []byte{0, 0, 1, 4, 0, 0, 0, 0}}), Malformed, 0, ""},
		{"from another home address", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, destinationOptions(append([]byte{1, 2, 0, 0, 201, 16}, make([]byte, 16)...)...)), Malformed, 0, ""},
		{"its number inside another option", all.alice, all.bob, ipv6Packet(pod, guest, protoUDP, udp, destinationOptions(30, 4, 201, 201, 201, 201)), Pass, Pass, ""},
		{"an option beyond the end", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, destinationOptions(30, 5, 0, 0, 0, 0)), Malformed, 0, ""},
		{"half an option", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, destinationOptions(0, 0, 0, 0, 0, 30)), Malformed, 0, ""},
		{"options beyond the end", all.alice, nil, ipv6Packet(pod, guest, protoUDP, nil, extension{extDestination, []byte{0, 1, 0, 0, 0, 0, 0, 0}}), Malformed, 0, ""},
		{"half a fragment header", all.alice, nil, with6(ipv6Packet(pod, guest, extFragment, make([]byte, 7)), func([]byte) {}), Malformed, 0, ""},
		{"a fragment of a fragment", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, fragmentHeader(0, true), fragmentHeader(0, false)), Malformed, 0, ""},
		{"headers that do not end in the first fragment", all.alice, nil, ipv6Packet(pod, guest, extDestination, nil, fragmentHeader(0, true)), Malformed, 0, ""},
		{"ICMP that does not begin in the first fragment", all.alice, nil, ipv6Packet(pod, guest, protoICMPv6, nil, fragmentHeader(0, true)), Malformed, 0, ""},
		{"half an ICMP header", all.alice, nil, ipv6Packet(pod, guest, protoICMPv6, make([]byte, 7)), Malformed, 0, ""},
		{"headers without end", all.alice, nil, ipv6Packet(pod, guest, protoUDP, udp, slices.Repeat([]extension{destinationOptions(1, 4, 0, 0, 0, 0)}, 5)...), Malformed, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := bytes.Clone(c.p)
			b, v := leave(c.from, c.p)
			if v != c.leaves {
				t.Fatalf("leaves: %s, want %s", verdictNames[v], verdictNames[c.leaves])
			}
			if !bytes.Equal(was, c.p) {
				t.Error("a dropped packet was changed")
			}
			if v != Pass {
				return
			}
			got, v := arrive(c.to, b)
			if v != c.arrives {
				t.Fatalf("arrives: %s, want %s", verdictNames[v], verdictNames[c.arrives])
			}
			if v != Pass {
				return
			}
			if c.as == "" && !bytes.Equal(got, was) {
				t.Errorf("arrived as\n%x, sent was\n%x", got, was)
			}
			if c.as != "" && (addresses6(got) != c.as || sumOf6(got, got[6], header6Len) != 0xffff) {
				t.Errorf("arrived as %s, checksum %x", addresses6(got), sumOf6(got, got[6], header6Len))
			}
		})
	}
}

func sentBy6(called string, p []byte) []byte {
	b := sentBy(called, p)
	b[9] = protoIPv6
	return b
}

// TestWhatAPeerMayNotSendOfIPv6: a hostile one, with the right key and any content.
func TestWhatAPeerMayNotSendOfIPv6(t *testing.T) {
	all := parties6()
	udp, low := udpSegment(1000, 40000, []byte("hello")), udpSegment(1000, 53, []byte("hello"))
	const syn, ack, guest, host = 2, 16, "fd00:b::130", "2001:cafe:42::1"
	by := func(src, dst string) []byte { return sentBy6(aliceAndBob, ipv6Packet(src, dst, protoUDP, low)) }
	toHost := func(proto byte, payload []byte, ext ...extension) []byte {
		return sentBy6(aliceAndBob, ipv6Packet(guest, host, proto, payload, ext...))
	}
	icmp := func(kind byte, dst string) []byte {
		return sentBy6(aliceAndBob, ipv6Packet(guest, dst, protoICMPv6, icmpMessage(kind, make([]byte, 40))))
	}
	type attempt struct {
		name string
		at   *Table
		b    []byte
		want Verdict
	}
	list := []attempt{
		{"bob's guest of ours to our pod", all.alice, by(guest, "2001:cafe:42::5"), Pass},
		{"bob himself", all.alice, by("2001:cafe:42::9", "2001:cafe:42::5"), dropSender},
		{"bob, as a guest at carol", all.alice, by("fd00:c::130", "2001:cafe:42::5"), dropSender},
		{"bob, as a guest at carol to one at bob", all.alice, by("fd00:c::130", "fd00:b::5"), dropSender},
		{"bob, from the link", all.alice, by("fe80::1", "2001:cafe:42::5"), dropSender},
		{"bob, as us", all.alice, by("2001:cafe:42:ff::2", "2001:cafe:42::5"), dropSender},
		{"bob, from loopback", all.alice, by("::1", "2001:cafe:42::5"), dropSender},
		{"bob, from nowhere", all.alice, by("::", "2001:cafe:42::5"), dropSender},
		{"bob, as an address that stands for IPv4's", all.alice, by("::ffff:10.127.0.130", "2001:cafe:42::5"), dropSender},
		{"bob's guest to our LAN", all.alice, by(guest, "2001:db8::7"), dropDestination},
		{"to our address in the LAN", all.alice, by(guest, "2001:db8::1"), dropDestination},
		{"to our address of the link", all.alice, by(guest, "fe80::1"), dropDestination},
		{"to a LAN inside our range", all.alice, by(guest, "2001:cafe:42:7::9"), dropDestination},
		{"to our services", all.alice, by(guest, "2001:cafe:43::a"), dropDestination},
		{"to loopback", all.alice, by(guest, "::1"), dropDestination},
		{"to all nodes", all.alice, by(guest, "ff02::1"), dropDestination},
		{"to an address that stands for IPv4's", all.alice, by(guest, "::ffff:10.42.0.5"), dropDestination},
		{"alice to her guest at bob's", all.bob, by("2001:cafe:42::5", guest), Pass},
		{"alice to bob's pod", all.bob, by("2001:cafe:42::5", "2001:cafe:42::7"), dropSender},
		{"alice, as her guest, to bob's pod", all.bob, by(guest, "2001:cafe:42::7"), dropSender},
		{"alice to dave's guest", all.bob, by("2001:cafe:42::5", "fd00:d::130"), dropDestination},
		{"alice, as somebody of the internet, to her guest", all.bob, by("2600::1", guest), dropSender},
		{"alice, from the link, to her guest", all.bob, by("fe80::1", guest), dropSender},
		{"to one who has IPv4 alone", all.erin, sentBy6(aliceAndErin, ipv6Packet("2001:cafe:42::5", guest, protoUDP, low)), dropIPv6},

		{"ping to the host", all.alice, toHost(protoICMPv6, icmpMessage(128, nil)), Pass},
		{"a service of the host", all.alice, toHost(protoTCP, port(22, syn)), dropHost},
		{"behind options", all.alice, toHost(protoTCP, port(22, syn), destinationOptions(1, 4, 0, 0, 0, 0)), dropHost},
		{"in a fragment that is all", all.alice, toHost(protoTCP, port(22, syn), fragmentHeader(0, false)), dropHost},
		{"the API server", all.alice, toHost(protoTCP, port(6443, syn)), Pass},
		{"an answer to the host", all.alice, toHost(protoTCP, port(22, syn|ack)), Pass},
		{"dns at the host", all.alice, toHost(protoUDP, low), dropHost},
		{"an answer by UDP", all.alice, toHost(protoUDP, udp), Pass},
		{"sctp to the host", all.alice, toHost(132, udp), dropHost},
		{"a tunnel to the host", all.alice, toHost(protoIPv6, ipv6Packet(guest, host, protoUDP, udp)), dropHost},
		{"flags in the second fragment", all.alice, toHost(protoTCP, port(22, syn)[:8], fragmentHeader(0, true)), dropHost},
		{"flags overwritten", all.alice, toHost(protoTCP, append(port(22, syn)[8:], port(22, ack)...), fragmentHeader(1, false)), dropHost},
		{"what would pass for an answer in the second fragment", all.alice, toHost(protoTCP, port(22, ack), fragmentHeader(1, false)), dropHost},
		{"a late fragment", all.alice, toHost(protoUDP, udp, fragmentHeader(100, false)), Pass},

		{"a handle that is nobody's", all.alice, sentBy6("10.130.0.0/24", ipv6Packet(guest, "2001:cafe:42::5", protoUDP, udp)), dropSender},
		{"IPv4 behind the header of IPv6", all.alice, sentBy6(aliceAndBob, ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp)), Malformed},
		{"IPv6 behind the header of IPv4", all.alice, sentBy(aliceAndBob, ipv6Packet(guest, "2001:cafe:42::5", protoUDP, udp)), dropIPv6},
		{"half a header inside", all.alice, sentBy6(aliceAndBob, make([]byte, 12)), Malformed},
		{"nothing inside", all.alice, sentBy6(aliceAndBob, nil), Malformed},
		{"a routing header", all.alice, sentBy6(aliceAndBob, ipv6Packet(guest, "2001:cafe:42::5", protoUDP, udp, extension{extRouting, make([]byte, 8)})), Malformed},
		{"a jumbogram", all.alice, sentBy6(aliceAndBob, with6(ipv6Packet(guest, "2001:cafe:42::5", protoUDP, udp, extension{extHopByHop, []byte{0, 0, 194, 4, 0, 1, 0, 0}}), func(p []byte) { p[4], p[5] = 0, 0 })), Malformed},
		{"a fragment of the outer packet", all.alice, with(sentBy6(aliceAndBob, ipv6Packet(guest, "2001:cafe:42::5", protoUDP, udp)), fragment(1, false)), dropSender},
	}
	for kind := range 256 { // of ICMPv6, of which RFC 4890 has those that firewalls let through
		want := dropNeighbour
		if slices.Contains([]int{1, 2, 3, 4, 128, 129}, kind) {
			want = Pass
		}
		for _, dst := range []string{host, "2001:cafe:42::5"} {
			list = append(list, attempt{fmt.Sprintf("ICMPv6 type %d to %s", kind, dst), all.alice, icmp(byte(kind), dst), want})
		}
	}
	for _, c := range list {
		was := bytes.Clone(c.b)
		if _, got := arrive(c.at, c.b); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, verdictNames[got], verdictNames[c.want])
		} else if got != Pass && !bytes.Equal(c.b, was) {
			t.Errorf("%s: a dropped packet was changed", c.name)
		}
	}
}

// TestErrorsOfStrangersStay6: only errors about packets to our own ranges may leave under the gateway's name.
func TestErrorsOfStrangersStay6(t *testing.T) {
	all := parties6()
	about := ipv6Packet("fd00:b::130", "2001:db8::1", protoUDP, udpSegment(1, 2, nil))
	for name, e := range map[string][]byte{
		"about a packet to the LAN": ipv6Packet("2001:db8::9", "fd00:b::130", protoICMPv6, icmpMessage(1, about)),
		"quoting too little":        ipv6Packet("2001:db8::9", "fd00:b::130", protoICMPv6, icmpMessage(1, about[:39])),
		"quoting IPv4":              ipv6Packet("2001:db8::9", "fd00:b::130", protoICMPv6, icmpMessage(1, append(ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, nil), make([]byte, 40)...))),
		"a query":                   ipv6Packet("2001:db8::9", "fd00:b::130", protoICMPv6, icmpMessage(128, about)),
	} {
		if _, v := leave(all.alice, e); v != dropSource {
			t.Errorf("%s: %s", name, verdictNames[v])
		}
	}
}

// TestGuestsOfTwoPeersMeetHere6: carol's path takes less than the least of IPv6, and what is around a packet is fragmented then.
func TestGuestsOfTwoPeersMeetHere6(t *testing.T) {
	for _, c := range []struct {
		name   string
		hops   byte
		size   int
		to     string
		down   bool
		onward bool
	}{
		{name: "to carol's", hops: 64, to: "fd00:c::130", onward: true},
		{name: "the largest that carol's path takes", hops: 64, to: "fd00:c::130", size: 1280 - 48, onward: true},
		{name: "a larger one", hops: 64, to: "fd00:c::130", size: 1280 - 47},
		{name: "at its last hop but one", hops: 2, to: "fd00:c::130", onward: true},
		{name: "at its last hop", hops: 1, to: "fd00:c::130"},
		{name: "with none left", hops: 0, to: "fd00:c::130"},
		{name: "while carol's tunnel is down", hops: 64, to: "fd00:c::130", down: true},
		{name: "to alice's own pod", hops: 64, to: "2001:cafe:42::5"},
	} {
		all := parties6()
		p := ipv6Packet("fd00:b::130", c.to, protoUDP, udpSegment(1000, 40000, make([]byte, c.size)))
		p[7] = c.hops
		if c.down {
			all.alice.six.guestAt(addr6Of(netip.MustParseAddr(c.to))).up.Store(false)
		}
		b := sentBy6(aliceAndBob, bytes.Clone(p))
		v, onward := all.alice.Ingress(b)
		if v != Pass || onward != c.onward {
			t.Errorf("%s: %s, onward %v, want %v", c.name, verdictNames[v], onward, c.onward)
			continue
		}
		if !onward {
			if !bytes.Equal(b[Header:], p) {
				t.Errorf("%s: what is for the kernel was changed", c.name)
			}
			continue
		}
		p[7]--
		if got, v := arrive(all.carol, b); v != Pass || !bytes.Equal(got, p) {
			t.Errorf("%s: at carol's %s\n%x, want\n%x", c.name, verdictNames[v], got, p)
		}
	}
}

func TestSegmentsFitTheTunnelOfIPv6(t *testing.T) {
	all := parties6()
	for to, want := range map[string]uint16{"fd00:b::130": 1340, "fd00:c::130": 1152} {
		for _, ext := range [][]extension{nil, {destinationOptions(1, 4, 0, 0, 0, 0)}} {
			p := ipv6Packet("2001:cafe:42::5", to, protoTCP, tcpSegment(2, []byte{1, 1, 1, 1, 2, 4, 5, 180}, nil), ext...)
			b, v := leave(all.alice, p)
			if v != Pass {
				t.Fatal(verdictNames[v])
			}
			got := b[Header:]
			at := len(got) - 28
			if mss := binary.BigEndian.Uint16(got[at+26:]); mss != want || sumOf6(got, protoTCP, at) != 0xffff {
				t.Errorf("to %s: %d, want %d; checksum %x", to, mss, want, sumOf6(got, protoTCP, at))
			}
		}
	}
}

func seeds6(f *testing.F, src, dst string) {
	udp := udpSegment(1000, 2000, []byte("hello, odd"))
	f.Add(ipv6Packet(src, dst, protoUDP, udp))
	f.Add(ipv6Packet(src, dst, protoTCP, tcpSegment(2, []byte{1, 2, 4, 5, 180, 0, 0, 0}, nil)))
	f.Add(ipv6Packet(src, dst, protoICMPv6, icmpMessage(128, []byte("x"))))
	f.Add(ipv6Packet("2001:db8::9", dst, protoICMPv6, icmpMessage(2, ipv6Packet(dst, src, protoUDP, udp))))
	f.Add(ipv6Packet(src, dst, protoUDP, udp, destinationOptions(1, 4, 0, 0, 0, 0), fragmentHeader(0, true)))
	f.Add(ipv6Packet(src, dst, protoUDP, udp, fragmentHeader(9, false)))
	f.Add(ipv6Packet(src, dst, protoUDP, udp, extension{extRouting, make([]byte, 8)}))
}

// FuzzEgress6 and FuzzIngress6: whatever passes has addresses that its sender may have, nothing that leads it elsewhere in front of what it
// carries, and is changed in what a SYN announces, or an error's source, alone.
func FuzzEgress6(f *testing.F) {
	all := parties6()
	seeds6(f, "2001:cafe:42::5", "fd00:b::130")
	seeds6(f, "fd00:b::130", "2001:cafe:42::5")
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, table := range []*Table{all.alice, all.bob} {
			b, v := leave(table, p)
			if v != Pass || p[0]>>4 != 6 {
				continue
			}
			out := b[Header:]
			wants6(t, p, out, 0)
			src, dst := addr6At(out, atSource6), addr6At(out, atDestination6)
			if from, to := table.six.find(src), table.six.find(dst); from != nil && from.kind == here {
				if !within6(from.to.six.space, dst) {
					t.Fatalf("a guest leaves as %s", addresses6(out))
				}
			} else if to == nil || to.kind != there || !within6(table.six.pods, src) && table.six.guestAt(src) == nil {
				t.Fatalf("leaves as %s", addresses6(out))
			}
		}
	})
}

func FuzzIngress6(f *testing.F) {
	all := parties6()
	seeds6(f, "2001:cafe:42::5", "fd00:b::130")
	seeds6(f, "fd00:b::130", "2001:cafe:42::5")
	seeds6(f, "fd00:b::130", "fd00:c::130")
	f.Fuzz(func(t *testing.T, p []byte) {
		for at, table := range map[string]*Table{"alice": all.alice, "bob": all.bob} {
			b := sentBy6(aliceAndBob, bytes.Clone(p))
			v, onward := table.Ingress(b)
			if v != Pass {
				if !bytes.Equal(b, sentBy6(aliceAndBob, p)) {
					t.Fatal("a dropped packet was changed")
				}
				continue
			}
			hops := byte(0)
			if onward {
				hops = 1
			}
			wants6(t, p, b[Header:], hops)
			src, dst := addr6At(p, atSource6), addr6At(p, atDestination6)
			guests := zone6Of(prefix("fd00:b::/64"))
			from, to := within6([]zone6{guests}, src), within6([]zone6{guests}, dst)
			switch {
			case at == "alice" && from && (within6(table.six.pods, dst) || table.six.guestAt(dst) != nil):
			case at == "bob" && to && within6(table.six.find(dst).to.six.space, src):
			default:
				t.Fatalf("arrives at %s's as %s", at, addresses6(p))
			}
		}
	})
}

// wants6 wants nothing changed but what a SYN announces and how far it may go, and with an error's source its checksum.
func wants6(t *testing.T, in, out []byte, hops byte) {
	t.Helper()
	h, v := readHeader6(in)
	if v != Pass || len(in) != len(out) || icmp6Kind(in, h) == icmpRedirect {
		t.Fatalf("%s passes as %x", verdictNames[v], out)
	}
	if !bytes.Equal(in[:7], out[:7]) || out[7] != in[7]-hops || !bytes.Equal(in[header6Len:h.at], out[header6Len:h.at]) {
		t.Fatal("more of the header changed than it should")
	}
	if sum6At(h.proto) > 0 && !h.fragment && sumOf6(in, h.proto, h.at) == 0xffff && len(in) >= h.at+20 && sumOf6(out, h.proto, h.at) != 0xffff {
		t.Fatal("wrong checksum")
	}
	if h.proto != protoTCP && icmp6Kind(in, h) != icmpError && !bytes.Equal(in[h.at:], out[h.at:]) {
		t.Fatal("what it carries was changed")
	}
}

func TestTheDataPathOfIPv6AllocatesNothing(t *testing.T) {
	all := parties6()
	for name, p := range map[string][]byte{
		"tcp":  ipv6Packet("2001:cafe:42::5", "fd00:b::130", protoTCP, tcpSegment(2, []byte{2, 4, 5, 220}, make([]byte, 1300))),
		"icmp": ipv6Packet("2001:db8::9", "fd00:b::130", protoICMPv6, icmpMessage(2, ipv6Packet("fd00:b::130", "2001:cafe:42::5", protoUDP, udpSegment(1, 2, nil)))),
		"drop": ipv6Packet("2001:cafe:42::5", "fd00:e::7", protoUDP, udpSegment(1, 2, nil)),
	} {
		b := make([]byte, Header+len(p))
		if n := testing.AllocsPerRun(1000, func() {
			copy(b[Header:], p)
			all.alice.Egress(b)
			all.bob.Ingress(b)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
