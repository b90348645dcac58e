package netplan

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestARangeWithoutParts(t *testing.T) {
	p := netip.MustParsePrefix("198.18.5.0/24")
	for want, parts := range map[string][]netip.Prefix{
		"[198.18.5.0/24]": {netip.MustParsePrefix("198.18.6.0/24")},
		"[198.18.5.0/26 198.18.5.96/27 198.18.5.128/25]": {RelayedPart(p, 0)},
		"[198.18.5.0/26 198.18.5.128/25]":                {RelayedPart(p, 0), RelayedPart(p, 1)},
		"[]":                                             {netip.MustParsePrefix("198.18.0.0/16")},
	} {
		if got := fmt.Sprint(Without(p, parts...)); got != want {
			t.Errorf("%s less %v is %s, want %s", p, parts, got, want)
		}
	}
}

// TestWhatGoesOnIsBounded: of homes whose guests come by way of a peer, the peer says what it likes.
func TestWhatGoesOnIsBounded(t *testing.T) {
	here, network := netip.MustParsePrefix("198.18.5.0/24"), netip.MustParsePrefix("198.19.7.0/24")
	pods := netip.MustParsePrefix("10.42.0.0/16")
	good := func() Pair {
		return Pair{Here: here, AtHome: netip.MustParseAddr("10.42.0.1"), Space: []netip.Prefix{pods},
			Relayed: []Relayed{{"c", RelayedPart(here, 0)}, {"d", RelayedPart(here, 1)}},
			Onward:  []Onward{{ID: "a", Network: network, Guests: RelayedPart(network, 1), Space: []netip.Prefix{pods}}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Pair){
		"one part for two":       func(p *Pair) { p.Relayed[1].Guests = p.Relayed[0].Guests },
		"two parts for one":      func(p *Pair) { p.Relayed[1].ID = "c" },
		"another's part":         func(p *Pair) { p.Relayed[0].Guests = RelayedPart(network, 0) },
		"half of the range":      func(p *Pair) { p.Relayed[0].Guests = netip.MustParsePrefix("198.18.5.0/25") },
		"too many":               func(p *Pair) { p.Relayed = append(p.Relayed, Relayed{"e", netip.MustParsePrefix("198.18.5.32/27")}) },
		"the pair's own range":   func(p *Pair) { p.Onward[0].Network, p.Onward[0].Guests = here, RelayedPart(here, 1) },
		"public addresses":       func(p *Pair) { p.Onward[0].Network = netip.MustParsePrefix("8.8.8.0/24") },
		"no range":               func(p *Pair) { p.Onward[0].Network = netip.Prefix{} },
		"a part of another":      func(p *Pair) { p.Onward[0].Guests = RelayedPart(here, 1) },
		"the whole":              func(p *Pair) { p.Onward[0].Guests = network },
		"a home without pods":    func(p *Pair) { p.Onward[0].Space = nil },
		"guests among its pods":  func(p *Pair) { p.Onward[0].Space = []netip.Prefix{netip.MustParsePrefix("198.19.0.0/16")} },
		"pods of all the world":  func(p *Pair) { p.Onward[0].Space = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} },
		"twice":                  func(p *Pair) { p.Onward = append(p.Onward, p.Onward[0]) },
		"two homes in one range": func(p *Pair) { p.Onward = append(p.Onward, p.Onward[0]); p.Onward[1].ID = "b" },
		"nobody's":               func(p *Pair) { p.Onward[0].ID = "" },
		"under an alias": func(p *Pair) {
			p.Aliases = []Mapping{{Name: "pods", Real: pods, Alias: netip.MustParsePrefix("198.19.0.0/16")}}
		},
		"too many homes": func(p *Pair) {
			for i := range MaxOnward {
				n := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(20 + i), 0}), 24)
				p.Onward = append(p.Onward, Onward{ID: fmt.Sprint(i), Network: n, Guests: RelayedPart(n, 0), Space: []netip.Prefix{pods}})
			}
		},
		"too large a space": func(p *Pair) {
			for i := range MaxOnwardSpace {
				p.Onward[0].Space = append(p.Onward[0].Space, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(20 + i), 0}), 24))
			}
		},
	} {
		p := good()
		if change(&p); p.Validate() == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}
