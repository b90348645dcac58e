package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// before is what is in front of a laptop, in the words of docs/discovery.md.
type before string

const (
	firewall  before = "a firewall"            // it has an address of the LAN, and lets nobody begin
	keepsPort before = "a router, keeps ports" // the port of a connection follows from the sender alone
	mapsPort  before = "a router, maps a port" // and lets in what comes to the port that it was asked for
	anyPort   before = "a router, any port"    // the port of each connection is another one
	sameOne   before = "the same router"
	wayAndWhy        = "| %s | %s | `%s` | %s |"
)

// laptopBefore is one with a number and what is in front of it.
func (l *lan) laptopBefore(name string, number int, b before) *laptop {
	l.t.Helper()
	if b == firewall {
		p := l.laptop(name, number)
		run(l.t, p.host, "nft", "add table ip filter; add chain ip filter input { type filter hook input priority 0; }; add rule ip filter input iifname u0 ct state new drop")
		return p
	}
	ports := ""
	if b == anyPort {
		ports = "fully-random"
	}
	r := l.router(number+10, ports)
	p := r.laptop(name, number)
	p.behind = r
	if b == mapsPort {
		r.nft(fmt.Sprintf("add chain ip nat pre { type nat hook prerouting priority -100; }; add rule ip nat pre iifname wan udp dport 6450 dnat to 192.168.77.%d"+
			"; insert rule ip filter forward ct status dnat accept", number))
		p.mapped = netip.MustParseAddrPort(fmt.Sprintf("172.31.0.%d:6450", number+10))
	}
	return p
}

// TestTheWayByWhatIsInFront of two laptops that can dial a third one alone: by UDP where the ports of a connection follow from the sender, or a router maps
// one, and by the third elsewhere. The table in docs/discovery.md says the same.
func TestTheWayByWhatIsInFront(t *testing.T) {
	page, err := os.ReadFile("../../../docs/discovery.md")
	must(t, err)
	type pair struct {
		alice, bob before
		way        Way
		why        Reason
		laptops    [2]*laptop
	}
	pairs := []pair{
		{alice: firewall, bob: firewall, way: WayPunched},
		{alice: firewall, bob: keepsPort, way: WayPunched},
		{alice: firewall, bob: mapsPort, way: WayMapped},
		{alice: firewall, bob: anyPort, way: WayCarried, why: ReasonNoAnswer},
		{alice: keepsPort, bob: keepsPort, way: WayPunched},
		{alice: keepsPort, bob: mapsPort, way: WayMapped},
		{alice: keepsPort, bob: anyPort, way: WayCarried, why: ReasonNoAnswer},
		{alice: mapsPort, bob: mapsPort, way: WayMapped},
		{alice: mapsPort, bob: anyPort, way: WayMapped},
		{alice: anyPort, bob: anyPort, way: WayCarried, why: ReasonNoAnswer},
		{alice: keepsPort, bob: sameOne, way: WayCarried, why: ReasonSameRouter},
	}
	for i, c := range pairs { // all of them at once: what takes long is to wait
		l := newLAN(t)
		carol := l.laptop("carol", 3)
		alice := l.laptopBefore("alice", 11, c.alice)
		var bob *laptop
		if c.bob == sameOne {
			bob = alice.behind.laptop("bob", 12)
		} else {
			bob = l.laptopBefore("bob", 12, c.bob)
		}
		behind(t, alice, bob, carol)
		pairs[i].laptops = [2]*laptop{alice, bob}
	}
	time.Sleep(trying)
	for _, c := range pairs {
		row := fmt.Sprintf(wayAndWhy, c.alice, c.bob, c.way, strings.TrimSpace("`"+string(c.why)+"`"))
		if c.why == "" {
			row = fmt.Sprintf(wayAndWhy, c.alice, c.bob, c.way, "")
		}
		t.Log(row)
		for k, p := range c.laptops {
			other := c.laptops[1-k].name
			p.hasStats(other, func(s Stats) bool {
				return s.Up && s.Carrier && s.Way == c.way && s.Reason == c.why && s.Carried == (s.By == "carol")
			})
		}
		if !strings.Contains(string(page), strings.ReplaceAll(row, "|  |", "| |")) {
			t.Errorf("docs/discovery.md does not have the row %s", row)
		}
	}
}
