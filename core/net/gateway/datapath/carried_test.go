package datapath

import (
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

// counted gives the tunnel of a range a count.
func counted(t *Table, of string) *Carried {
	to := t.find(netplan.Number(netip.MustParsePrefix(of).Addr())).to
	if to.carried == nil {
		to.carried = &Carried{}
	}
	return to.carried
}

// What passes between a guest and its home is counted on both sides alike, and what does not pass is on neither.
func TestBothSidesCountTheSame(t *testing.T) {
	all := parties()
	alices, bobs := counted(all.alice, "10.127.0.0/24"), counted(all.bob, "10.127.0.0/24")
	forCarol, carols := counted(all.alice, "10.128.0.0/24"), counted(all.carol, "10.128.0.0/24")
	forErin, erins := counted(all.alice, "10.129.0.0/16"), counted(all.erin, "10.129.0.0/16")
	daves := counted(all.bob, "10.127.4.0/24")
	carry := func(from, to *Table, src, dst string, size int) (Verdict, bool) {
		b, v := leave(from, ipv4Packet(src, dst, protoUDP, udpSegment(1000, 40000, make([]byte, size))))
		if v != Pass {
			return v, false
		}
		v, onward := to.Ingress(b)
		if onward {
			v, _ = all.carol.Ingress(b)
		}
		return v, onward
	}
	for _, c := range []struct {
		what     string
		from, to *Table
		src, dst string
		size     int
		passes   bool
	}{
		{"home to guest", all.alice, all.bob, "10.42.0.5", "10.127.0.130", 100, true},
		{"guest to home", all.bob, all.alice, "10.127.0.130", "10.42.0.5", 1000, true},
		{"guest to guest by way of home", all.bob, all.alice, "10.127.0.130", "10.128.0.130", 10, true},
		{"home to a guest that is translated", all.alice, all.erin, "10.42.0.5", "10.129.0.9", 300, true},
		{"guest to what is not home's", all.bob, all.alice, "10.127.0.130", "192.168.1.7", 100, false},
		{"to a guest of another's", all.alice, all.bob, "10.42.0.5", "10.127.4.9", 100, false},
	} {
		if v, _ := carry(c.from, c.to, c.src, c.dst, c.size); (v == Pass) != c.passes {
			t.Errorf("%s: %s", c.what, verdictNames[v])
		}
	}
	const headers = 20 + 8
	for what, c := range map[string]struct{ home, provider, want uint64 }{
		"bob's":                              {alices.There.Load(), bobs.Here.Load(), 100 + 1000 + 10 + 3*headers},
		"carol's":                            {forCarol.There.Load(), carols.Here.Load(), 10 + headers},
		"erin's":                             {forErin.There.Load(), erins.Here.Load(), 300 + headers},
		"dave's":                             {0, daves.Here.Load(), 0},
		"of those who are guests at alice's": {alices.Here.Load() + forCarol.Here.Load() + forErin.Here.Load(), bobs.There.Load() + carols.There.Load() + erins.There.Load(), 0},
	} {
		if c.home != c.want || c.provider != c.want {
			t.Errorf("%s: home counts %d, the provider %d, want %d", what, c.home, c.provider, c.want)
		}
	}
}

// The same with IPv6.
func TestBothSidesCountTheSameOfIPv6(t *testing.T) {
	all := parties6()
	at := func(t *Table, a string) *Carried {
		to := t.six.find(addr6Of(netip.MustParseAddr(a))).to
		if to.carried == nil {
			to.carried = &Carried{}
		}
		return to.carried
	}
	home, provider := at(all.alice, "fd00:b::130"), at(all.bob, "fd00:b::130")
	forCarol, carols := at(all.alice, "fd00:c::130"), at(all.carol, "fd00:c::130")
	for _, c := range []struct {
		from, to *Table
		src, dst string
	}{{all.alice, all.bob, "2001:cafe:42::5", "fd00:b::130"}, {all.bob, all.alice, "fd00:b::130", "2001:cafe:42::5"}, {all.bob, all.alice, "fd00:b::130", "fd00:c::130"}} {
		b, v := leave(c.from, ipv6Packet(c.src, c.dst, protoUDP, udpSegment(1000, 40000, make([]byte, 52))))
		if v != Pass {
			t.Fatalf("%s to %s: %s", c.src, c.dst, verdictNames[v])
		}
		v, onward := c.to.Ingress(b)
		if onward {
			v, _ = all.carol.Ingress(b)
		}
		if v != Pass {
			t.Fatalf("%s to %s: %s", c.src, c.dst, verdictNames[v])
		}
	}
	if h, p := home.There.Load(), provider.Here.Load(); h != 300 || p != 300 {
		t.Errorf("bob's: home counts %d, the provider %d", h, p)
	}
	if h, p := forCarol.There.Load(), carols.Here.Load(); h != 100 || p != 100 {
		t.Errorf("carol's: home counts %d, the provider %d", h, p)
	}
}

// What goes on counts once under each of the two contracts, and both sides of each count the same; between two guests of a home under those with their
// providers alone. What has no session is not sent, and does not count.
func TestWhatGoesOnCountsOnce(t *testing.T) {
	bob, carol := brokered()
	ofAlice, atCarol, atDave := &Carried{}, &Carried{}, &Carried{}
	set := func(t *Table, of string, c *Carried) { t.find(netplan.Number(netip.MustParseAddr(of))).to.carried = c }
	set(bob, "10.127.0.9", ofAlice)
	set(bob, "10.127.0.70", atCarol)
	set(bob, "10.127.0.100", atDave)
	carols := &Carried{}
	set(carol, "10.128.0.9", carols)
	set(carol, "10.127.0.70", carols)
	udp := func(src, dst string) []byte {
		return ipv4Packet(src, dst, protoUDP, udpSegment(40000, 80, make([]byte, 72)))
	} // 100 bytes in all
	want := func(what string, alice, there, dave, provider uint64) {
		t.Helper()
		if got := [...]uint64{ofAlice.Here.Load(), atCarol.There.Load(), atDave.There.Load(), carols.Here.Load()}; got != [...]uint64{alice, there, dave, provider} {
			t.Errorf("%s: of alice %d, at carol %d, at dave %d, and carol counts %d; want %d, %d, %d, %d", what, got[0], got[1], got[2], got[3], alice, there, dave, provider)
		}
		if n := ofAlice.There.Load() + atCarol.Here.Load() + atDave.Here.Load() + carols.There.Load(); n != 0 {
			t.Errorf("%s: %d are counted on the wrong side", what, n)
		}
	}
	in := sentBy("10.127.0.0/24", udp("10.42.0.5", "10.127.0.70"))
	if v, onward := bob.Ingress(in); v != Pass || !onward {
		t.Fatal(verdictNames[v])
	}
	if v, _ := carol.Ingress(in); v != Pass {
		t.Fatal(verdictNames[v])
	}
	want("from home to a guest that went on", 100, 100, 0, 100)
	back, v := leave(carol, udp("10.127.0.70", "10.42.0.5"))
	if v != Pass {
		t.Fatal(verdictNames[v])
	}
	if v, onward := bob.Ingress(sentBy("10.127.8.0/24", back[Header:])); v != Pass || !onward {
		t.Fatal(verdictNames[v])
	}
	want("and back", 200, 200, 0, 200)
	if v, onward := bob.Ingress(sentBy("10.127.8.0/24", udp("10.127.0.70", "10.127.0.100"))); v != Pass || !onward {
		t.Fatal(verdictNames[v])
	}
	want("from one provider to the other", 200, 300, 100, 200)
	carol.find(netplan.Number(netip.MustParseAddr("10.127.0.70"))).to.up.Store(false)
	if _, v := leave(carol, udp("10.127.0.70", "10.42.0.5")); v != Pass {
		t.Fatal(verdictNames[v])
	}
	want("without a session", 200, 300, 100, 200)
}
