package gateway

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/test/pace"
)

// byItself is less than WireGuard waits before it tries again by itself (REKEY_TIMEOUT).
const byItself = 4 * time.Second

// beat sends datagrams from p to a server, one each 10 ms, until the test ends.
type beat struct {
	t        testing.TB
	sent     atomic.Int64 // each is as long as its number, from 1: that is what the server answers
	heard    atomic.Int64 // the highest that was answered
	received atomic.Int64 // how many did
}

func (p *end) beat(to string) *beat {
	p.t.Helper()
	c, b := p.udp(to), &beat{t: p.t}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	p.t.Cleanup(func() {
		close(stop)
		c.SetReadDeadline(time.Now())
		wg.Wait()
	})
	wg.Go(func() {
		for packet := make([]byte, 100); ; {
			n, err := c.Read(packet)
			if err != nil {
				select {
				case <-stop:
					return
				default:
					time.Sleep(time.Millisecond)
					continue
				}
			}
			length, _, _ := strings.Cut(string(packet[:n]), " ")
			number, _ := strconv.ParseInt(length, 10, 64)
			b.received.Add(1)
			b.heard.Store(max(b.heard.Load(), number))
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				c.Write(make([]byte, b.sent.Add(1)))
			}
		}
	})
	return b
}

// goesOn waits for an answer to what is sent from now on, and gives how many are missing of what was sent before.
func (b *beat) goesOn() (lost int64) {
	b.t.Helper()
	before, began := b.sent.Load(), time.Now()
	for b.heard.Load() <= before {
		if time.Since(began) > patience {
			b.t.Fatal("the stream stands still")
		}
		time.Sleep(time.Millisecond)
	}
	pace.Within(b.t, "an answer", time.Since(began), byItself)
	return max(0, before-b.received.Load())
}

// TestRoam moves alice to another address while only bob sends.
func TestRoam(t *testing.T) {
	alice, bob, guest := pair(t)
	alice.serveUDP(90)
	stream := guest.beat("10.42.0.5:90")
	stream.goesOn()
	u0 := link(t, alice.hostNL, "u0")
	must(t, alice.hostNL.AddrDel(u0, parseAddr(t, "172.31.0.1/24")))
	must(t, alice.hostNL.AddrAdd(u0, parseAddr(t, "172.31.0.101/24")))
	must(t, alice.hostNL.RouteAdd(&netlink.Route{Gw: net.IPv4(172, 31, 0, 254)}))
	stream.goesOn()
	if ep := bob.do(order{Do: "stats"}).Stats["alice"].Endpoint; ep.Addr().String() != "172.31.0.101" {
		t.Errorf("bob still sends to %s", ep)
	}
	// Saying again what was said does not bring the old address back.
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
	if ep := bob.do(order{Do: "stats"}).Stats["alice"].Endpoint; ep.Addr().String() != "172.31.0.101" {
		t.Errorf("SetPeer moved alice back to %s", ep)
	}
}

// TestRoamWhenTheFirstPacketsAreLost does so while nothing arrives at bob for a moment, as when a link just came up.
// Alice only answers, so unless she says again where she is, bob does not hear of it.
func TestRoamWhenTheFirstPacketsAreLost(t *testing.T) {
	alice, bob, guest := pair(t)
	alice.serveUDP(90)
	stream := guest.beat("10.42.0.5:90")
	stream.goesOn()
	nft, err := nftables.New(nftables.WithNetNSFd(int(bob.host)))
	must(t, err)
	table := nft.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "loss"})
	nft.AddChain(&nftables.Chain{
		Name: "all", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter, Policy: new(nftables.ChainPolicyDrop),
	})
	must(t, nft.Flush())
	u0 := link(t, alice.hostNL, "u0")
	must(t, alice.hostNL.AddrDel(u0, parseAddr(t, "172.31.0.1/24")))
	must(t, alice.hostNL.AddrAdd(u0, parseAddr(t, "172.31.0.101/24")))
	must(t, alice.hostNL.RouteAdd(&netlink.Route{Gw: net.IPv4(172, 31, 0, 254)}))
	time.Sleep(250 * time.Millisecond)
	nft.DelTable(table)
	must(t, nft.Flush())
	stream.goesOn()
}

// TestKilledGatewayComesBack kills -9 and goes on with the same TCP connection.
func TestKilledGatewayComesBack(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveTCP(84, func(c net.Conn) { io.Copy(c, c) })
	guest.serveUDP(90)
	c, err := alice.dial("10.65.0.5:84")
	must(t, err)
	say := func(s string) {
		t.Helper()
		b := make([]byte, len(s))
		_, err := io.WriteString(c, s)
		must(t, err)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
			t.Fatalf("echo %q, %v", b, err)
		}
	}
	say("before")
	stream := alice.beat("10.65.0.5:90")
	stream.goesOn()
	alice.kill()
	alice.start()
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	say("after")
	stream.goesOn()
}

func TestSettingAPeerAgainDisturbsNothing(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveUDP(90)
	stream := alice.beat("10.65.0.5:90")
	stream.goesOn()
	for range 50 {
		alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	}
	if lost := stream.goesOn(); lost > 0 {
		t.Errorf("%d packets were lost", lost)
	}
	s := alice.do(order{Do: "stats"}).Stats["bob"]
	if !s.Up || s.Sent == 0 || s.Received == 0 || s.Endpoint.String() != "172.31.0.2:6450" || time.Since(s.LastHandshake) > time.Minute {
		t.Errorf("stats: %+v", s)
	}
}

// TestPeerThatWaits: bob knows no endpoint of alice and is still reached, and answers.
func TestPeerThatWaits(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	p := alice.consumer(bob, "10.65.0.0/24")
	p.Endpoint = netip.AddrPort{}
	bob.do(order{Do: "set", Peer: p})
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	alice.do(order{Do: "rtt", ID: "bob"})
	if s := bob.do(order{Do: "stats"}).Stats["alice"]; !s.Up || s.Endpoint.Addr() != alice.address() {
		t.Errorf("bob: %+v", s)
	}
}

// TestPeerSetAgainIsGreetedAtOnce: no packet of a pod is needed to begin the handshake.
func TestPeerSetAgainIsGreetedAtOnce(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	p := bob.provider(alice, "10.65.0.0/24")
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
	alice.do(order{Do: "set", Peer: p})
	alice.do(order{Do: "remove", ID: "bob"})
	time.Sleep(50 * time.Millisecond) // WireGuard takes a second handshake within 20 ms for a flood
	alice.do(order{Do: "set", Peer: p})
	start := time.Now()
	alice.hasStats("bob", func(s Stats) bool { return s.Up })
	pace.Within(t, "a handshake", time.Since(start), byItself)
}

// TestTunnelThatComesUpIsTold, on both sides, when nothing else happens on either host and long before it is looked at again:
// alice tries a while before bob knows her.
func TestTunnelThatComesUpIsTold(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	time.Sleep(2 * time.Second) // all tries but WireGuard's own, each five seconds
	waits := alice.consumer(bob, "10.65.0.0/24")
	waits.Endpoint = netip.AddrPort{}
	bob.do(order{Do: "set", Peer: waits})
	for p, peer := range map[*laptop]string{alice: "bob", bob: "alice"} {
		if s := p.do(order{Do: "told"}).Stats[peer]; !s.Up {
			t.Errorf("%s is told, and the tunnel to %s is not up: %+v", p.name, peer, s)
		}
	}
	bob.do(order{Do: "remove", ID: "alice"})
	if s := bob.do(order{Do: "told"}).Stats; len(s) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBothGreetAtOnce makes handshakes cross on the wire, again and again.
func TestBothGreetAtOnce(t *testing.T) {
	l := newLAN(t)
	bothGreetAtOnce(t, l.laptop("alice", 1), l.laptop("bob", 2))
}

func bothGreetAtOnce(t *testing.T, alice, bob *laptop) {
	t.Helper()
	const rounds = 5
	var took []time.Duration
	for range rounds {
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")}) })
		wg.Go(func() { bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")}) })
		wg.Wait()
		alice.do(order{Do: "rtt", ID: "bob"})
		took = append(took, time.Since(start))
		alice.do(order{Do: "remove", ID: "bob"})
		bob.do(order{Do: "remove", ID: "alice"})
		time.Sleep(50 * time.Millisecond)
	}
	// A packet that a busy machine loses costs WireGuard's five seconds, whoever greets first; handshakes that undo each other cost them again and again.
	slices.Sort(took)
	pace.Within(t, fmt.Sprintf("the first answer, in most of %v", took), took[rounds/2], byItself)
}

// TestRangesMayChange: the peers agree on other ranges while the tunnel is up.
func TestRangesMayChange(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveTCP(80, whoCalls)
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "100.64.0.0/24")})
	alice.do(order{Do: "set", Peer: bob.provider(alice, "100.64.0.0/24")})
	another := bob.guest("100.64.0.5")
	another.serveTCP(80, whoCalls)
	if got := alice.ask("100.64.0.5:80"); got != "10.42.0.5" {
		t.Errorf("the guest saw %s", got)
	}
	if d, err := alice.dialFor("10.65.0.5:80", 300*time.Millisecond); err == nil {
		d.Close()
		t.Error("the old range still works")
	}
}

// speaksIPv6 gives a laptop an address of its LAN by which the others know it from then on.
func (p *laptop) speaksIPv6(network string) {
	p.t.Helper()
	a := parseAddr(p.t, network+string('0'+rune(p.number))+"/64")
	a.Flags = unix.IFA_F_NODAD
	if err := p.hostNL.AddrAdd(link(p.t, p.hostNL, "u0"), a); err != nil {
		p.t.Skipf("no IPv6 here: %v", err)
	}
	p.elsewhere, _ = netip.AddrFromSlice(a.IP)
	if p.elsewhere.IsLinkLocalUnicast() {
		p.elsewhere = p.elsewhere.WithZone("u0") // which each calls its way to the LAN
	}
}

// hasStats waits until the tunnel to a peer is as it should be.
func (p *laptop) hasStats(peer string, is func(Stats) bool) {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if s := p.do(order{Do: "stats"}).Stats[peer]; is(s) {
			return
		} else if time.Since(start) > patience {
			p.t.Fatalf("%s to %s: %+v", p.name, peer, s)
		}
	}
}

// losesIPv4 takes a laptop's other address of the LAN.
func (p *laptop) losesIPv4() {
	p.t.Helper()
	must(p.t, p.hostNL.AddrDel(link(p.t, p.hostNL, "u0"), parseAddr(p.t, fmt.Sprintf("172.31.0.%d/24", p.number))))
}

// TestIPv6Underlay carries the pods' IPv4 over LANs that speak IPv6 alone. A laptop has link-local addresses, and a route to them, on
// other interfaces, too.
func TestIPv6Underlay(t *testing.T) {
	for name, network := range map[string]string{"link-local": "fe80::", "unique local": "fd00:6b::"} {
		t.Run(name, func(t *testing.T) {
			l := newLAN(t)
			alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
			for _, p := range []*laptop{alice, bob} {
				p.speaksIPv6(network)
				p.losesIPv4()
			}
			guest := meet(alice, bob, "10.65.0.0/24")
			for p, peer := range map[*laptop]*laptop{alice: bob, bob: alice} {
				if s := p.do(order{Do: "stats"}).Stats[peer.name]; s.MTU != 1400 || s.Endpoint != netip.AddrPortFrom(peer.elsewhere, 6450) {
					t.Errorf("%s: %+v", p.name, s)
				}
			}
			transfer(t, alice.end, guest, "10.65.0.5", 5_000_000)
			guest.serveUDP(90)
			stream := alice.beat("10.65.0.5:90")
			stream.goesOn()
			// Bob's gateway is another, and alice's forgets where his packets came in.
			bob.kill()
			bob.start()
			bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
			stream.goesOn()
			narrow(t, alice.hostNL, "u0", 1280) // as little as IPv6 has (RFC 8200, section 5)
			narrow(t, bob.hostNL, "u0", 1280)
			alice.hasStats("bob", func(s Stats) bool { return s.MTU == 1180 })
			if got := alice.largest(t, "10.65.0.5:90"); got != 1180 {
				t.Errorf("over 1280 bytes pods send %d", got)
			}
			if got, err := exchange(alice.udp("10.65.0.5:90"), 8000); err != nil || got != "8000 10.42.0.5" {
				t.Errorf("fragments: %q, %v", got, err)
			}
		})
	}
}

// TestBothGreetAtOnceOverLinkLocal is TestBothGreetAtOnce, where who begins is told by addresses with zones.
func TestBothGreetAtOnceOverLinkLocal(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	alice.speaksIPv6("fe80::")
	bob.speaksIPv6("fe80::")
	bothGreetAtOnce(t, alice, bob)
}

// TestRoamBetweenFamilies: the LAN loses its IPv4 and gets it back. Who is told of the peer's other address is heard by it at once.
func TestRoamBetweenFamilies(t *testing.T) {
	alice, bob, guest := pair(t)
	guest.serveUDP(90)
	stream := alice.beat("10.65.0.5:90")
	stream.goesOn()
	for _, p := range []*laptop{alice, bob} {
		p.speaksIPv6("fe80::")
		p.losesIPv4()
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	stream.goesOn()
	bob.hasStats("alice", func(s Stats) bool { return s.Endpoint.Addr() == alice.elsewhere })
	for _, p := range []*laptop{alice, bob} {
		p.elsewhere = netip.Addr{}
		address(t, p.hostNL, "u0", fmt.Sprintf("172.31.0.%d/24", p.number))
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	stream.goesOn() // by either: both lead there, and what comes by one is answered by it
}
