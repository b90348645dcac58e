package datapath

import (
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

// brokered: bob has guests of alice and of ann, who both have the pods that bob has; of alice some went on to carol and some to dave. Carol is a home of guests at
// bob, too.
func brokered() (bob, carol *Table) {
	range1, range2 := prefix("10.127.0.0/24"), prefix("10.127.4.0/24")
	space := prefixes("10.42.0.0/16", "10.130.0.0/24")
	bob = New(testHost("10.127.0.1/32", "10.127.4.1/32", "10.127.8.1/32"), []Peer{
		{ID: "alice", Pair: netplan.Pair{Here: range1, Space: space, Relayed: []netplan.Relayed{{ID: "carol", Guests: netplan.RelayedPart(range1, 0)}, {ID: "dave", Guests: netplan.RelayedPart(range1, 1)}}}, MTU: 1400, Up: up()},
		{ID: "ann", Pair: netplan.Pair{Here: range2, Space: space[:1], Relayed: []netplan.Relayed{{ID: "carol", Guests: netplan.RelayedPart(range2, 0)}, {ID: "nobody", Guests: netplan.RelayedPart(range2, 1)}}}, MTU: 1400, Up: up()},
		{ID: "carol", Pair: netplan.Pair{There: prefix("10.128.0.0/24"), Here: prefix("10.127.8.0/24"), Space: space[:1]}, MTU: 1400, Up: up()},
		{ID: "dave", Pair: netplan.Pair{There: prefix("10.129.0.0/24")}, MTU: 1400, Up: up()},
	})
	carol = New(testHost("10.128.0.1/32", "10.127.0.1/32"), []Peer{
		{ID: "bob", Pair: netplan.Pair{Here: prefix("10.128.0.0/24"), Space: space[:1], Onward: []netplan.Onward{
			{ID: "alice", Network: range1, Guests: netplan.RelayedPart(range1, 0), Space: space}, {ID: "ann", Network: range2, Guests: netplan.RelayedPart(range2, 0), Space: space[:1]},
		}}, MTU: 1400, Up: up()},
	})
	return bob, carol
}

// peer names the peer in whose session a packet is.
func (t *Table) peer(b []byte, names map[string]string) string {
	return names[addressAt(b, atDestination).String()]
}

// TestWhatGoesOnIsRelayed: a broker passes on what is between a home and its guests that went on, in both directions, and among these; its kernel, for
// which the addresses mean something else, sees of it what is for guests of that home that stayed, and nothing else.
func TestWhatGoesOnIsRelayed(t *testing.T) {
	bob, _ := brokered()
	names := map[string]string{}
	for name, r := range map[string]string{"alice": "10.127.0.0/24", "ann": "10.127.4.0/24", "carol": "10.127.8.0/24", "dave": "10.129.0.0/24"} {
		names[(netplan.Pair{Here: prefix(r)}).Handle().String()] = name
	}
	from := map[string]string{"alice": "10.127.0.0/24", "ann": "10.127.4.0/24", "carol": "10.127.8.0/24", "dave": "10.129.0.0/24"}
	for what, c := range map[string]struct{ from, src, dst, want string }{
		"a pod of home's":                         {"alice", "10.42.0.5", "10.127.0.70", "to carol"},
		"a guest of home's elsewhere":             {"alice", "10.130.0.5", "10.127.0.100", "to dave"},
		"the answer":                              {"carol", "10.127.0.70", "10.42.0.5", "to alice"},
		"to a guest of home's elsewhere":          {"carol", "10.127.0.70", "10.130.0.5", "to alice"},
		"to one that went on elsewhere":           {"carol", "10.127.0.70", "10.127.0.100", "to dave"},
		"to one that stayed":                      {"carol", "10.127.0.70", "10.127.0.9", "here"},
		"home, to one that stayed":                {"alice", "10.42.0.5", "10.127.0.9", "here"},
		"another home":                            {"ann", "10.42.0.5", "10.127.0.70", "dropped"},
		"another home's, by the same provider":    {"carol", "10.127.4.70", "10.42.0.5", "to ann"},
		"to another home's that stayed":           {"carol", "10.127.0.70", "10.127.4.9", "dropped"},
		"to another home's that went on":          {"carol", "10.127.0.70", "10.127.4.70", "dropped"},
		"to a pod of the broker's by the LAN":     {"carol", "10.127.0.70", "192.168.1.5", "dropped"},
		"to one beside it":                        {"carol", "10.127.0.70", "10.127.0.71", "dropped"},
		"of the part of another provider":         {"carol", "10.127.0.100", "10.42.0.5", "dropped"},
		"of one that stayed":                      {"carol", "10.127.0.9", "10.42.0.5", "dropped"},
		"by who has nothing to do with it":        {"ann", "10.127.0.70", "10.42.0.5", "dropped"},
		"home in the name of one that went on":    {"alice", "10.127.0.70", "10.127.0.100", "dropped"},
		"home in the name of nobody":              {"alice", "10.50.0.1", "10.127.0.70", "dropped"},
		"to whom there is no tunnel":              {"ann", "10.42.0.5", "10.127.4.100", "dropped"},
		"the broker's own guest there":            {"carol", "10.128.0.9", "10.42.0.5", "here"},
		"the broker's own guest to one of home's": {"carol", "10.128.0.9", "10.127.0.9", "dropped"},
		"the provider as a home":                  {"carol", "10.42.0.5", "10.127.8.9", "here"},
	} {
		b := sentBy(from[c.from], ipv4Packet(c.src, c.dst, protoUDP, udpSegment(40000, 80, []byte("hello"))))
		v, onward := bob.Ingress(b)
		got := "dropped"
		if v == Pass && onward {
			got = "to " + bob.peer(b, names)
			if addresses(b[Header:]) != c.src+" > "+c.dst {
				t.Errorf("%s: it is %s", what, addresses(b[Header:]))
			}
		} else if v == Pass {
			got = "here"
		}
		if got != c.want {
			t.Errorf("%s: %s > %s is %s (%s), want %s", what, c.src, c.dst, got, verdictNames[v], c.want)
		}
	}
	for what, c := range map[string]struct{ src, dst, want string }{
		"one that stayed": {"10.127.0.9", "10.127.0.70", "carol"}, "to home": {"10.127.0.9", "10.42.0.5", "alice"},
		"another home's": {"10.127.4.9", "10.127.0.70", ""}, "a pod of the broker's": {"10.42.0.5", "10.127.0.70", ""}, "in its name": {"10.127.0.70", "10.42.0.5", ""},
	} {
		b, _ := leave(bob, ipv4Packet(c.src, c.dst, protoUDP, udpSegment(40000, 80, []byte("hello"))))
		got := ""
		if b != nil {
			got = bob.peer(b, names)
		}
		if got != c.want {
			t.Errorf("from here, %s: %s > %s goes to %q, want %q", what, c.src, c.dst, got, c.want)
		}
	}
	// What can go no further does not come to the kernel either.
	late := ipv4Packet("10.127.0.70", "10.42.0.5", protoUDP, udpSegment(40000, 80, []byte("hello")))
	late[8] = 1
	seal(late)
	if _, v := arrive(bob, sentBy(from["carol"], late)); v == Pass {
		t.Error("at its last hop it comes to the kernel")
	}
	if v, _ := bob.Ingress(sentBy(from["alice"], ipv4Packet("10.42.0.5", "10.127.0.70", protoUDP, make([]byte, 1400)))); v == Pass {
		t.Error("too large, it is passed")
	}
}

// TestWhatComesPastHomeGoesOn: alice's guests at erin reach those that went on from bob to carol, by the direct way from erin to bob, which is there for none
// but alice's; it is counted where it goes, and not under alice's contract.
func TestWhatComesPastHomeGoesOn(t *testing.T) {
	range1, range2 := prefix("10.127.0.0/24"), prefix("10.127.4.0/24")
	space := prefixes("10.42.0.0/16", "10.130.0.0/24")
	ofAlice, atCarol := &Carried{}, &Carried{}
	carolUp := up()
	way := Direct{Handle: netip.MustParseAddr("240.0.0.1"), Called: netip.MustParseAddr("240.0.0.2"), Guests: prefix("10.130.0.0/24"), MTU: 1300, Way: &Way{Wake: func() {}}}
	bob := New(testHost("10.127.0.1/32", "10.127.4.1/32"), []Peer{
		{ID: "alice", Pair: netplan.Pair{Here: range1, Space: space, Relayed: []netplan.Relayed{{ID: "carol", Guests: netplan.RelayedPart(range1, 0)}, {ID: "nobody", Guests: netplan.RelayedPart(range1, 1)}}}, MTU: 1400, Up: up(), Carried: ofAlice, Direct: []Direct{way}},
		{ID: "ann", Pair: netplan.Pair{Here: range2, Space: space, Relayed: []netplan.Relayed{{ID: "carol", Guests: netplan.RelayedPart(range2, 0)}}}, MTU: 1400, Up: up()},
		{ID: "carol", Pair: netplan.Pair{There: prefix("10.128.0.0/24")}, MTU: 1400, Up: carolUp, Carried: atCarol},
	})
	from := func(src, dst string) []byte {
		b := append(make([]byte, Header), ipv4Packet(src, dst, protoUDP, udpSegment(40000, 80, []byte("hello")))...)
		(&tunnel{header: headerOf(way.Handle, way.Called)}).wrap(b)
		return b
	}
	names := map[string]string{(netplan.Pair{There: prefix("10.128.0.0/24")}).Handle().String(): "carol"}
	for what, c := range map[string]struct{ src, dst, want string }{
		"to one that went on":         {"10.130.0.5", "10.127.0.70", "to carol"},
		"to one that stayed":          {"10.130.0.5", "10.127.0.9", "here"},
		"to whom there is no tunnel":  {"10.130.0.5", "10.127.0.100", "dropped"},
		"another home's that went on": {"10.130.0.5", "10.127.4.70", "dropped"},
		"in the name of home":         {"10.42.0.5", "10.127.0.70", "dropped"},
		"in the name of one of them":  {"10.127.0.9", "10.127.0.70", "dropped"},
		"to the broker's own there":   {"10.130.0.5", "10.128.0.9", "dropped"},
		"to home itself":              {"10.130.0.5", "10.42.0.5", "dropped"},
	} {
		before := atCarol.There.Load()
		b := from(c.src, c.dst)
		v, onward := bob.Ingress(b)
		got := "dropped"
		if v == Pass && onward {
			got = "to " + bob.peer(b, names)
		} else if v == Pass {
			got = "here"
		}
		if got != c.want || (atCarol.There.Load() > before) != onward {
			t.Errorf("%s: %s > %s is %s (%s), want %s; %d bytes are counted", what, c.src, c.dst, got, verdictNames[v], c.want, atCarol.There.Load()-before)
		}
	}
	if n := ofAlice.Here.Load() + ofAlice.There.Load() + atCarol.Here.Load(); n != 0 {
		t.Errorf("%d bytes are counted on the wrong side", n)
	}
	carolUp.Store(false)
	if v, _ := bob.Ingress(from("10.130.0.5", "10.127.0.70")); v == Pass {
		t.Error("without a session it comes to the kernel")
	}
}

// TestAHomeByWayOfAPeer: to the provider each home that comes by way of a broker is one of its own.
func TestAHomeByWayOfAPeer(t *testing.T) {
	_, carol := brokered()
	called := netip.MustParsePrefix("10.128.0.0/24").String()
	for what, c := range map[string]struct {
		src, dst string
		pass     bool
	}{
		"home": {"10.42.0.5", "10.127.0.70", true}, "its guest at the broker": {"10.127.0.9", "10.127.0.70", true}, "its guest elsewhere": {"10.130.0.5", "10.127.0.70", true},
		"the other home": {"10.42.0.5", "10.127.4.70", true}, "the broker's own": {"10.42.0.5", "10.128.0.9", true},
		"what only the other home has": {"10.130.0.5", "10.127.4.70", false}, "a guest here of the other home": {"10.127.4.70", "10.127.0.70", false},
		"to one that is not here": {"10.42.0.5", "10.127.0.9", false}, "to a pod of the provider's": {"10.127.0.70", "10.42.0.5", false}, "the broker's guest": {"10.128.0.9", "10.127.0.70", false},
	} {
		if _, v := arrive(carol, sentBy(called, ipv4Packet(c.src, c.dst, protoUDP, udpSegment(40000, 80, []byte("hello"))))); (v == Pass) != c.pass {
			t.Errorf("%s: %s > %s: %s", what, c.src, c.dst, verdictNames[v])
		}
	}
	for what, c := range map[string]struct {
		src, dst string
		pass     bool
	}{
		"to home": {"10.127.0.70", "10.42.0.5", true}, "to one at the broker": {"10.127.0.70", "10.127.0.9", true}, "to one elsewhere": {"10.127.0.70", "10.130.0.5", true},
		"to where only the other home has guests": {"10.127.4.70", "10.130.0.5", false}, "to the other home's": {"10.127.0.70", "10.127.4.9", false}, "to the broker's": {"10.127.0.70", "10.128.0.9", false},
	} {
		b, v := leave(carol, ipv4Packet(c.src, c.dst, protoUDP, udpSegment(40000, 80, []byte("hello"))))
		if (v == Pass) != c.pass {
			t.Errorf("%s: %s > %s: %s", what, c.src, c.dst, verdictNames[v])
		}
		if v == Pass && addresses(b[Header:]) != c.src+" > "+c.dst {
			t.Errorf("%s: it is %s", what, addresses(b[Header:]))
		}
	}
}
