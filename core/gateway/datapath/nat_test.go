package datapath

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"net/netip"
	"slices"
	"testing"

	"kith.dev/core/netplan"
)

// Two tables as alice and bob have them. Both use 10.42.0.0/16 and 10.43.0.0/16. Alice calls bob's ranges 10.65
// and 10.66, bob calls alice's 10.70 and 172.20.16.0/20 (of another range). Carol calls alice just as bob does.
func testTables() (alice, bob *Table) {
	at := func(host string) Host {
		return Host{Self: podGateway, Port: 6450, Own: []netip.Prefix{netip.MustParsePrefix(host), netip.MustParsePrefix("10.42.255.2/32")},
			LAN: []netip.Prefix{netip.MustParsePrefix("10.42.7.0/24"), netip.MustParsePrefix("192.168.1.0/24")}, Open: []uint16{6443}}
	}
	alice = New(at("10.42.0.1/32"), []Peer{
		testPeer(1420, testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"),
			testMapping("10.43.16.0/20", "10.66.16.0/20"), testMapping("10.43.32.0/20", "172.20.16.0/20")),
		testPeer(1232, testMapping("10.42.0.0/16", "10.67.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16")),
		testPeer(1420, testMapping("10.50.0.0/16", "10.50.0.0/16"), testMapping("10.42.0.0/16", "10.42.0.0/16")),
	})
	bob = New(at("10.42.0.1/32"), []Peer{
		testPeer(1420, testMapping("10.42.0.0/16", "10.70.0.0/16"), testMapping("10.42.0.0/16", "10.65.0.0/16"),
			testMapping("10.43.32.0/20", "172.20.16.0/20"), testMapping("10.43.16.0/20", "10.66.16.0/20")),
	})
	return alice, bob
}

func addressAt(p []byte, at int) netip.Addr { return netip.AddrFrom4([4]byte(p[at:])) }

func testMapping(real, alias string) netplan.Mapping {
	return netplan.Mapping{Name: real, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

// testPeer takes mappings in turn: theirs, ours, theirs, ours.
func testPeer(mtu int, ms ...netplan.Mapping) Peer {
	p := Peer{MTU: mtu, Up: up()}
	for i, m := range ms {
		if i%2 == 0 {
			p.Theirs = append(p.Theirs, m)
		} else {
			p.Ours = append(p.Ours, m)
		}
	}
	return p
}

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

func TestTranslation(t *testing.T) {
	alice, bob := testTables()
	udp := udpSegment(1000, 2000, []byte("hello, odd"))
	for _, c := range []struct {
		name    string
		p       []byte
		Verdict Verdict
		sent    string // by alice
		arrived string // at bob, or empty when not sent to bob
	}{
		{"udp", ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"tcp", ipv4Packet("10.42.3.5", "10.65.200.7", protoTCP, tcpSegment(16, nil, []byte("x"))), Pass, "10.70.3.5 > 10.65.200.7", "10.70.3.5 > 10.42.200.7"},
		{"tcp between other ranges", ipv4Packet("10.43.33.5", "10.66.17.7", protoTCP, tcpSegment(16, nil, []byte("x"))), Pass, "172.20.17.5 > 10.66.17.7", "172.20.17.5 > 10.43.17.7"},
		{"across ranges", ipv4Packet("10.43.47.255", "10.65.1.1", protoUDP, udp), Pass, "172.20.31.255 > 10.65.1.1", "172.20.31.255 > 10.42.1.1"},
		{"dccp", ipv4Packet("10.42.0.5", "10.65.0.7", protoDCCP, make([]byte, 12)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"udplite", ipv4Packet("10.42.0.5", "10.65.0.7", protoUDPLite, make([]byte, 13)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"echo", ipv4Packet("10.42.0.5", "10.65.0.7", protoICMP, icmpMessage(8, []byte("abc"))), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"gre", ipv4Packet("10.42.0.5", "10.65.0.7", 47, make([]byte, 9)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"header only", ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, nil), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"udp cut off", ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, []byte{1, 2, 3, 4, 5, 6, 7}), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"first fragment", with(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), fragment(0, true)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"last fragment", with(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), fragment(185, false)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"options", withOptions(ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcpSegment(16, nil, []byte("x"))), 1, 7, 3, 4), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"the same alias at carol's", ipv4Packet("10.42.0.5", "10.67.0.7", protoUDP, udp), Pass, "10.70.0.5 > 10.67.0.7", ""},
		{"no overlap with dave", ipv4Packet("10.42.0.5", "10.50.0.7", protoUDP, udp), Pass, "10.42.0.5 > 10.50.0.7", ""},

		{"to nobody", ipv4Packet("10.42.0.5", "10.64.255.255", protoUDP, udp), dropPeer, "", ""},
		{"next to a /20", ipv4Packet("10.42.0.5", "10.66.32.0", protoUDP, udp), dropPeer, "", ""},
		{"before a /20", ipv4Packet("10.42.0.5", "10.66.15.255", protoUDP, udp), dropPeer, "", ""},
		{"from the LAN", ipv4Packet("192.168.1.5", "10.65.0.7", protoUDP, udp), dropSource, "", ""},
		{"from the alias", ipv4Packet("10.70.0.5", "10.65.0.7", protoUDP, udp), dropSource, "", ""},
		{"from a range dave does not see", ipv4Packet("10.43.33.5", "10.50.0.7", protoUDP, udp), dropSource, "", ""},
		{"redirect", ipv4Packet("10.42.0.5", "10.65.0.7", protoICMP, icmpMessage(5, ipv4Packet("10.65.0.7", "10.42.0.5", protoUDP, udp))), dropRedirect, "", ""},
		{"the tunnel itself", ipv4Packet("10.42.255.2", "10.65.0.7", protoUDP, udpSegment(6450, 6450, udp)), dropLoop, "", ""},
		{"the gateway, another port", ipv4Packet("10.42.255.2", "10.65.0.7", protoUDP, udpSegment(6451, 6450, udp)), Pass, "10.70.255.2 > 10.65.0.7", "10.70.255.2 > 10.42.0.7"},
		{"a pod on that port", ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udpSegment(6450, 6450, udp)), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
		{"ipv6", append([]byte{0x60}, make([]byte, 59)...), dropIPv6, "", ""},
		{"empty", nil, Malformed, "", ""},
		{"version 5", append([]byte{0x55}, make([]byte, 59)...), Malformed, "", ""},
		{"short", make([]byte, 19), Malformed, "", ""},
		{"header length 16", append([]byte{0x44}, make([]byte, 39)...), Malformed, "", ""},
		{"header beyond the end", append([]byte{0x4f, 0, 0, 20}, make([]byte, 16)...), Malformed, "", ""},
		{"longer than it says", append(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), 0), Malformed, "", ""},
		{"shorter than it says", ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp)[:25], Malformed, "", ""},
		{"loose source route", withOptions(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), 1, 131, 7, 4, 192, 168, 1, 1), Malformed, "", ""},
		{"strict source route", withOptions(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), 7, 3, 4, 137, 7, 4, 192, 168, 1, 1, 0, 0), Malformed, "", ""},
		{"its number inside another option", withOptions(ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), 7, 4, 131, 137), Pass, "10.70.0.5 > 10.65.0.7", "10.70.0.5 > 10.42.0.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := bytes.Clone(c.p)
			if v := alice.Egress(p); v != c.Verdict {
				t.Fatalf("egress says %s, want %s", verdictNames[v], verdictNames[c.Verdict])
			}
			if c.Verdict != Pass {
				if !bytes.Equal(p, c.p) {
					t.Error("a dropped packet was changed")
				}
				return
			}
			check(t, "sent", p, c.sent)
			if c.arrived == "" {
				return
			}
			if v := bob.Ingress(p); v != Pass {
				t.Fatalf("ingress says %s", verdictNames[v])
			}
			check(t, "arrived", p, c.arrived)
			ihl := int(p[0]&15) * 4
			if n := min(len(p), ihl+40); c.p[9] == 47 && !bytes.Equal(p[ihl:n], c.p[ihl:n]) {
				t.Error("the payload was changed")
			}
		})
	}
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

func TestIngressLetsOnlyMappedRangesIn(t *testing.T) {
	_, bob := testTables()
	udp := udpSegment(1000, 40000, []byte("hello"))
	low := udpSegment(1000, 53, []byte("hello"))
	to := func(dst string, proto byte, payload []byte) []byte {
		return ipv4Packet("10.70.0.5", dst, proto, payload)
	}
	port := func(n int, flags byte) []byte {
		b := tcpSegment(flags, nil, nil)
		binary.BigEndian.PutUint16(b[2:], uint16(n))
		return b
	}
	const syn, ack = 2, 16
	for _, c := range []struct {
		name string
		p    []byte
		want Verdict
	}{
		{"a pod", to("10.65.0.5", protoUDP, low), Pass},
		{"from nobody", ipv4Packet("10.71.0.5", "10.65.0.5", protoUDP, low), dropSender},
		{"a pod by its real name", to("10.42.0.5", protoUDP, low), dropDestination},
		{"the LAN", to("192.168.1.1", protoUDP, low), dropDestination},
		{"loopback", to("127.0.0.1", protoUDP, low), dropDestination},
		{"the sender itself", to("10.70.0.6", protoUDP, low), dropDestination},
		{"multicast", to("224.0.0.251", protoUDP, low), dropDestination},
		{"a LAN inside the range", to("10.65.7.9", protoUDP, udp), dropDestination},
		{"ping to the host", to("10.65.0.1", protoICMP, icmpMessage(8, nil)), Pass},
		{"a service of the host", to("10.65.0.1", protoTCP, port(22, syn)), dropHost},
		{"the API server", to("10.65.0.1", protoTCP, port(6443, syn)), Pass},
		{"an answer to the host", to("10.65.0.1", protoTCP, port(22, syn|ack)), Pass},
		{"data to the host", to("10.65.255.2", protoTCP, port(22, ack)), Pass},
		{"dns at the host", to("10.65.0.1", protoUDP, low), dropHost},
		{"an answer by UDP", to("10.65.0.1", protoUDP, udp), Pass},
		{"sctp to the host", to("10.65.0.1", 132, udp), dropHost},
		{"flags in the second fragment", with(to("10.65.0.1", protoTCP, port(22, syn)[:8]), fragment(0, true)), dropHost},
		{"flags overwritten", with(to("10.65.0.1", protoTCP, port(22, syn)[8:]), fragment(1, false)), dropHost},
		{"a late fragment", with(to("10.65.0.1", protoUDP, udp), fragment(100, false)), Pass},
		{"redirect", to("10.65.0.5", protoICMP, icmpMessage(5, ipv4Packet("10.65.0.5", "10.70.0.5", protoUDP, udp))), dropRedirect},
		{"source route", withOptions(to("10.65.0.5", protoUDP, udp), 131, 7, 4, 192, 168, 1, 1, 0), Malformed},
	} {
		p := bytes.Clone(c.p)
		if got := bob.Ingress(p); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, verdictNames[got], verdictNames[c.want])
		} else if got != Pass && !bytes.Equal(p, c.p) {
			t.Errorf("%s: a dropped packet was changed", c.name)
		} else if got == Pass && sealed(p) != "" {
			t.Errorf("%s: wrong %s", c.name, sealed(p))
		}
	}
}

func TestZeroUDPChecksumStaysZero(t *testing.T) {
	alice, bob := testTables()
	p := ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udpSegment(1, 2, []byte("no sum")))
	p[26], p[27] = 0, 0
	if alice.Egress(p) != Pass || bob.Ingress(p) != Pass || p[26] != 0 || p[27] != 0 {
		t.Errorf("checksum became %x", p[26:28])
	}
}

// TestUDPChecksumNeverBecomesZero finds a payload whose checksum is 0 after the translation, which must be sent
// as 0xffff.
func TestUDPChecksumNeverBecomesZero(t *testing.T) {
	alice, _ := testTables()
	for i := range 1 << 16 {
		p := ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udpSegment(1, 2, []byte{byte(i >> 8), byte(i)}))
		if alice.Egress(p); p[26] == 0 && p[27] == 0 {
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

// TestThereAndBackIsIdentity sends random packets and their ICMP errors both ways.
func TestThereAndBackIsIdentity(t *testing.T) {
	alice, bob := testTables()
	r := rand.New(rand.NewSource(1))
	for i := range 100_000 {
		p := randomPacket(r)
		sent := bytes.Clone(p)
		if v := alice.Egress(sent); v != Pass {
			t.Fatalf("%d: egress: %s", i, verdictNames[v])
		}
		arrived := bytes.Clone(sent)
		if v := bob.Ingress(arrived); v != Pass {
			t.Fatalf("%d: ingress: %s", i, verdictNames[v])
		}
		if bad := sealed(sent) + sealed(arrived); bad != "" {
			t.Fatalf("%d: wrong %s", i, bad)
		}
		// Seen from bob, alice's pod is the alias and bob's pod is real; all else is as it was.
		want := bytes.Clone(p)
		copy(want[12:16], sent[12:16])
		copy(want[16:20], arrived[16:20])
		resum(want, p)
		if !bytes.Equal(arrived, want) {
			t.Fatalf("%d: arrived\n%x, want\n%x", i, arrived, want)
		}
		errorBack(t, r, alice, bob, p, arrived)
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
	dst := netip.AddrFrom4([4]byte{10, 65, 128 | byte(r.Intn(128)), byte(r.Intn(256))})
	if dst == netip.MustParseAddr("10.65.255.2") || src == podGateway || src.As4()[2] == 7 { // see fence
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

// errorBack has bob, or a router of his, complain about a packet, quoting part of it. Alice's pod must find the
// beginning of what it sent.
func errorBack(t *testing.T, r *rand.Rand, alice, bob *Table, p, arrived []byte) {
	t.Helper()
	quote := bytes.Clone(arrived[:min(len(arrived), int(arrived[0]&15)*4+2*r.Intn(30))])
	from := addressAt(arrived, 16).String()
	want := addressAt(p, 16).String()
	if r.Intn(3) == 0 {
		from, want = "192.168.9.9", "10.65.255.2"
	}
	to := addressAt(arrived, 12).String()
	e := ipv4Packet(from, to, protoICMP, icmpMessage([]byte{3, 4, 11, 12}[r.Intn(4)], quote))
	if v := bob.Egress(e); v != Pass {
		t.Fatalf("error, egress: %s", verdictNames[v])
	}
	if bad := sealed(e); bad != "" {
		t.Fatalf("error, egress: wrong %s", bad)
	}
	if v := alice.Ingress(e); v != Pass {
		t.Fatalf("error, ingress: %s", verdictNames[v])
	}
	check(t, "error", e, want+" > "+addressAt(p, 12).String())
	if got := e[28:]; !bytes.Equal(got, p[:len(got)]) {
		t.Fatalf("error quotes\n%x, sent was\n%x", got, p[:len(got)])
	}
}

// TestErrorsOfStrangersStay: only errors about packets of that peer to us may leave under the gateway's name.
func TestErrorsOfStrangersStay(t *testing.T) {
	alice, _ := testTables()
	about := ipv4Packet("10.65.0.7", "192.168.1.1", protoUDP, udpSegment(1, 2, nil))
	for name, e := range map[string][]byte{
		"about a packet to the LAN": ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(3, about)),
		"quoting too little":        ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(3, about[:19])),
		"quoting IPv6":              ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(3, append([]byte{0x65}, make([]byte, 60)...))),
		"quoting a broken header":   ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(3, append([]byte{0x4f}, about[1:]...))),
		"a query":                   ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(8, about)),
	} {
		if v := alice.Egress(e); v != dropSource {
			t.Errorf("%s: %s", name, verdictNames[v])
		}
	}
	// Without an alias for the gateway there is no name to speak under.
	alone := New(Host{Self: netip.MustParseAddr("10.99.0.1")}, []Peer{testPeer(1420, testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"))})
	e := ipv4Packet("192.168.1.9", "10.65.0.7", protoICMP, icmpMessage(3, ipv4Packet("10.65.0.7", "10.42.0.5", protoUDP, udpSegment(1, 2, nil))))
	if v := alone.Egress(e); v != dropSource {
		t.Errorf("without a gateway address: %s", verdictNames[v])
	}
}

// TestTheDataPathMovesAddressesAsThePlanSays: what the rooms above are told of an address is what its packets have.
func TestTheDataPathMovesAddressesAsThePlanSays(t *testing.T) {
	peer := testPeer(1420, testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"),
		testMapping("10.50.0.0/28", "10.66.0.0/28"), testMapping("10.43.32.0/20", "172.20.16.0/20"))
	table := New(Host{Self: podGateway, Port: 6450}, []Peer{peer})
	r := rand.New(rand.NewSource(1))
	for range 1000 {
		theirs := netip.AddrFrom4([4]byte{10, 42, byte(r.Intn(256)), byte(r.Intn(256))})
		ours := netip.AddrFrom4([4]byte{10, 43, 32 + byte(r.Intn(16)), byte(r.Intn(256))})
		here, _ := peer.Here(theirs)
		there, _ := peer.There(ours)
		out := ipv4Packet(ours.String(), here.String(), protoUDP, udpSegment(1, 2, nil))
		if v := table.Egress(out); v != Pass || addressAt(out, atSource) != there {
			t.Fatalf("%s leaves as %s, want %s: %s", ours, addressAt(out, atSource), there, verdictNames[v])
		}
		back := ipv4Packet(here.String(), there.String(), protoUDP, udpSegment(2, 1, nil))
		if v := table.Ingress(back); v != Pass || addressAt(back, atDestination) != ours {
			t.Fatalf("%s arrives for %s, want %s: %s", there, addressAt(back, atDestination), ours, verdictNames[v])
		}
	}
}
