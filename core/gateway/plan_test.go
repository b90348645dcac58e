package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(ss ...string) (out []netip.Prefix) {
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestChooseAlias(t *testing.T) {
	for _, c := range []struct {
		name, real  string
		taken, pool []netip.Prefix
		want        string // a range, or "in " and a block
	}{
		{"free, but not of the pool", "10.42.0.0/16", prefixes("192.168.1.0/24"), nil, "in 10.64.0.0/10"},
		{"free in the pool", "10.66.0.0/16", prefixes("192.168.1.0/24"), nil, "10.66.0.0/16"},
		{"in the pool, but a VPN leads there", "10.66.0.0/16", prefixes("10.66.3.0/24"), nil, "in 10.64.0.0/10"},
		{"an office behind the router, of which no route tells", "172.16.0.0/12", nil, nil, "in 10.64.0.0/10"},
		{"that office, when the first block is full", "172.20.0.0/16", prefixes("10.64.0.0/10"), nil, "172.20.0.0/16"},
		{"of the owner's own pool", "10.244.0.0/16", nil, prefixes("10.240.0.0/12"), "10.244.0.0/16"},
		{"the usual overlap", "10.42.0.0/16", prefixes("10.42.0.0/16"), nil, "in 10.64.0.0/10"},
		{"part of it in use", "10.42.0.0/16", prefixes("10.42.7.0/24"), nil, "in 10.64.0.0/10"},
		{"a /20", "10.42.16.0/20", prefixes("10.42.0.0/16"), nil, "in 10.64.0.0/10"},
		{"a LAN takes 10/8", "10.42.0.0/16", prefixes("10.0.0.0/8"), nil, "in 172.16.0.0/12"},
		{"and docker the next", "10.42.0.0/16", prefixes("10.0.0.0/8", "172.16.0.0/12"), nil, "in 100.64.0.0/10"},
		{"a /12 has place", "10.0.0.0/12", prefixes("10.1.0.0/16"), nil, "in 10.64.0.0/10"},
		{"an /11 is too much", "10.0.0.0/11", nil, nil, ""},
		{"only one is free", "10.42.0.0/16", prefixes("10.42.0.0/16", "10.64.0.0/12", "10.80.0.0/13", "10.89.0.0/16", "10.90.0.0/15", "10.92.0.0/14", "10.96.0.0/11"), prefixes("10.64.0.0/10"), "10.88.0.0/16"},
		{"nothing is free", "10.42.0.0/16", prefixes("10.42.0.0/16", "10.64.0.0/10"), prefixes("10.64.0.0/10"), ""},
		{"a range of the internet", "140.82.0.0/16", nil, nil, "in 10.64.0.0/10"},
		{"loopback", "127.0.0.0/8", nil, nil, ""},
		{"link-local", "169.254.0.0/16", nil, nil, ""},
		{"multicast", "239.0.0.0/8", nil, nil, ""},
		{"everything", "0.0.0.0/0", nil, nil, ""},
		{"too long", "10.42.0.0/29", nil, nil, ""},
		{"with host bits", "10.42.0.1/16", nil, nil, ""},
		{"ipv6", "fd00::/64", nil, nil, ""},
		{"a pool that is all taken but for /28s", "10.42.0.0/28", prefixes("10.42.0.0/16", "10.64.0.0/11", "10.96.0.0/28"), nil, "in 10.96.0.0/11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			real := netip.MustParsePrefix(c.real)
			for i := range 50 {
				seed := fmt.Sprint("peer", i)
				got, err := ChooseAlias(real, c.taken, c.pool, seed)
				if c.want == "" {
					if err == nil {
						t.Fatalf("got %s", got)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if again, _ := ChooseAlias(real, c.taken, c.pool, seed); again != got {
					t.Fatalf("%s, then %s", got, again)
				}
				block, within := strings.CutPrefix(c.want, "in ")
				if !within && got.String() != c.want || within && !netip.MustParsePrefix(block).Contains(got.Addr()) {
					t.Fatalf("got %s, want %s", got, c.want)
				}
				if got.Bits() != real.Bits() || got != got.Masked() || !free(got, c.taken) {
					t.Fatalf("got %s", got)
				}
			}
		})
	}
}

func TestManyPeersGetDifferentAliases(t *testing.T) {
	taken := prefixes("10.42.0.0/16", "10.43.0.0/16", "192.168.1.0/24")
	starts := map[netip.Prefix]int{}
	for i := range 64 {
		alone, err := ChooseAlias(pods, taken[:3], nil, fmt.Sprintf("peer-%d/pods", i))
		if err != nil {
			t.Fatal(err)
		}
		starts[alone]++
		p, err := ChooseAlias(pods, taken, prefixes("10.64.0.0/10"), fmt.Sprintf("peer-%d/pods", i))
		if err != nil {
			t.Fatalf("peer %d of 64: %v", i, err)
		}
		taken = append(taken, p)
	}
	if len(starts) < 30 {
		t.Errorf("64 peers begin at only %d places", len(starts))
	}
	if _, err := ChooseAlias(pods, taken, prefixes("10.64.0.0/10"), "one more"); err == nil {
		t.Error("the 65th found a place")
	}
}

func TestMapping(t *testing.T) {
	m := testMapping("10.43.32.0/20", "172.20.16.0/20")
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
	p := testPeer("bob", testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"), m, m)
	if got, ok := p.Translate(netip.MustParseAddr("10.43.32.9")); !ok || got.String() != "172.20.16.9" {
		t.Errorf("Translate: %s, %v", got, ok)
	}
	if got, ok := p.TranslateOurs(podAddr); !ok || got.String() != "10.70.0.5" {
		t.Errorf("TranslateOurs: %s, %v", got, ok)
	}
	if _, ok := p.Translate(netip.Addr{}); ok {
		t.Error("no address was translated")
	}
	if _, ok := (Mapping{}).ToAlias(podAddr); ok {
		t.Error("an empty mapping translates")
	}
}

func TestPeerValidation(t *testing.T) {
	good := func() Peer {
		return testPeer("bob", testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"))
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Peer){
		"no ID":              func(p *Peer) { p.ID = "" },
		"no WireGuard key":   func(p *Peer) { p.PublicKey = Key{} },
		"no endpoint":        func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("0.0.0.0:6450") },
		"link-local":         func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("[fe80::1%eth0]:6450") },
		"keepalive":          func(p *Peer) { p.Keepalive = -1 },
		"gateway address":    func(p *Peer) { p.Gateway = netip.MustParseAddr("::1") },
		"has no name":        func(p *Peer) { p.Theirs[0].Name = "" },
		"differ in length":   func(p *Peer) { p.Theirs[0].Alias = netip.MustParsePrefix("10.65.0.0/17") },
		"no range given":     func(p *Peer) { p.Ours[0].Real, p.Ours[0].Alias = netip.Prefix{}, netip.Prefix{} },
		"not IPv4":           func(p *Peer) { p.Theirs[0] = testMapping("fd00::/16", "fd01::/16") },
		"host bits":          func(p *Peer) { p.Theirs[0].Alias = netip.MustParsePrefix("10.65.0.1/16") },
		"which no cluster":   func(p *Peer) { p.Theirs[0].Real = netip.MustParsePrefix("127.0.0.0/16") },
		"8.8.0.0/16 is not":  func(p *Peer) { p.Theirs[0].Alias = netip.MustParsePrefix("8.8.0.0/16") },
		"8.9.0.0/16 is not":  func(p *Peer) { p.Ours[0].Alias = netip.MustParsePrefix("8.9.0.0/16") },
		"must be /12 to /28": func(p *Peer) { p.Theirs[0] = testMapping("0.0.0.0/0", "0.0.0.0/0") },
		"overlaps our":       func(p *Peer) { p.Theirs[0].Alias = netip.MustParsePrefix("10.42.0.0/16") },
		"its ranges":         func(p *Peer) { p.Theirs = append(p.Theirs, testMapping("10.42.3.0/24", "10.90.0.0/24")) },
		"our ranges":         func(p *Peer) { p.Ours = append(p.Ours, testMapping("10.99.0.0/24", "10.70.3.0/24")) },
		"more than 16":       func(p *Peer) { p.Ours = make([]Mapping, 17) },
	} {
		p := good()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestNameservers(t *testing.T) {
	got := nameservers([]byte("# x\nnameserver 10.1.1.1\nnameserver 127.0.0.53\nsearch a b\nnameserver\nnameserver fd00::1 # y\nnameserver nonsense\n"))
	if fmt.Sprint(got) != "[10.1.1.1 fd00::1]" {
		t.Error(got)
	}
}

func TestLocalRangesHoldLoopback(t *testing.T) {
	got, err := LocalRanges("kith-none")
	if err != nil {
		t.Fatal(err)
	}
	if free(netip.MustParsePrefix("127.0.0.1/32"), got) {
		t.Errorf("127.0.0.1 is missing in %v", got)
	}
	for _, p := range got {
		if p.Bits() == 0 {
			t.Error("the default route takes everything")
		}
	}
}
