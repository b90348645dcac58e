package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// way is the device by which a host sends to an address, "" when it cannot.
func (p *laptop) way(to string) string {
	p.t.Helper()
	routes, err := p.hostNL.RouteGet(net.ParseIP(to))
	if err != nil || len(routes) == 0 {
		return ""
	}
	l, err := p.hostNL.LinkByIndex(routes[0].LinkIndex)
	must(p.t, err)
	return l.Attrs().Name
}

// goes waits until what a host sends to an address goes by a device.
func (p *laptop) goes(to, dev string) {
	p.t.Helper()
	for range 100 {
		if p.way(to) == dev {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Errorf("%s sends to %s by %q, want %q", p.name, to, p.way(to), dev)
}

// TestNetworkOfAnAliasIsNotDrawnIntoTheTunnel: alice comes to networks whose addresses she uses for bob's pods. What she
// sends there herself must not come to bob, what her pods send must; whoever chooses ranges hears of it, and with another all is well.
func TestNetworkOfAnAliasIsNotDrawnIntoTheTunnel(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveTCP(80, whoCalls)
	alice.goes("10.65.0.9", "kith0")
	u0 := link(t, alice.hostNL, "u0")
	wide := &netlink.Route{LinkIndex: u0.Attrs().Index, Dst: hostnet.IPNet(netip.MustParsePrefix("10.64.0.0/11")), Gw: net.IPv4(172, 31, 0, 254)}
	for _, one := range []struct {
		what        string
		come, leave func() error
	}{
		{"a LAN", func() error { return alice.hostNL.AddrAdd(u0, parseAddr(t, "10.65.0.200/16")) }, func() error { return alice.hostNL.AddrDel(u0, parseAddr(t, "10.65.0.200/16")) }},
		{"a VPN's route, wider than the alias", func() error { return alice.hostNL.RouteAdd(wide) }, func() error { return alice.hostNL.RouteDel(wide) }},
	} {
		must(t, one.come())
		if laps := alice.do(order{Do: "overlaps", ID: "bob"}).Laps; fmt.Sprint(laps) != "[10.65.0.0/24]" {
			t.Errorf("%s: %v overlap", one.what, laps)
		}
		alice.goes("10.65.0.9", "u0")
		if got := alice.ask("10.65.0.5:80"); got != "10.42.0.5" {
			t.Errorf("%s: of what alice's pods send bob saw %q", one.what, got)
		}
		if a := alice.try(order{Do: "rtt", ID: "bob"}); a.Err != "" {
			t.Errorf("%s: the tunnel does not answer: %s", one.what, a.Err)
		}
		if taken := alice.do(order{Do: "taken", ID: "bob"}).Taken; netplan.Free(netip.MustParsePrefix("10.65.0.0/24"), taken) {
			t.Errorf("%s: 10.65.0.0/24 would be chosen again", one.what)
		}
		must(t, one.leave())
		alice.goes("10.65.0.9", "kith0")
	}

	must(t, alice.hostNL.RouteAdd(wide))
	alice.goes("10.65.0.9", "u0")
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.99.0.0/24")})
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.99.0.0/24")})
	alice.goes("10.65.0.9", "u0")
	another := bob.guest("10.99.0.5")
	another.serveTCP(80, whoCalls)
	if got := alice.ask("10.99.0.5:80"); got != "10.42.0.5" {
		t.Errorf("by the new alias bob saw %q", got)
	}
}

// TestDefaultRouteInHalvesLeavesAliasesAlone: a VPN that takes all traffic leads nowhere in particular.
func TestDefaultRouteInHalvesLeavesAliasesAlone(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveTCP(80, whoCalls)
	u0 := link(t, alice.hostNL, "u0")
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		must(t, alice.hostNL.RouteAdd(&netlink.Route{LinkIndex: u0.Attrs().Index, Dst: hostnet.IPNet(netip.MustParsePrefix(half)), Gw: net.IPv4(172, 31, 0, 254)}))
	}
	if taken := alice.do(order{Do: "taken", ID: "bob"}).Taken; !netplan.Free(netip.MustParsePrefix("10.65.0.0/24"), taken) {
		t.Errorf("bob could not be seen at 10.65.0.0/24: %v is taken", taken)
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")}) // looks at the routes
	alice.goes("10.65.0.9", "kith0")
	if got := alice.ask("10.65.0.5:80"); got != "10.42.0.5" {
		t.Errorf("bob saw %q", got)
	}
}

// TestEndpointInsideAnAliasIsTold, for bob may be seen by another; until he is, all goes on (TestEndpointInsideAnAlias).
func TestEndpointInsideAnAliasIsTold(t *testing.T) {
	alice, bob, _ := routed(t)
	meet(alice, bob, "192.168.0.0/16")
	if laps := alice.do(order{Do: "overlaps", ID: "bob"}).Laps; fmt.Sprint(laps) != "[192.168.0.0/16]" {
		t.Errorf("%v overlap", laps)
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
	alice.goes("192.168.9.2", "u0")
	if out := alice.ours(); strings.Contains(strings.Join(out, " "), "192.168") {
		t.Errorf("routes of the old alias stay: %v", out)
	}
}

// TestNobodyDrawsAnothersPacketsOutOfTheTunnel: WireGuard takes the address that a peer's packets come from for its endpoint,
// and on a LAN one can write any there. Mallory writes that of a pod of bob's: what alice sends to it still goes to bob alone.
func TestNobodyDrawsAnothersPacketsOutOfTheTunnel(t *testing.T) {
	l := newLAN(t)
	alice, bob, mallory := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("mallory", 3)
	guest := meet(alice, bob, "10.65.0.0/24")
	meet(alice, mallory, "10.66.0.0/24")
	u0 := link(t, mallory.hostNL, "u0")
	must(t, mallory.hostNL.AddrDel(u0, parseAddr(t, "172.31.0.3/24")))
	must(t, mallory.hostNL.AddrAdd(u0, parseAddr(t, "10.65.0.5/32")))
	must(t, mallory.hostNL.RouteAdd(&netlink.Route{LinkIndex: u0.Attrs().Index, Dst: hostnet.IPNet(netip.MustParsePrefix("172.31.0.0/24")), Scope: netlink.SCOPE_LINK}))
	for start := time.Now(); alice.do(order{Do: "stats"}).Stats["mallory"].Endpoint.Addr().String() != "10.65.0.5"; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("alice does not hear mallory from there")
		}
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")}) // looks at the routes
	if way := alice.way("10.65.0.5"); way != "kith0" {
		t.Errorf("what alice sends to bob's pod goes by %s", way)
	}
	guest.serveTCP(80, whoCalls)
	if got := alice.ask("10.65.0.5:80"); got != "10.42.0.5" {
		t.Errorf("bob saw %q", got)
	}
}

// TestAHomesRangeThatThisNetworkHas: who comes by way of a peer has its routes as a tenant; to this host, and to this cluster's own pods, the addresses are
// those of the network that it came to.
func TestAHomesRangeThatThisNetworkHas(t *testing.T) {
	network := netip.MustParsePrefix("10.127.0.0/24")
	home := netplan.Onward{ID: "alice", Network: network, Guests: netplan.RelayedPart(network, 0), Space: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}
	g := &Gateway{cfg: Config{Pods: netip.MustParsePrefix("10.42.0.0/16")}, peers: map[string]*route{"bob": {Peer: Peer{ID: "bob", Pair: netplan.Pair{There: netip.MustParsePrefix("10.128.0.0/24"), Onward: []netplan.Onward{home}}}, mtu: 1400}}}
	for _, c := range []struct {
		inUse  string
		routes bool
	}{{"192.168.1.0/24", true}, {"10.127.0.0/16", false}, {"10.127.0.128/25", false}} {
		into, _, tenants := g.wantedRoutes(nil, []netip.Prefix{netip.MustParsePrefix(c.inUse)})
		routes := slices.ContainsFunc(into, func(r noderoute.Route) bool { return r.To == network })
		if routes != c.routes || len(tenants) != 1 || tenants[0].From != network || len(tenants[0].To) != 1 {
			t.Errorf("beside %s: %+v, %+v", c.inUse, into, tenants)
		}
	}
}
