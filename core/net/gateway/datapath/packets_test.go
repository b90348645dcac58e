package datapath

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"net/netip"
	"slices"
	"testing"

	"kith.dev/core/net/netplan"
)

func prefix(s string) netip.Prefix {
	if s == "" {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(s)
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, prefix(s))
	}
	return out
}

func testMapping(real, alias string) netplan.Mapping {
	return netplan.Mapping{Name: real, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

// testHost is a laptop with the ranges that all have.
func testHost(own ...string) Host {
	return Host{Self: podGateway, Port: 6450, Pods: prefixes("10.42.0.0/16"), Own: prefixes(append(own, "10.42.0.1/32", "10.42.255.2/32")...),
		LAN: prefixes("10.42.7.0/24", "192.168.1.0/24"), Open: []uint16{6443}}
}

// Alice has guests at bob and at carol, who give them addresses of the ranges that they agreed on, and at erin, who translates; bob has guests of
// dave too. All have the pods 10.42.0.0/16.
type party struct{ alice, bob, carol, erin *Table }

func parties() (p party) {
	space := prefixes("10.42.0.0/16", "10.127.0.0/24", "10.128.0.0/24", "10.129.0.0/16")
	p.alice = New(testHost(), []Peer{
		{Pair: netplan.Pair{There: prefix("10.127.0.0/24")}, MTU: 1400, Up: up()},
		{Pair: netplan.Pair{There: prefix("10.128.0.0/24")}, MTU: 1212, Up: up()},
		{Pair: netplan.Pair{There: prefix("10.129.0.0/16")}, MTU: 1400, Up: up()},
	})
	p.bob = New(testHost("10.127.0.1/32", "10.127.4.1/32"), []Peer{
		{Pair: netplan.Pair{Here: prefix("10.127.0.0/24"), Space: space}, MTU: 1400, Up: up()},
		{Pair: netplan.Pair{Here: prefix("10.127.4.0/24"), Space: space[:1]}, MTU: 1400, Up: up()},
	})
	p.carol = New(testHost("10.128.0.1/32"), []Peer{
		{Pair: netplan.Pair{Here: prefix("10.128.0.0/24"), Space: space}, MTU: 1212, Up: up()},
	})
	p.erin = New(testHost(), []Peer{{Pair: netplan.Pair{
		Here: prefix("10.129.0.0/16"), Space: space, Guests: testMapping("10.42.0.0/16", "10.129.0.0/16"),
		Aliases: []netplan.Mapping{testMapping("10.42.0.0/16", "10.70.0.0/16"), testMapping("10.127.0.0/24", "10.71.9.0/24"), testMapping("10.129.0.0/16", "10.72.0.0/16")}}, MTU: 1400, Up: up()}})
	return p
}

// leave sends a packet into the tunnel; nil if it is dropped.
func leave(t *Table, p []byte) ([]byte, Verdict) {
	b := append(make([]byte, Header), p...)
	if v, _ := t.Egress(b); v != Pass {
		return nil, v
	}
	return b, Pass
}

// arrive gives what of a packet from the tunnel is for the kernel.
func arrive(t *Table, b []byte) ([]byte, Verdict) {
	v, _ := t.Ingress(b)
	return b[min(Header, len(b)):], v
}

func addressAt(p []byte, at int) netip.Addr { return netip.AddrFrom4([4]byte(p[at:])) }

func tcpSegment(flags byte, options, data []byte) []byte {
	b := make([]byte, 20, 20+len(options)+len(data))
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], 80)
	b[12] = byte((20 + len(options)) / 4 << 4)
	b[13] = flags
	return append(append(b, options...), data...)
}

func icmpMessage(kind byte, data []byte) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, data...)
}

// with returns a packet changed by f and sealed again.
func with(p []byte, f func([]byte)) []byte { f(p); seal(p); return p }

// withOptions puts IP options behind the header.
func withOptions(p []byte, options ...byte) []byte {
	p = slices.Concat(p[:20], options, p[20:])
	p[0] = 0x40 | byte((20+len(options))/4)
	seal(p)
	return p
}

func fragment(offset uint16, more bool) func([]byte) {
	return func(p []byte) {
		v := offset
		if more {
			v |= 0x2000
		}
		binary.BigEndian.PutUint16(p[6:], v)
	}
}

func addresses(p []byte) string {
	return addressAt(p, 12).String() + " > " + addressAt(p, 16).String()
}

// TestPackets: from one's kernel to another's. What is not translated arrives as it was sent.
func TestPackets(t *testing.T) {
	all := parties()
	udp := udpSegment(1000, 40000, []byte("hello, odd"))
	tcp := tcpSegment(16, nil, []byte("x"))
	for _, c := range []struct {
		name     string
		from, to *Table
		p        []byte
		leaves   Verdict
		arrives  Verdict
		as       string // addresses, when they are others
	}{
		{"to a guest", all.alice, all.bob, ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), Pass, Pass, ""},
		{"and back", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.5", protoTCP, tcp), Pass, Pass, ""},
		{"a guest to home's pod of an address that the provider has too", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.1", protoICMP, icmpMessage(8, nil)), Pass, Pass, ""},
		{"a guest to home's API server", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(6443, 2)), Pass, Pass, ""},
		{"a guest to a node port of home's", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(30080, 2)), Pass, Pass, ""},
		{"a guest behind the last node port", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(32768, 2)), Pass, dropHost, ""},
		{"home to a node port of the provider's", all.alice, all.bob, ipv4Packet("10.42.255.2", "10.127.0.1", protoTCP, port(30080, 2)), Pass, dropHost, ""},
		{"a guest to another service of home's host", all.bob, all.alice, ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(22, 2)), Pass, dropHost, ""},
		{"a guest at bob to one at carol, from home on", all.alice, all.carol, ipv4Packet("10.127.0.130", "10.128.0.130", protoTCP, tcp), Pass, Pass, ""},
		{"home's host to a guest", all.alice, all.bob, ipv4Packet("10.42.255.2", "10.127.0.130", protoTCP, tcp), Pass, Pass, ""},
		{"home to the gateway of its guests", all.alice, all.bob, ipv4Packet("10.42.255.2", "10.127.0.1", protoICMP, icmpMessage(8, nil)), Pass, Pass, ""},
		{"home to a service of the provider's host", all.alice, all.bob, ipv4Packet("10.42.255.2", "10.127.0.1", protoTCP, port(22, 2)), Pass, dropHost, ""},
		{"options", all.alice, all.bob, withOptions(ipv4Packet("10.42.0.5", "10.127.0.130", protoTCP, tcp), 1, 7, 3, 4), Pass, Pass, ""},
		{"a fragment", all.alice, all.bob, with(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), fragment(185, false)), Pass, Pass, ""},
		{"gre", all.alice, all.bob, ipv4Packet("10.42.0.5", "10.127.0.130", 47, make([]byte, 9)), Pass, Pass, ""},
		{"a router at home complains", all.alice, all.bob, ipv4Packet("192.168.9.9", "10.127.0.130", protoICMP, icmpMessage(11, ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp))),
			Pass, Pass, "10.42.255.2 > 10.127.0.130"},

		{"to a guest of one who translates", all.alice, all.erin, ipv4Packet("10.42.0.5", "10.129.3.7", protoUDP, udp), Pass, Pass, "10.70.0.5 > 10.42.3.7"},
		{"and back", all.erin, all.alice, ipv4Packet("10.42.3.7", "10.70.0.5", protoUDP, udp), Pass, Pass, "10.129.3.7 > 10.42.0.5"},
		{"from there to a guest elsewhere", all.erin, all.alice, ipv4Packet("10.42.3.7", "10.71.9.130", protoTCP, tcp), Pass, Pass, "10.129.3.7 > 10.127.0.130"},
		{"and its answer", all.alice, all.erin, ipv4Packet("10.127.0.130", "10.129.3.7", protoTCP, tcp), Pass, Pass, "10.71.9.130 > 10.42.3.7"},

		{"to nobody", all.alice, nil, ipv4Packet("10.42.0.5", "10.130.0.0", protoUDP, udp), dropPeer, 0, ""},
		{"before a range", all.alice, nil, ipv4Packet("10.42.0.5", "10.126.255.255", protoUDP, udp), dropPeer, 0, ""},
		{"from the LAN", all.alice, nil, ipv4Packet("192.168.1.5", "10.127.0.130", protoUDP, udp), dropSource, 0, ""},
		{"the provider's pod to a home", all.bob, nil, ipv4Packet("10.42.0.9", "10.42.0.5", protoUDP, udp), dropPeer, 0, ""},
		{"a guest to what its home does not have", all.bob, nil, ipv4Packet("10.127.0.130", "10.50.0.5", protoUDP, udp), dropPeer, 0, ""},
		{"a guest of another home to the first one's elsewhere", all.bob, nil, ipv4Packet("10.127.4.130", "10.128.0.130", protoUDP, udp), dropPeer, 0, ""},
		{"a guest to the guest of another home", all.bob, nil, ipv4Packet("10.127.0.130", "10.127.4.130", protoUDP, udp), dropPeer, 0, ""},
		{"a pod of one who translates that is no guest's", all.erin, nil, ipv4Packet("10.43.0.9", "10.70.0.5", protoUDP, udp), dropSource, 0, ""},
		{"a redirect", all.alice, nil, ipv4Packet("10.42.0.5", "10.127.0.130", protoICMP, icmpMessage(5, ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp))), dropRedirect, 0, ""},
		{"the tunnel itself", all.alice, nil, ipv4Packet("10.42.255.2", "10.127.0.130", protoUDP, udpSegment(6450, 6450, udp)), dropLoop, 0, ""},
		{"a pod on that port", all.alice, all.bob, ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udpSegment(6450, 6450, udp)), Pass, Pass, ""},
		{"ipv6", all.alice, nil, append([]byte{0x60}, make([]byte, 59)...), dropIPv6, 0, ""},
		{"empty", all.alice, nil, nil, Malformed, 0, ""},
		{"version 5", all.alice, nil, append([]byte{0x55}, make([]byte, 59)...), Malformed, 0, ""},
		{"short", all.alice, nil, make([]byte, 19), Malformed, 0, ""},
		{"header length 16", all.alice, nil, append([]byte{0x44}, make([]byte, 39)...), Malformed, 0, ""},
		{"header beyond the end", all.alice, nil, append([]byte{0x4f, 0, 0, 20}, make([]byte, 16)...), Malformed, 0, ""},
		{"longer than it says", all.alice, nil, append(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), 0), Malformed, 0, ""},
		{"shorter than it says", all.alice, nil, ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp)[:25], Malformed, 0, ""},
		{"loose source route", all.alice, nil, withOptions(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), 1, 131, 7, 4, 192, 168, 1, 1), Malformed, 0, ""},
		{"strict source route", all.alice, nil, withOptions(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), 7, 3, 4, 137, 7, 4, 192, 168, 1, 1, 0, 0), Malformed, 0, ""},
		{"its number inside another option", all.alice, all.bob, withOptions(ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp), 7, 4, 131, 137), Pass, Pass, ""},
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
			if c.as != "" {
				check(t, "arrived", got, c.as)
			}
		})
	}
}

func port(n int, flags byte) []byte {
	b := tcpSegment(flags, nil, nil)
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	return b
}

func check(t *testing.T, what string, p []byte, want string) {
	t.Helper()
	if got := addresses(p); got != want {
		t.Errorf("%s as %s, want %s", what, got, want)
	}
	if bad := sealed(p); bad != "" {
		t.Errorf("%s with a wrong %s", what, bad)
	}
}

// sentBy puts a packet behind the header that a peer, called by the range for guests that was agreed on, would send it with.
func sentBy(called string, p []byte) []byte {
	by := netplan.Pair{There: prefix(called)}
	tn := tunnel{header: headerOf(by.Called(), by.Handle())}
	b := append(make([]byte, Header), p...)
	tn.wrap(b)
	return b
}

// Ranges by which those call each other.
const (
	aliceAndBob  = "10.127.0.0/24"
	aliceAndErin = "10.129.0.0/16"
)

// TestWhatAPeerMayNotSend: a hostile one, with the right key and any content.
func TestWhatAPeerMayNotSend(t *testing.T) {
	all := parties()
	udp := udpSegment(1000, 40000, []byte("hello"))
	low := udpSegment(1000, 53, []byte("hello"))
	const syn, ack = 2, 16
	fromBob := func(src, dst string) []byte { return sentBy(aliceAndBob, ipv4Packet(src, dst, protoUDP, low)) }
	fromAlice := func(src, dst string) []byte { return sentBy(aliceAndBob, ipv4Packet(src, dst, protoUDP, low)) }
	toErin := func(src, dst string) []byte { return sentBy(aliceAndErin, ipv4Packet(src, dst, protoUDP, low)) }
	toHost := func(proto byte, payload []byte) []byte {
		return sentBy(aliceAndBob, ipv4Packet("10.127.0.130", "10.42.0.1", proto, payload))
	}
	for _, c := range []struct {
		name string
		at   *Table
		b    []byte
		want Verdict
	}{
		{"bob's guest of ours to our pod", all.alice, fromBob("10.127.0.130", "10.42.0.5"), Pass},
		{"bob himself", all.alice, fromBob("10.42.0.9", "10.42.0.5"), dropSender},
		{"bob, as a guest at carol", all.alice, fromBob("10.128.0.130", "10.42.0.5"), dropSender},
		{"bob, as a guest at carol to one at erin", all.alice, fromBob("10.128.0.130", "10.129.0.5"), dropSender},
		{"bob's guest to our LAN", all.alice, fromBob("10.127.0.130", "192.168.1.1"), dropDestination},
		{"to a LAN inside our range", all.alice, fromBob("10.127.0.130", "10.42.7.9"), dropDestination},
		{"to loopback", all.alice, fromBob("10.127.0.130", "127.0.0.1"), dropDestination},
		{"to many", all.alice, fromBob("10.127.0.130", "224.0.0.251"), dropDestination},
		{"alice to her guest at bob's", all.bob, fromAlice("10.42.0.5", "10.127.0.130"), Pass},
		{"alice to bob's pod", all.bob, fromAlice("10.42.0.5", "10.42.0.7"), dropSender},
		{"alice, as her guest, to bob's pod", all.bob, fromAlice("10.127.0.130", "10.42.0.7"), dropSender},
		{"alice to dave's guest", all.bob, fromAlice("10.42.0.5", "10.127.4.130"), dropDestination},
		{"alice, as somebody of the internet, to her guest", all.bob, fromAlice("192.0.2.1", "10.127.0.130"), dropSender},
		{"alice, as somebody she did not name, to her guest", all.bob, fromAlice("10.50.0.1", "10.127.0.130"), dropSender},
		{"alice to erin's pod by its real name", all.erin, toErin("10.42.0.5", "10.42.0.7"), dropSender},
		{"alice to erin's alias of her", all.erin, toErin("10.42.0.5", "10.70.0.5"), dropDestination},

		{"ping to the host", all.alice, toHost(protoICMP, icmpMessage(8, nil)), Pass},
		{"a service of the host", all.alice, toHost(protoTCP, port(22, syn)), dropHost},
		{"the API server", all.alice, toHost(protoTCP, port(6443, syn)), Pass},
		{"an answer to the host", all.alice, toHost(protoTCP, port(22, syn|ack)), Pass},
		{"dns at the host", all.alice, toHost(protoUDP, low), dropHost},
		{"an answer by UDP", all.alice, toHost(protoUDP, udp), Pass},
		{"an answer to what kube-proxy masqueraded", all.alice, toHost(protoUDP, udpSegment(53, 1024, nil)), Pass},
		{"sctp to the host", all.alice, toHost(132, udp), dropHost},
		{"flags in the second fragment", all.alice, sentBy(aliceAndBob, with(ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(22, syn)[:8]), fragment(0, true))), dropHost},
		{"flags overwritten", all.alice, sentBy(aliceAndBob, with(ipv4Packet("10.127.0.130", "10.42.0.1", protoTCP, port(22, syn)[8:]), fragment(1, false))), dropHost},
		{"a late fragment", all.alice, sentBy(aliceAndBob, with(ipv4Packet("10.127.0.130", "10.42.0.1", protoUDP, udp), fragment(100, false))), Pass},
		{"redirect", all.alice, sentBy(aliceAndBob, ipv4Packet("10.127.0.130", "10.42.0.5", protoICMP, icmpMessage(5, ipv4Packet("10.42.0.5", "10.127.0.130", protoUDP, udp)))), dropRedirect},
		{"source route", all.alice, sentBy(aliceAndBob, withOptions(ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp), 131, 7, 4, 192, 168, 1, 1, 0)), Malformed},
		{"a handle that is nobody's", all.alice, sentBy("10.130.0.0/24", ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp)), dropSender},
		{"no header inside", all.alice, ipv4Packet("240.0.0.1", "240.0.0.7", protoUDP, udp), dropSender},
		{"half a header inside", all.alice, sentBy(aliceAndBob, make([]byte, 12)), Malformed},
		{"nothing inside", all.alice, sentBy(aliceAndBob, nil), Malformed},
		{"a fragment of the outer packet", all.alice, with(sentBy(aliceAndBob, ipv4Packet("10.127.0.130", "10.42.0.5", protoUDP, udp)), fragment(1, false)), dropSender},
	} {
		was := bytes.Clone(c.b)
		if _, got := arrive(c.at, c.b); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, verdictNames[got], verdictNames[c.want])
		} else if got != Pass && !bytes.Equal(c.b, was) {
			t.Errorf("%s: a dropped packet was changed", c.name)
		}
	}
}

// TestTranslationIsInvertible sends random packets from home to a guest of one who translates, and its ICMP errors back.
func TestTranslationIsInvertible(t *testing.T) {
	all := parties()
	r := rand.New(rand.NewSource(1))
	for i := range 100_000 {
		p := randomPacket(r)
		b, v := leave(all.alice, p)
		if v != Pass {
			t.Fatalf("%d: leaves: %s", i, verdictNames[v])
		}
		arrived, v := arrive(all.erin, b)
		if v != Pass {
			t.Fatalf("%d: arrives: %s", i, verdictNames[v])
		}
		if bad := sealed(arrived); bad != "" {
			t.Fatalf("%d: wrong %s", i, bad)
		}
		want := bytes.Clone(p)
		copy(want[12:16], arrived[12:16])
		copy(want[16:20], arrived[16:20])
		if resum(want, p); !bytes.Equal(arrived, want) {
			t.Fatalf("%d: arrived\n%x, want\n%x", i, arrived, want)
		}
		errorBack(t, r, all, p, arrived)
	}
}

// resum seals a packet but leaves alone what seal cannot know: a missing UDP checksum and those of fragments.
func resum(p, was []byte) {
	ihl := int(p[0]&15) * 4
	keep := bytes.Clone(was[ihl:])
	seal(p)
	if p[9] == protoUDP && keep[6] == 0 && keep[7] == 0 {
		copy(p[ihl:], keep)
	}
}

func randomPacket(r *rand.Rand) []byte {
	proto := []byte{protoTCP, protoUDP, protoUDP, protoICMP, protoDCCP, 47}[r.Intn(6)]
	payload := make([]byte, 20+r.Intn(100))
	r.Read(payload)
	switch proto {
	case protoTCP:
		payload[13] &^= 2 // no SYN: clamping has its own test
	case protoICMP:
		payload[0] = 8
	}
	src := netip.AddrFrom4([4]byte{10, 42, byte(r.Intn(256)), byte(r.Intn(256))})
	dst := netip.AddrFrom4([4]byte{10, 129, 128 | byte(r.Intn(128)), byte(r.Intn(256))})
	if dst == netip.MustParseAddr("10.129.255.2") || src == podGateway || src.As4()[2] == 7 { // see fence
		return randomPacket(r)
	}
	p := ipv4Packet(src.String(), dst.String(), proto, payload)
	if r.Intn(4) == 0 {
		p = withOptions(p, 1, 1, 1, 1, 7, 3, 4, 0)
	}
	if ihl := int(p[0]&15) * 4; proto == protoUDP && r.Intn(3) == 0 {
		p[ihl+6], p[ihl+7] = 0, 0
	}
	return p
}

// errorBack has a guest, or a router of the one who translates, complain about a packet, quoting part of it. Alice's pod must find the
// beginning of what it sent.
func errorBack(t *testing.T, r *rand.Rand, all party, p, arrived []byte) {
	t.Helper()
	quote := bytes.Clone(arrived[:min(len(arrived), int(arrived[0]&15)*4+2*r.Intn(30))])
	from, want := addressAt(arrived, 16).String(), addressAt(p, 16).String()
	if r.Intn(3) == 0 {
		from, want = "192.168.9.9", "10.129.255.2"
	}
	e := ipv4Packet(from, addressAt(arrived, 12).String(), protoICMP, icmpMessage([]byte{3, 4, 11, 12}[r.Intn(4)], quote))
	b, v := leave(all.erin, e)
	if v != Pass {
		t.Fatalf("error, leaves: %s", verdictNames[v])
	}
	got, v := arrive(all.alice, b)
	if v != Pass {
		t.Fatalf("error, arrives: %s", verdictNames[v])
	}
	check(t, "error", got, want+" > "+addressAt(p, 12).String())
	if got := got[28:]; !bytes.Equal(got, p[:len(got)]) {
		t.Fatalf("error quotes\n%x, sent was\n%x", got, p[:len(got)])
	}
}

func TestUDPWithoutAChecksumStaysSo(t *testing.T) {
	all := parties()
	p := ipv4Packet("10.42.3.7", "10.70.0.5", protoUDP, udpSegment(1, 2, []byte("no sum")))
	p[26], p[27] = 0, 0
	if b, v := leave(all.erin, p); v != Pass || b[Header+26] != 0 || b[Header+27] != 0 {
		t.Errorf("%s: %x", verdictNames[v], b)
	}
}

// TestUDPChecksumNeverBecomesZero finds a payload whose checksum is 0 after the translation, which must be sent as 0xffff.
func TestUDPChecksumNeverBecomesZero(t *testing.T) {
	all := parties()
	for i := range 1 << 16 {
		b, _ := leave(all.erin, ipv4Packet("10.42.3.7", "10.70.0.5", protoUDP, udpSegment(1, 2, []byte{byte(i >> 8), byte(i)})))
		p := b[Header:]
		if p[26] == 0 && p[27] == 0 {
			t.Fatalf("payload %d: checksum 0", i)
		} else if p[26] == 255 && p[27] == 255 {
			if sealed(p) != "" {
				t.Fatal(sealed(p))
			}
			return
		}
	}
	t.Fatal("no payload hit the case")
}

// TestErrorsOfStrangersStay: only errors about packets to our own ranges may leave under the gateway's name.
func TestErrorsOfStrangersStay(t *testing.T) {
	all := parties()
	about := ipv4Packet("10.127.0.130", "192.168.1.1", protoUDP, udpSegment(1, 2, nil))
	for name, e := range map[string][]byte{
		"about a packet to the LAN": ipv4Packet("192.168.1.9", "10.127.0.130", protoICMP, icmpMessage(3, about)),
		"quoting too little":        ipv4Packet("192.168.1.9", "10.127.0.130", protoICMP, icmpMessage(3, about[:19])),
		"quoting IPv6":              ipv4Packet("192.168.1.9", "10.127.0.130", protoICMP, icmpMessage(3, append([]byte{0x65}, make([]byte, 60)...))),
		"quoting a broken header":   ipv4Packet("192.168.1.9", "10.127.0.130", protoICMP, icmpMessage(3, append([]byte{0x4f}, about[1:]...))),
		"a query":                   ipv4Packet("192.168.1.9", "10.127.0.130", protoICMP, icmpMessage(8, about)),
	} {
		if _, v := leave(all.alice, e); v != dropSource {
			t.Errorf("%s: %s", name, verdictNames[v])
		}
	}
}

// TestGuestsOfTwoPeersMeetHere: alice's data path does for them what a router would, and leaves to the kernel what that has to say something about.
func TestGuestsOfTwoPeersMeetHere(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p []byte)
		size   int
		to     string
		down   bool
		onward bool
	}{
		{name: "to carol's", to: "10.128.0.130", onward: true},
		{name: "the largest that carol's path takes", to: "10.128.0.130", size: 1212 - 28, onward: true},
		{name: "a larger one", to: "10.128.0.130", size: 1212 - 27},
		{name: "at its last hop but one", to: "10.128.0.130", change: func(p []byte) { p[8] = 2 }, onward: true},
		{name: "at its last hop", to: "10.128.0.130", change: func(p []byte) { p[8] = 1 }},
		{name: "while carol's tunnel is down", to: "10.128.0.130", down: true},
		{name: "to alice's own pod", to: "10.42.0.5"},
	} {
		all := parties()
		p := ipv4Packet("10.127.0.130", c.to, protoUDP, udpSegment(1000, 40000, make([]byte, c.size)))
		if c.change != nil {
			p = with(p, c.change)
		}
		for _, s := range all.alice.spans {
			if c.down && s.first == netplan.Number(prefix("10.128.0.0/24").Addr()) {
				s.to.up.Store(false)
			}
		}
		b := sentBy(aliceAndBob, bytes.Clone(p))
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
		want := with(bytes.Clone(p), func(p []byte) { p[8]-- })
		if got, v := arrive(all.carol, b); v != Pass || !bytes.Equal(got, want) {
			t.Errorf("%s: at carol's %s\n%x, want\n%x", c.name, verdictNames[v], got, want)
		}
	}
}
