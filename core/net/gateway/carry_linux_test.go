package gateway

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// router is one that translates addresses, in front of laptops that all have such of the same private network.
type router struct {
	l      *lan
	ns     netns.NsHandle
	nl     *netlink.Handle
	bridge netlink.Link
}

// router puts one on the LAN. How it takes ports is said as nftables says it: nothing keeps those that are free, random and fully-random take any.
func (l *lan) router(number int, ports string) *router {
	l.t.Helper()
	r := &router{l: l}
	r.ns, r.nl = newNS(l.t)
	name := fmt.Sprintf("to%d", number)
	connect(l.t, l.nl, name, r.nl, r.ns, "wan", 1500)
	must(l.t, l.nl.LinkSetMaster(link(l.t, l.nl, name), l.bridge))
	address(l.t, r.nl, "wan", fmt.Sprintf("172.31.0.%d/24", number))
	must(l.t, r.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lan"}}))
	r.bridge = link(l.t, r.nl, "lan")
	address(l.t, r.nl, "lan", "192.168.77.1/24")
	r.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.lan.proxy_arp=1")
	r.nft("add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post oifname wan meta l4proto { tcp, udp } masquerade " + ports +
		"; add table ip filter; add chain ip filter forward { type filter hook forward priority 0; }; add rule ip filter forward iifname wan ct state new drop" +
		"; add chain ip filter input { type filter hook input priority 0; }; add rule ip filter input iifname wan ct state new drop") // dropped, it holds no port
	return r
}

func (r *router) nft(rules string) { r.l.t.Helper(); r.run("nft", rules) }

func (r *router) run(program string, args ...string) {
	r.l.t.Helper()
	run(r.l.t, r.ns, program, args...)
}

func run(t testing.TB, ns netns.NsHandle, program string, args ...string) {
	t.Helper()
	inside(t, ns, func() {
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
		}
	})
}

// laptop is one behind the router.
func (r *router) laptop(name string, number int) *laptop {
	r.l.t.Helper()
	p := r.l.host(name, number)
	connect(r.l.t, r.nl, fmt.Sprintf("to%d", number), p.hostNL, p.host, "u0", 1500)
	must(r.l.t, r.nl.LinkSetMaster(link(r.l.t, r.nl, fmt.Sprintf("to%d", number)), r.bridge))
	address(r.l.t, p.hostNL, "u0", fmt.Sprintf("192.168.77.%d/24", number))
	must(r.l.t, p.hostNL.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 77, 1)}))
	// The network in front of the router is one of its own, by proxy ARP: its addresses are private, and would not be tried.
	_, wan, _ := net.ParseCIDR("172.31.0.0/24")
	must(r.l.t, p.hostNL.RouteAdd(&netlink.Route{LinkIndex: link(r.l.t, p.hostNL, "u0").Attrs().Index, Dst: wan, Scope: netlink.SCOPE_LINK}))
	p.start()
	return p
}

// relay passes one connection on between two that dial, at a laptop that both reach.
func (p *laptop) relay() (at string) {
	p.t.Helper()
	var socket net.Listener
	p.inHost(func() {
		var err error
		socket, err = net.Listen("tcp4", p.address().String()+":0")
		must(p.t, err)
	})
	p.t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			a, err := socket.Accept()
			if err != nil {
				return
			}
			b, err := socket.Accept()
			if err != nil {
				a.Close()
				return
			}
			if p.tls != "" {
				a, b = secured(a, true), secured(b, true)
			}
			for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
				go func() {
					io.Copy(way[0], way[1])
					way[0].Close()
				}()
			}
		}
	}()
	return socket.Addr().String()
}

// seenAt is where carol sees the WireGuard of a laptop.
func (p *laptop) seenAt(by *laptop) []netip.AddrPort {
	p.t.Helper()
	by.hasStats(p.name, func(s Stats) bool { return s.Up && s.Endpoint.IsValid() })
	return []netip.AddrPort{by.do(order{Do: "stats"}).Stats[p.name].Endpoint}
}

// unlocated is a peer whose endpoint is not known.
func unlocated(p Peer) Peer {
	p.Endpoint = netip.AddrPort{}
	return p
}

// behind are alice and bob, who reach carol and neither the other, with a connection that carol passes on.
func behind(t testing.TB, alice, bob, carol *laptop) {
	t.Helper()
	for _, p := range []struct {
		*laptop
		guests string
	}{{alice, "10.66.0.0/24"}, {bob, "10.67.0.0/24"}} {
		carol.do(order{Do: "set", Peer: unlocated(p.consumer(carol, p.guests))})
		p.do(order{Do: "set", Peer: carol.provider(p.laptop, p.guests)})
	}
	bob.do(order{Do: "set", Peer: unlocated(alice.consumer(bob, "10.65.0.0/24"))})
	alice.do(order{Do: "set", Peer: unlocated(bob.provider(alice, "10.65.0.0/24"))})
	at := carol.relay()
	alice.do(order{Do: "carry", ID: "bob", At: at, Seen: alice.seenAt(carol), Mapped: alice.mapped, TLS: alice.tls})
	bob.do(order{Do: "carry", ID: "alice", At: at, Seen: bob.seenAt(carol), Mapped: bob.mapped, TLS: bob.tls})
	if alice.do(order{Do: "rtt", ID: "bob"}).RTT <= 0 {
		t.Fatal("no round trip")
	}
}

// TestPacketsAreCarriedAgainWhenUDPIsShut: within seconds, and by UDP when it is open again.
func TestPacketsAreCarriedAgainWhenUDPIsShut(t *testing.T) {
	l := newLAN(t)
	carol := l.laptop("carol", 3)
	first, second := l.router(21, ""), l.router(22, "")
	alice, bob := first.laptop("alice", 11), second.laptop("bob", 12)
	behind(t, alice, bob, carol)
	byUDP := func(s Stats) bool { return s.Up && !s.Carried }
	alice.hasStats("bob", byUDP)
	bob.hasStats("alice", byUDP)
	guest := bob.guest("10.65.0.5")
	alice.serveUDP(90)
	stream := guest.beat("10.42.0.5:90")
	stream.goesOn()
	first.nft("insert rule ip filter forward ip protocol udp drop")
	for before, began := stream.sent.Load(), time.Now(); stream.heard.Load() <= before+50; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("the stream stands still")
		}
	}
	alice.hasStats("bob", func(s Stats) bool { return s.Up && s.Carried })
	first.nft("flush chain ip filter forward")
	alice.hasStats("bob", byUDP)
	bob.hasStats("alice", byUDP)
}

// TestAnotherPortIsSaidWhenItCounts at a peer, which takes the next frame half a minute after the one before came, however long that was on its way.
func TestAnotherPortIsSaidWhenItCounts(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go io.Copy(io.Discard, there)
	mapped := netip.MustParseAddrPort("203.0.113.7:1")
	c := &carrier{conn: here, Carriage: Carriage{Mapped: func() netip.AddrPort { return mapped }}}
	began := time.Now()
	for _, after := range []time.Duration{0, time.Second, toldEvery, toldEvery + sayTimeout} {
		if err := c.say(began.Add(after)); err != nil || !c.saidAt.Equal(began) {
			t.Errorf("after %s it was said after %s (%v)", after, c.saidAt.Sub(began), err)
		}
		mapped = netip.MustParseAddrPort("203.0.113.7:2")
	}
	if err := c.say(began.Add(sayEvery)); err != nil || c.said != mapped {
		t.Errorf("in the end it is not said: %v", err)
	}
}
