package netplan

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func mapped(real, alias string) Mapping {
	return Mapping{Name: real, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

func TestMapping(t *testing.T) {
	m := mapped("10.43.32.0/20", "172.20.16.0/20")
	for _, c := range []struct{ real, alias string }{
		{"10.43.32.0", "172.20.16.0"}, {"10.43.47.255", "172.20.31.255"}, {"10.43.40.1", "172.20.24.1"},
		{"10.43.48.0", ""}, {"10.43.31.255", ""}, {"::1", ""},
	} {
		real := netip.MustParseAddr(c.real)
		got, ok := m.ToAlias(real)
		if ok != (c.alias != "") || ok && got.String() != c.alias {
			t.Errorf("%s: %s, %v", c.real, got, ok)
		}
		if back, _ := m.ToReal(got); ok && back != real {
			t.Errorf("%s came back as %s", c.real, back)
		}
	}
	if _, ok := m.ToAlias(netip.Addr{}); ok {
		t.Error("no address was translated")
	}
	for _, odd := range []Mapping{{}, mapped("10.42.0.0/16", "fd00::/16"), mapped("fd00::/16", "10.42.0.0/16"), mapped("10.42.0.0/16", "10.65.0.0/17")} {
		for _, a := range []string{"10.42.0.5", "fd00::5", "::ffff:10.42.0.5"} {
			if got, ok := odd.ToAlias(netip.MustParseAddr(a)); ok {
				t.Errorf("%v translates %s to %s", odd, a, got)
			}
		}
	}
}

// goodPair has all that a pair may have, but for translation.
func goodPair() Pair {
	return Pair{
		There: netip.MustParsePrefix("10.64.3.0/24"), Here: netip.MustParsePrefix("10.70.0.0/24"), Space: prefixes("10.42.0.0/16", "10.65.9.0/24"),
		Services: netip.MustParsePrefix("10.43.0.0/16"), AtThere: netip.MustParseAddr("10.64.3.1"), AtHome: netip.MustParseAddr("10.42.255.2"),
	}
}

// translatedPair is of a provider whose guests get their addresses from somebody else.
func translatedPair() Pair {
	p := goodPair()
	p.Here = netip.MustParsePrefix("10.70.0.0/16")
	p.Guests = Mapping{Name: "guests", Real: usualPods, Alias: p.Here}
	p.Aliases = []Mapping{mapped("10.42.0.0/16", "10.71.0.0/16"), mapped("10.65.9.0/24", "10.72.0.0/24")}
	return p
}

func TestWhatIsWrongWithAPair(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	for _, p := range []Pair{goodPair(), translatedPair(), {There: goodPair().There, AtThere: goodPair().AtThere}, {Here: goodPair().Here, AtHome: goodPair().AtHome, Space: goodPair().Space}} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, c := range []struct {
		what   string
		change func(*Pair)
		says   string
	}{
		{"no guests of either", func(p *Pair) { *p = Pair{Space: p.Space} }, "neither side"},
		{"guests in the internet", func(p *Pair) { p.There, p.AtThere = prefix("8.8.8.0/24"), addr("8.8.8.1") }, "private"},
		{"guests in all of 10/8", func(p *Pair) { p.There, p.AtThere = prefix("10.0.0.0/8"), addr("10.0.0.1") }, "/12 to /28"},
		{"more than others would have a place beside", func(p *Pair) { p.There, p.AtThere = prefix("10.64.0.0/15"), addr("10.64.0.1") }, "wider"},
		{"guests of loopback", func(p *Pair) { p.There, p.AtThere = prefix("127.0.0.0/24"), addr("127.0.0.1") }, "no cluster"},
		{"host bits", func(p *Pair) { p.There = prefix("10.64.3.1/24") }, "host bits"},
		{"both directions in one range", func(p *Pair) { p.Here = prefix("10.64.3.0/24") }, "overlap"},
		{"guests here in a range of another length", func(p *Pair) { p.Here = prefix("10.70.0.0/25") }, "smaller than a /24"},
		{"a host outside of its range", func(p *Pair) { p.AtThere = addr("10.64.4.1") }, "10.64.4.1"},
		{"no address of the host there", func(p *Pair) { p.AtThere = netip.Addr{} }, "not in the range"},
		{"an address there, and no range", func(p *Pair) { p.There = netip.Prefix{} }, "not in the range"},
		{"a home whose host is elsewhere", func(p *Pair) { p.AtHome = addr("192.168.1.1") }, "address space"},
		{"a home without a host", func(p *Pair) { p.AtHome = netip.Addr{} }, "address space"},
		{"a home without addresses", func(p *Pair) { p.Space = nil }, "address space"},
		{"an address space that has its guests here", func(p *Pair) { p.Space = append(p.Space, prefix("10.70.0.0/20")) }, "overlaps"},
		{"an address space that has ours there", func(p *Pair) { p.Space = append(p.Space, prefix("10.64.0.0/16")) }, "overlaps"},
		{"an address space that overlaps itself", func(p *Pair) { p.Space = append(p.Space, prefix("10.42.7.0/24")) }, "overlaps"},
		{"an address space of half the internet", func(p *Pair) { p.Space = append(p.Space, prefix("128.0.0.0/1")) }, "/12 to /28"},
		{"an address space of IPv6", func(p *Pair) { p.Space = append(p.Space, prefix("fd00::/64")) }, "IPv4"},
		{"too many ranges", func(p *Pair) { p.Space = make([]netip.Prefix, MaxSpace+1) }, "at most 160"},
		{"services that nobody can have", func(p *Pair) { p.Services = prefix("0.0.0.0/16") }, "services"},
		{"aliases in one range", func(p *Pair) { *p = translatedPair(); p.Aliases[1].Alias = prefix("10.71.5.0/24") }, "overlap"},
		{"an alias of another length", func(p *Pair) { *p = translatedPair(); p.Aliases[1].Alias = prefix("10.72.0.0/25") }, "length"},
		{"guests by another name than was agreed", func(p *Pair) { *p = translatedPair(); p.Guests.Alias = prefix("10.73.0.0/16") }, "are not those"},
	} {
		p := goodPair()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", c.what, err, c.says)
		}
	}
}

// TestHandles: both sides give the same ones; of two peers with ranges that do not overlap no two are the same, and no network has them.
func TestHandles(t *testing.T) {
	seen := map[netip.Addr]Pair{}
	for _, p := range []Pair{
		goodPair(), {Here: netip.MustParsePrefix("10.70.1.0/24"), There: netip.MustParsePrefix("10.64.4.0/28")}, {Here: netip.MustParsePrefix("10.70.2.0/24")},
		{There: netip.MustParsePrefix("10.64.4.16/28")}, {There: netip.MustParsePrefix("198.18.0.0/24")}, {There: netip.MustParsePrefix("192.168.0.0/16")},
	} {
		back := Pair{Here: p.There, There: p.Here}
		if p.Handle() != back.Called() || p.Called() != back.Handle() || !netip.MustParsePrefix("240.0.0.0/4").Contains(p.Handle()) {
			t.Errorf("%+v: %s and %s, there %s and %s", p, p.Handle(), p.Called(), back.Handle(), back.Called())
		}
		if other, twice := seen[p.Handle()]; twice {
			t.Errorf("%s is %+v and %+v", p.Handle(), p, other)
		}
		seen[p.Handle()] = p
	}
	if h := (Pair{}).Handle(); h.IsValid() {
		t.Errorf("a peer with nothing is called %s", h)
	}
}

func TestRangesOfAPair(t *testing.T) {
	p := translatedPair()
	if got := p.Ranges(); !slices.Equal(got, []netip.Prefix{p.There, p.Here, p.Aliases[0].Alias, p.Aliases[1].Alias}) {
		t.Error(got)
	}
	if got := (Pair{Space: p.Space}).Ranges(); len(got) != 0 {
		t.Errorf("what the peer calls its own is taken from this host: %v", got)
	}
}

// FuzzPair: of whatever two clusters agreed on, as far as it is accepted, no address means two things to a guest, nothing is taken from the
// host that may be somebody's on the internet, and what is translated comes back.
func FuzzPair(f *testing.F) {
	seed := func(ps ...string) (b []byte) {
		for _, p := range prefixes(ps...) {
			b = append(binary.BigEndian.AppendUint32(b, Number(p.Addr())), byte(p.Bits()))
		}
		return b
	}
	f.Add(seed("10.64.3.0/24", "10.70.0.0/24", "10.42.0.0/16", "10.65.9.0/24"), uint32(0x0a2aff02), uint32(0x0a2a0005), false)
	f.Add(seed("10.64.3.0/24", "10.70.0.0/16", "10.42.0.0/16", "10.71.0.0/16"), uint32(0x0a2aff02), uint32(0x0a2a0005), true)
	f.Add(seed("192.168.0.0/16", "172.16.0.0/24", "128.0.0.0/12", "0.0.0.0/12"), uint32(0), uint32(0), false)
	f.Fuzz(func(t *testing.T, ranges []byte, home, n uint32, translated bool) {
		next := func() (p netip.Prefix) {
			if len(ranges) >= 5 {
				p, ranges = netip.PrefixFrom(addrOf(binary.BigEndian.Uint32(ranges)), int(ranges[4])%33), ranges[5:]
			}
			return p
		}
		p := Pair{There: next(), Here: next(), AtHome: addrOf(home)}
		if p.There.IsValid() {
			p.AtThere = GuestGateway(p.There)
		}
		for range 3 {
			r := next()
			if !r.IsValid() {
				continue
			}
			p.Space = append(p.Space, r)
			if alias := next(); translated {
				p.Aliases = append(p.Aliases, Mapping{"x", r, alias})
			}
		}
		if translated {
			p.Guests = Mapping{"guests", netip.PrefixFrom(usualPods.Addr(), p.Here.Bits()).Masked(), p.Here}
		}
		if p.Validate() != nil {
			return
		}
		a := addrOf(n)
		meanings := 0
		for _, r := range append([]netip.Prefix{p.There, p.Here}, p.Space...) {
			if r.Contains(a) {
				meanings++
			}
		}
		if meanings > 1 {
			t.Fatalf("%s means %d things in %+v", a, meanings, p)
		}
		for _, g := range []netip.Prefix{p.There, p.Here} {
			if g.IsValid() && (!Private(g) || g.Bits() < MinGuestBits || g.Contains(p.Handle())) {
				t.Fatalf("guests have %s", g)
			}
		}
		if !translated && p.Here.IsValid() && p.Here.Bits() > GuestBits {
			t.Fatalf("guests here have %s", p.Here)
		}
		for _, m := range append([]Mapping{p.Guests}, p.Aliases...) {
			there, ok := m.ToAlias(a)
			if ok != m.Real.Contains(a) || ok && !m.Alias.Contains(there) {
				t.Fatalf("%s of %v is %s, %v", a, m, there, ok)
			}
			if back, _ := m.ToReal(there); ok && back != a {
				t.Fatalf("%s came back as %s", a, back)
			}
		}
	})
}

// FuzzChoose: what is chosen is of the length asked for, in the pool, and free; and nothing is chosen only when nothing is free.
func FuzzChoose(f *testing.F) {
	f.Add([]byte{10, 64, 0, 0, 11, 10, 96, 0, 0, 12}, uint8(24), "alice")
	f.Add([]byte{10, 64, 0, 0, 10, 172, 16, 0, 0, 12, 100, 64, 0, 0, 10}, uint8(24), "bob")
	f.Add([]byte{10, 0, 0, 0, 8, 172, 17, 0, 0, 16}, uint8(16), "carol")
	f.Fuzz(func(t *testing.T, ranges []byte, length uint8, seed string) {
		bits := MinGuestBits + int(length)%(maxBits-MinGuestBits+1)
		var taken []netip.Prefix
		for ; len(ranges) >= 5 && len(taken) < 64; ranges = ranges[5:] {
			taken = append(taken, netip.PrefixFrom(addrOf(binary.BigEndian.Uint32(ranges)), int(ranges[4])%33).Masked())
		}
		got, err := Choose(bits, taken, DefaultPool(), seed)
		if err == nil && (got.Bits() != bits || CheckGuests(got) != nil || !Free(got, taken) || !Within(got, DefaultPool())) {
			t.Fatalf("%s beside %v", got, taken)
		}
		if err == nil {
			return
		}
		for _, block := range DefaultPool() {
			for a := block.Addr(); block.Contains(a); a = Last(netip.PrefixFrom(a, bits)).Next() {
				if p := netip.PrefixFrom(a, bits); Free(p, taken) {
					t.Fatalf("%s is free beside %v", p, taken)
				}
			}
		}
	})
}

func TestWithinAPool(t *testing.T) {
	for p, want := range map[string]bool{"10.64.0.0/24": true, "10.127.255.0/24": true, "10.128.0.0/24": false, "172.16.0.0/12": true, "172.16.0.0/11": false, "192.168.1.0/24": false, "100.64.0.0/24": true} {
		if got := Within(netip.MustParsePrefix(p), DefaultPool()); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
	if !Within(netip.MustParsePrefix("192.168.1.0/24"), prefixes("192.168.0.0/16")) || Within(netip.MustParsePrefix("10.64.0.0/24"), prefixes("192.168.0.0/16")) {
		t.Error("the owner's own pool does not count")
	}
}
