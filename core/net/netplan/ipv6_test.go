package netplan

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// cafe is the ranges of K3s's documentation.
var cafe = Cluster6{Pods: netip.MustParsePrefix("2001:cafe:42::/56"), Services: netip.MustParsePrefix("2001:cafe:43::/112")}

func TestIPv6AddressesOfACluster(t *testing.T) {
	for _, tt := range []struct{ pods, services, node, gateway, nodePods, dns, api string }{
		{"2001:cafe:42::/56", "2001:cafe:43::/112", "2001:cafe:42:ff::1", "2001:cafe:42:ff::2", "2001:cafe:42::/64", "2001:cafe:43::a", "2001:cafe:43::1"},
		{"fd00:1:2::/48", "fd00:1:3::/108", "fd00:1:2:ffff::1", "fd00:1:2:ffff::2", "fd00:1:2::/64", "fd00:1:3::a", "fd00:1:3::1"},
		{"fd00:1:2:8::/63", "fd00:1:2:a::ff00/120", "fd00:1:2:9::1", "fd00:1:2:9::2", "fd00:1:2:8::/64", "fd00:1:2:a::ff0a", "fd00:1:2:a::ff01"},
	} {
		c := Usual()
		c.IPv6 = Cluster6{Pods: netip.MustParsePrefix(tt.pods), Services: netip.MustParsePrefix(tt.services)}
		got := []string{c.IPv6.Node().String(), c.IPv6.Gateway().String(), c.IPv6.NodePods().String(), c.IPv6.DNS().String(), c.IPv6.API().String()}
		if want := []string{tt.node, tt.gateway, tt.nodePods, tt.dns, tt.api}; !slices.Equal(got, want) || c.Validate() != nil {
			t.Errorf("%s: %v, want %v; %v", tt.pods, got, want, c.Validate())
		}
	}
	if c := (Cluster6{}); c.Node().IsValid() || c.Gateway().IsValid() || c.DNS().IsValid() || c.API().IsValid() || c.NodePods().IsValid() {
		t.Error("a cluster without IPv6 has addresses of it")
	}
}

func TestIPv6RangesThatNoClusterHas(t *testing.T) {
	for _, tt := range []struct{ pods, services, says string }{
		{"", "2001:cafe:43::/112", "pod range: no range"},
		{"2001:cafe:42::/56", "", "service range: no range"},
		{"10.42.0.0/16", "2001:cafe:43::/112", "not IPv6"},
		{"::ffff:10.42.0.0/112", "2001:cafe:43::/112", "not IPv6"},
		{"2001:cafe:42:1::/56", "2001:cafe:43::/112", "host bits"},
		{"2001:cafe::/40", "2001:cafe:43::/112", "/48 to /63"},
		{"2001:cafe:42::/64", "2001:cafe:43::/112", "/48 to /63"},
		{"fe80::/56", "2001:cafe:43::/112", "neither unique local"},
		{"ff05::/56", "2001:cafe:43::/112", "neither unique local"},
		{"64:ff9b::/56", "2001:cafe:43::/112", "neither unique local"},
		{"2002:a00:1::/56", "2001:cafe:43::/112", "6to4"},
		{"2001:0:42::/56", "2001:cafe:43::/112", "Teredo"},
		{"2001:cafe:42::/56", "2001:cafe:43::/64", "/108 to /120"},
		{"2001:cafe:42::/56", "2001:cafe:43::fff0/124", "/32 to /120"},
		{"2001:cafe:42::/56", "2001:cafe:42:1::/112", "overlap"},
	} {
		c := Usual()
		for text, into := range map[string]*netip.Prefix{tt.pods: &c.IPv6.Pods, tt.services: &c.IPv6.Services} {
			if text != "" {
				*into = netip.MustParsePrefix(text)
			}
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q, %q: %v, want it to say %q", tt.pods, tt.services, err, tt.says)
		}
	}
}

// TestDerivedIPv6Ranges: what a cluster has must never change by itself, so it is written down here.
func TestDerivedIPv6Ranges(t *testing.T) {
	alice, bob := sha256.Sum256([]byte("alice")), sha256.Sum256([]byte("bob"))
	if got, want := Usual6(alice), (Cluster6{netip.MustParsePrefix("fda0:40bb:79b8:4200::/56"), netip.MustParsePrefix("fda0:40bb:79b8:4300::/112")}); got != want {
		t.Errorf("alice has %v, had %v", got, want)
	}
	if got := Guests6(alice, bob); got != netip.MustParsePrefix("fdbd:c296:bea5:5bf2::/64") {
		t.Errorf("alice's guests at bob have %v", got)
	}
	if a, b := Usual6(alice), Usual6(bob); a.Pods.Overlaps(b.Pods) || a.Services.Overlaps(b.Services) {
		t.Errorf("alice and bob have the same: %v, %v", a, b)
	}
	if there, back := Guests6(alice, bob), Guests6(bob, alice); there.Overlaps(back) || there.Overlaps(Usual6(alice).Pods) {
		t.Errorf("guests there and back: %s, %s", there, back)
	}
}

// goodPair6 has all that a pair may have of IPv6; the other cluster has the ranges of K3s's documentation.
func goodPair6() Pair {
	p := goodPair()
	alice, bob := sha256.Sum256([]byte("alice")), sha256.Sum256([]byte("bob"))
	p.IPv6 = Pair6{There: Guests6(alice, bob), Here: Guests6(bob, alice), Space: append(prefixes("fd77:1:2:3::/64"), cafe.Pods), Services: cafe.Services, AtHome: cafe.Gateway()}
	p.IPv6.AtThere = GuestGateway(p.IPv6.There)
	return p
}

func TestWhatIsWrongWithThePairsIPv6(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	one, other := goodPair6(), goodPair6()
	one.Here, one.AtHome, one.Space, one.IPv6.Here, one.IPv6.AtHome, one.IPv6.Space = netip.Prefix{}, netip.Addr{}, nil, netip.Prefix{}, netip.Addr{}, nil
	other.There, other.AtThere, other.IPv6.There, other.IPv6.AtThere = netip.Prefix{}, netip.Addr{}, netip.Prefix{}, netip.Addr{}
	for _, p := range []Pair{goodPair6(), one, other} {
		if err := p.Validate(); err != nil || !p.IPv6.On() {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if goodPair().IPv6.On() {
		t.Error("a pair of IPv4 has IPv6")
	}
	for _, c := range []struct {
		what   string
		change func(*Pair)
		says   string
	}{
		{"guests in the internet", func(p *Pair) { p.IPv6.There, p.IPv6.AtThere = prefix("2600::/64"), addr("2600::1") }, "unique local"},
		{"guests in half of all unique local addresses", func(p *Pair) { p.IPv6.There, p.IPv6.AtThere = prefix("fd00::/9"), addr("fd00::1") }, "/64"},
		{"guests of the link", func(p *Pair) { p.IPv6.Here = prefix("fe80::/64") }, "unique local"},
		{"guests of IPv4", func(p *Pair) { p.IPv6.Here = prefix("10.70.0.0/24") }, "/64"},
		{"a range that is none", func(p *Pair) { p.IPv6.Here = netip.PrefixFrom(addr("fd00::"), 129) }, "/64"},
		{"host bits", func(p *Pair) { p.IPv6.There = prefix("fd00::1/64") }, "/64"},
		{"both directions in one range", func(p *Pair) { p.IPv6.Here = p.IPv6.There }, "both are"},
		{"guests that have no IPv4", func(p *Pair) { p.Here, p.AtHome = netip.Prefix{}, netip.Addr{} }, "none of IPv4"},
		{"guests whose addresses somebody else gives", func(p *Pair) { six := p.IPv6; *p = translatedPair(); p.IPv6 = six }, "does not give"},
		{"a host outside of its range", func(p *Pair) { p.IPv6.AtThere = addr("fd00::1") }, "not in the range"},
		{"no address of the host there", func(p *Pair) { p.IPv6.AtThere = netip.Addr{} }, "not in the range"},
		{"an address there, and no range", func(p *Pair) { p.IPv6.There = netip.Prefix{} }, "not in the range"},
		{"a host of a zone", func(p *Pair) { p.IPv6.AtHome = p.IPv6.AtHome.WithZone("eth0") }, "zone"},
		{"a home whose host is elsewhere", func(p *Pair) { p.IPv6.AtHome = addr("2600::1") }, "address space"},
		{"a home whose host has IPv4", func(p *Pair) { p.IPv6.AtHome = p.AtHome }, "address space"},
		{"a home without a host", func(p *Pair) { p.IPv6.AtHome = netip.Addr{} }, "address space"},
		{"a home without addresses", func(p *Pair) { p.IPv6.Space = nil }, "address space"},
		{"an address space that has its guests here", func(p *Pair) {
			p.IPv6.Space = append(p.IPv6.Space, netip.PrefixFrom(p.IPv6.Here.Addr(), 48).Masked())
		}, "overlaps"},
		{"an address space that has ours there", func(p *Pair) {
			p.IPv6.Space = append(p.IPv6.Space, netip.PrefixFrom(p.IPv6.There.Addr(), 96).Masked())
		}, "overlaps"},
		{"an address space that overlaps itself", func(p *Pair) { p.IPv6.Space = append(p.IPv6.Space, prefix("2001:cafe:42:7::/64")) }, "overlaps"},
		{"an address space of all", func(p *Pair) { p.IPv6.Space = append(p.IPv6.Space, prefix("::/0")) }, "/32 to /120"},
		{"an address space of IPv4", func(p *Pair) { p.IPv6.Space = append(p.IPv6.Space, prefix("10.0.0.0/16")) }, "not IPv6"},
		{"an address space of the link", func(p *Pair) { p.IPv6.Space = append(p.IPv6.Space, prefix("fe80::/64")) }, "neither"},
		{"too many ranges", func(p *Pair) { p.IPv6.Space = make([]netip.Prefix, MaxSpace+1) }, "at most 160"},
		{"services of multicast", func(p *Pair) { p.IPv6.Services = prefix("ff05::/112") }, "services"},
		{"a space, and no guests", func(p *Pair) { p.IPv6 = Pair6{Space: prefixes("::1/128")} }, "/32 to /120"},
	} {
		p := goodPair6()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "IPv6: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", c.what, err, c.says)
		}
	}
}

func TestRangesOfAPairOfBothFamilies(t *testing.T) {
	p := goodPair6()
	if got := p.Ranges(); !slices.Equal(got, []netip.Prefix{p.There, p.Here, p.IPv6.There, p.IPv6.Here}) {
		t.Error(got)
	}
}

// FuzzPair6: of whatever is accepted, no address means two things to a guest, and no guest has one that may be somebody's on the internet.
func FuzzPair6(f *testing.F) {
	bytes := func(ps ...netip.Prefix) (b []byte) {
		for _, p := range ps {
			b = append(append(b, p.Addr().AsSlice()...), byte(p.Bits()))
		}
		return b
	}
	good := goodPair6()
	f.Add(bytes(append([]netip.Prefix{good.IPv6.There, good.IPv6.Here}, good.IPv6.Space...)...), good.IPv6.AtHome.AsSlice(), good.IPv6.AtThere.AsSlice())
	f.Fuzz(func(t *testing.T, ranges, home, n []byte) {
		p := goodPair()
		next := func() (r netip.Prefix) {
			if len(ranges) >= 17 {
				r, ranges = netip.PrefixFrom(netip.AddrFrom16([16]byte(ranges)), int(ranges[16])), ranges[17:]
			}
			return r
		}
		p.IPv6.There, p.IPv6.Here = next(), next()
		p.IPv6.AtThere = GuestGateway(p.IPv6.There)
		p.IPv6.AtHome, _ = netip.AddrFromSlice(home)
		for range 3 {
			if r := next(); r.IsValid() {
				p.IPv6.Space = append(p.IPv6.Space, r)
			}
		}
		if p.Validate() != nil {
			return
		}
		a, _ := netip.AddrFromSlice(n)
		meanings := 0
		for _, r := range append([]netip.Prefix{p.IPv6.There, p.IPv6.Here}, p.IPv6.Space...) {
			if r.Contains(a) {
				meanings++
			}
		}
		if meanings > 1 {
			t.Fatalf("%s means %d things in %+v", a, meanings, p)
		}
		for _, g := range []netip.Prefix{p.IPv6.There, p.IPv6.Here} {
			if g.IsValid() && (!g.Addr().IsPrivate() || g.Bits() != GuestBits6) {
				t.Fatalf("guests have %s", g)
			}
		}
	})
}
