package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"kith.dev/core/netplan"
)

func testMapping(real, alias string) netplan.Mapping {
	return netplan.Mapping{Name: real, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

func testPeer(id string, theirs, ours netplan.Mapping) Peer {
	return Peer{ID: id, Name: id, PublicKey: Key{byte(len(id)), id[0]}, Pair: netplan.Pair{Theirs: []netplan.Mapping{theirs}, Ours: []netplan.Mapping{ours}}}
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
		"more than 16":       func(p *Peer) { p.Ours = make([]netplan.Mapping, 17) },
	} {
		p := good()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestGatewayOfAPeerFollowsFromItsRange: what is sent to it is answered also by a peer whose range is another than ours.
func TestGatewayOfAPeerFollowsFromItsRange(t *testing.T) {
	for _, c := range []struct{ name, real, alias, want string }{
		{"pods", "10.42.0.0/16", "10.65.0.0/16", "10.65.255.2"},
		{"pods", "10.244.0.0/16", "10.66.0.0/16", "10.66.255.2"},
		{"pods", "192.168.16.0/20", "10.67.16.0/20", "10.67.31.2"},
		{"services", "10.43.0.0/16", "10.68.0.0/16", ""},
	} {
		p := Peer{Pair: netplan.Pair{Theirs: []netplan.Mapping{{Name: c.name, Real: netip.MustParsePrefix(c.real), Alias: netip.MustParsePrefix(c.alias)}}}}
		if got, ok := p.gateway(); ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s %s: %s, want %q", c.name, c.real, got, c.want)
		}
	}
}
