package gateway

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"kith.dev/core/net/netplan"
)

func testPeer(id, there string) Peer {
	p := netip.MustParsePrefix(there)
	return Peer{ID: id, Name: id, PublicKey: Key{byte(len(id)), id[0]}, Pair: netplan.Pair{There: p, AtThere: netplan.GuestGateway(p)}}
}

func TestPeerValidation(t *testing.T) {
	good := func() Peer { return testPeer("bob", "10.65.0.0/24") }
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"192.0.2.7:6450", "169.254.7.7:6450", "[2001:db8::1]:6450", "[fd00::1]:6450", "[fe80::1%eth0]:6450"} {
		p := good()
		if p.Endpoint = netip.MustParseAddrPort(at); p.Validate() != nil {
			t.Errorf("%s: %v", at, p.Validate())
		}
	}
	for want, change := range map[string]func(*Peer){
		"no ID":            func(p *Peer) { p.ID = "" },
		"no WireGuard key": func(p *Peer) { p.PublicKey = Key{} },
		"no endpoint":      func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("0.0.0.0:6450") },
		"link-local":       func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("[fe80::1]:6450") },
		"and no other has": func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("[2001:db8::1%eth0]:6450") },
		"neither side":     func(p *Peer) { p.Pair = netplan.Pair{} },
	} {
		p := good()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// What is set again as it was has no routes looked through: each peer of a hub is set anew when its address space changes, and most are as they were.
func TestAPeerThatIsTheSameChangesNothing(t *testing.T) {
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Device: "kith0", Address: netip.MustParseAddr("10.42.255.2"), ListenPort: 6450, PrivateKey: key, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	set := func(p Peer) (changed bool) {
		t.Helper()
		before := g.table.Load()
		if err := g.SetPeer(p); err != nil {
			t.Fatal(err)
		}
		return g.table.Load() != before
	}
	bob := testPeer("bob", "10.65.0.0/24")
	for range 2 {
		if !set(bob) {
			t.Error("while there is no device, nothing of it is done")
		}
	}
	g.peers["bob"].whole = true
	if set(bob) {
		t.Error("it was set anew")
	}
	bob.Space = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	bob.Here, bob.AtHome = netip.MustParsePrefix("10.66.0.0/24"), netip.MustParseAddr("10.42.255.2")
	if !set(bob) || g.peers["bob"].whole {
		t.Error("its address space was not")
	}
}

func TestEchoGoesToWhoAnswers(t *testing.T) {
	self := netip.MustParseAddr("10.42.255.2")
	home := netplan.Pair{Here: netip.MustParsePrefix("10.65.0.0/24"), Space: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, AtHome: self}
	translated := home
	translated.Guests = netplan.Mapping{Name: "guests", Real: netip.MustParsePrefix("10.42.0.0/24"), Alias: home.Here}
	translated.Aliases = []netplan.Mapping{{Name: "pods", Real: home.Space[0], Alias: netip.MustParsePrefix("10.70.0.0/16")}}
	both := home
	both.There, both.AtThere = netip.MustParsePrefix("10.66.0.0/24"), netip.MustParseAddr("10.66.0.1")
	for _, c := range []struct {
		pair netplan.Pair
		want string
	}{
		{netplan.Pair{}, "[]"},
		{testPeer("bob", "10.65.0.0/24").Pair, "[{10.42.255.2 10.65.0.1}]"},
		{home, "[{10.65.0.1 10.42.255.2}]"},
		{both, "[{10.42.255.2 10.66.0.1} {10.65.0.1 10.42.255.2}]"},
		{translated, "[{10.42.255.2 10.70.255.2}]"},
	} {
		got := []string{}
		for _, w := range (Peer{Pair: c.pair}).ways(self) {
			got = append(got, fmt.Sprintf("{%s %s}", w.from, w.to))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: %s, want %s", c.pair, got, c.want)
		}
	}
}
