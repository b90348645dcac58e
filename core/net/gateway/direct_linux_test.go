package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"kith.dev/test/pace"
)

// byHomeWithin is how long packets of a direct way that is cut may be lost.
const byHomeWithin = (unanswered+1)*askEvery + 500*time.Millisecond

// introduced is a home with guests at two providers, which it has introduced to each other.
type introduced struct {
	lan              *lan
	alice, bob       *laptop
	carol            *laptop
	atBob, atCarol   *end
	atBob6, atCarol6 *end
}

const rangeAtBob, rangeAtCarol = "10.65.0.0/24", "10.66.0.0/24"

func introduce(t *testing.T) *introduced {
	t.Helper()
	l := newLAN(t)
	in := &introduced{lan: l, alice: l.laptop6("alice", 1), bob: l.laptop6("bob", 2), carol: l.laptop6("carol", 3)}
	in.atBob, in.atBob6 = meet6(in.alice, in.bob, rangeAtBob, rangeAtCarol)
	in.atCarol, in.atCarol6 = meet6(in.alice, in.carol, rangeAtCarol, rangeAtBob)
	in.set(in.bob, rangeAtBob, rangeAtCarol, in.carol)
	in.set(in.carol, rangeAtCarol, rangeAtBob, in.bob)
	return in
}

// set tells a provider of another, or that there is none.
func (in *introduced) set(at *laptop, here, there string, others ...*laptop) {
	at.t.Helper()
	peer := at.do(order{Do: "peer", ID: "alice"}).Peer
	peer.Direct = nil
	for _, o := range others {
		peer.Direct = append(peer.Direct, o.direct(there))
	}
	at.do(order{Do: "set", Peer: peer})
}

// direct is p as a home tells of it.
func (p *laptop) direct(guests string) Direct {
	return Direct{ID: p.name, PublicKey: p.key.Public(), Guests: netip.MustParsePrefix(guests), Guests6: guests6(guests), Endpoints: []netip.AddrPort{netip.AddrPortFrom(p.address(), 6450)}}
}

// is waits until a provider's way is in a state.
func (p *laptop) is(want DirectState) {
	p.t.Helper()
	p.hasStats("alice", func(s Stats) bool { return len(s.Direct) == 1 && s.Direct[0].State == want })
}

// separate has nothing pass between bob and carol; both still reach alice.
func (in *introduced) separate(apart bool) {
	for _, p := range []*laptop{in.bob, in.carol} {
		must(p.t, in.lan.nl.LinkSetIsolated(link(p.t, in.lan.nl, fmt.Sprintf("to%d", p.number)), apart))
	}
}

// echoes is a connection on which each line comes back.
type echoes struct {
	net.Conn
	r *bufio.Reader
}

func (p *end) echoes(to *end) *echoes {
	p.t.Helper()
	to.serveTCP(70, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			c.Write([]byte(line))
		}
	})
	c, err := p.dial(net.JoinHostPort(to.addr.String(), "70"))
	must(p.t, err)
	return &echoes{c, bufio.NewReader(c)}
}

// say wants a line back on the same connection.
func (e *echoes) say(t *testing.T, line string) {
	t.Helper()
	e.SetDeadline(time.Now().Add(patience))
	fmt.Fprintln(e, line)
	if got, err := e.r.ReadString('\n'); err != nil || got != line+"\n" {
		t.Fatalf("%q came back as %q, %v", line, got, err)
	}
}

func TestGuestsOfOneHomeMeetPastIt(t *testing.T) {
	in := introduce(t)
	for _, p := range []*laptop{in.bob, in.carol} {
		p.is(DirectIdle) // it costs nothing
	}
	in.atCarol.serveTCP(80, whoCalls)
	in.atBob.serveTCP(80, whoCalls)
	if got := in.atBob.ask("10.66.0.5:80"); got != "10.65.0.5" {
		t.Errorf("the guest at carol sees %q", got)
	}
	in.bob.is(DirectUp)
	in.carol.is(DirectUp)
	before := in.alice.do(order{Do: "stats"}).Stats["bob"]
	transfer(t, in.atBob, in.atCarol, "10.66.0.5", 5_000_000)
	after := in.alice.do(order{Do: "stats"}).Stats["bob"]
	if passed := after.Received + after.Sent - before.Received - before.Sent; passed > 100_000 {
		t.Errorf("%d bytes passed home", passed)
	}
	if got := in.atCarol.ask("10.65.0.5:80"); got != "10.66.0.5" {
		t.Errorf("the guest at bob sees %q", got)
	}
	in.atCarol6.serveTCPAt("[fd00:66:0::5]:80", whoCalls)
	if got := in.atBob6.ask("[" + in.atCarol6.addr.String() + "]:80"); got != in.atBob6.addr.String() {
		t.Errorf("the guest at carol sees %q by IPv6", got)
	}
	if after6 := in.alice.do(order{Do: "stats"}).Stats["bob"]; after6.Sent-after.Sent > 10_000 {
		t.Errorf("IPv6 passed home: %d bytes", after6.Sent-after.Sent)
	}
	// Home's own pods are where they were.
	in.alice.serveTCP(80, whoCalls)
	if got := in.atBob.ask("10.42.0.5:80"); got != "10.65.0.5" {
		t.Errorf("home's pod sees %q", got)
	}
}

func TestADirectWayThatIsCutIsLeftForHome(t *testing.T) {
	in := introduce(t)
	in.atCarol.serveUDP(90)
	line, stream := in.atBob.echoes(in.atCarol), in.atBob.beat("10.66.0.5:90")
	line.say(t, "by home")
	in.bob.is(DirectUp)
	in.carol.is(DirectUp)
	line.say(t, "directly")

	in.separate(true)
	before, began := stream.sent.Load(), time.Now()
	for stream.heard.Load() <= before {
		if time.Since(began) > patience {
			t.Fatal("nothing goes by home")
		}
		time.Sleep(time.Millisecond)
	}
	pace.Within(t, "by home", time.Since(began), byHomeWithin)
	in.bob.is(DirectByHome)
	in.carol.is(DirectByHome)
	line.say(t, "by home again")

	in.separate(false)
	in.bob.is(DirectUp)
	in.carol.is(DirectUp)
	line.say(t, "directly again")
}

func TestHomeTakesAWayBack(t *testing.T) {
	in := introduce(t)
	line := in.atBob.echoes(in.atCarol)
	line.say(t, "one")
	in.bob.is(DirectUp)
	in.set(in.bob, rangeAtBob, rangeAtCarol)
	in.set(in.carol, rangeAtCarol, rangeAtBob)
	line.say(t, "two")
	if s := in.bob.do(order{Do: "stats"}).Stats["alice"]; len(s.Direct) != 0 {
		t.Errorf("bob has still %+v", s.Direct)
	}
}

// TestOneSideOfAWayIsGone: carol's gateway does not know it any more, or is killed.
func TestOneSideOfAWayIsGone(t *testing.T) {
	in := introduce(t)
	line := in.atBob.echoes(in.atCarol)
	line.say(t, "one")
	in.bob.is(DirectUp)
	in.set(in.carol, rangeAtCarol, rangeAtBob)
	line.say(t, "two")
	in.bob.is(DirectByHome)

	peer := in.carol.do(order{Do: "peer", ID: "alice"}).Peer
	in.carol.kill()
	in.carol.start()
	peer.Direct = []Direct{in.bob.direct(rangeAtBob)}
	in.carol.do(order{Do: "set", Peer: peer})
	line.say(t, "three")
	in.bob.is(DirectUp)
	line.say(t, "four")
}

// TestADirectWayBetweenTwoWhoArePeers: one WireGuard key stands for both, and neither is in the other's way.
func TestADirectWayBetweenTwoWhoArePeers(t *testing.T) {
	in := introduce(t)
	bobsAtCarol := meet(in.bob, in.carol, "10.67.0.0/24")
	bobsAtCarol.serveTCP(80, whoCalls)
	in.atCarol.serveTCP(80, whoCalls)
	check := func() {
		t.Helper()
		for _, c := range []struct {
			from     *end
			to, want string
		}{{in.bob.end, "10.67.0.5:80", "10.42.0.5"}, {in.atBob, "10.66.0.5:80", "10.65.0.5"}} {
			if got := c.from.ask(c.to); got != c.want {
				t.Errorf("%s asks %s: %q, want %q", c.from.name, c.to, got, c.want)
			}
		}
		if c, err := in.atBob.dialFor("10.67.0.5:80", 300*time.Millisecond); err == nil {
			c.Close()
			t.Error("alice's guest reaches bob's")
		}
	}
	check()
	in.bob.is(DirectUp)
	check()
	in.bob.do(order{Do: "remove", ID: "carol"})
	in.carol.do(order{Do: "remove", ID: "bob"})
	line := in.atBob.echoes(in.atCarol)
	line.say(t, "the way is still there")
	in.bob.is(DirectUp)
}

// TestEndpointsAreTriedByTurns: carol is not where home says first.
func TestEndpointsAreTriedByTurns(t *testing.T) {
	in := introduce(t)
	in.set(in.carol, rangeAtCarol, rangeAtBob) // she does not ask
	peer := in.bob.do(order{Do: "peer", ID: "alice"}).Peer
	d := in.carol.direct(rangeAtCarol)
	d.Endpoints = append([]netip.AddrPort{netip.MustParseAddrPort("172.31.0.99:6450")}, d.Endpoints...)
	peer.Direct = []Direct{d}
	in.bob.do(order{Do: "set", Peer: peer})
	other := in.bob.direct(rangeAtBob)
	other.Endpoints[0] = netip.MustParseAddrPort("172.31.0.98:6450")
	peer = in.carol.do(order{Do: "peer", ID: "alice"}).Peer
	peer.Direct = []Direct{other}
	in.carol.do(order{Do: "set", Peer: peer})
	line := in.atBob.echoes(in.atCarol)
	line.say(t, "one")
	in.bob.is(DirectUp)
	in.carol.is(DirectUp)
	line.say(t, "two")
}

func TestDirectWaysThatCannotBeMeant(t *testing.T) {
	in := introduce(t)
	good := in.bob.do(order{Do: "peer", ID: "alice"}).Peer
	for name, change := range map[string]func(*Direct){
		"no key":                   func(d *Direct) { d.PublicKey = Key{} },
		"home's key":               func(d *Direct) { d.PublicKey = in.alice.key.Public() },
		"not of the space":         func(d *Direct) { d.Guests = netip.MustParsePrefix("10.99.0.0/24") },
		"not of the space, IPv6":   func(d *Direct) { d.Guests6 = netip.MustParsePrefix("fd00:99::/64") },
		"nowhere":                  func(d *Direct) { d.Endpoints = nil },
		"here":                     func(d *Direct) { d.Endpoints[0] = netip.MustParseAddrPort("127.0.0.1:6450") },
		"multicast":                func(d *Direct) { d.Endpoints[0] = netip.MustParseAddrPort("224.0.0.1:6450") },
		"on a link":                func(d *Direct) { d.Endpoints[0] = netip.MustParseAddrPort("[fe80::1%u0]:6450") },
		"in more places than four": func(d *Direct) { d.Endpoints = make([]netip.AddrPort, 5) },
	} {
		p := good
		p.Direct = []Direct{in.carol.direct(rangeAtCarol)}
		change(&p.Direct[0])
		if a := in.bob.try(order{Do: "set", Peer: p}); a.Err == "" {
			t.Errorf("%s: accepted", name)
		}
	}
	twice := good
	twice.Direct = []Direct{in.carol.direct(rangeAtCarol), in.carol.direct(rangeAtCarol)}
	if a := in.bob.try(order{Do: "set", Peer: twice}); a.Err == "" {
		t.Error("twice: accepted")
	}
	own := good
	own.Direct = []Direct{in.bob.direct(rangeAtCarol)}
	if a := in.bob.try(order{Do: "set", Peer: own}); a.Err != "" {
		t.Errorf("a way to oneself is left out, not refused: %s", a.Err)
	}
}
