package gateway

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// dropped waits until a reason's counter has grown beyond before.
func (p *laptop) dropped(reason string, before uint64) bool {
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(25 * time.Millisecond) {
		if p.do(order{Do: "drops"}).Drops[reason] > before {
			return true
		}
	}
	return false
}

// spoof sends a UDP datagram with a source address of its own choosing from the pod.
func (p *end) spoof(src, dst string, port int) {
	p.t.Helper()
	b := append(make([]byte, 28), "spoofed"...) // the kernel fills in length and checksum of the header (raw(7)); UDP has none
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint16(b[20:], 4444)
	binary.BigEndian.PutUint16(b[22:], uint16(port))
	binary.BigEndian.PutUint16(b[24:], uint16(len(b)-20))
	var err error
	p.in(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return
		}
		defer unix.Close(fd)
		err = unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(dst).As4()})
	})
	must(p.t, err)
}

// hears tells what arrives at a UDP port of the pod within a short time.
func (p *end) hears(port int, during func()) (from []string) {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.in(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}) })
	must(p.t, err)
	defer c.Close()
	during()
	b := make([]byte, 2000)
	for {
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, a, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return from
		}
		from = append(from, a.Addr().String())
	}
}

func TestSourcesThatAreNotOursStayHere(t *testing.T) {
	alice, bob, guest := pair(t)
	got := guest.hears(90, func() {
		alice.spoof("10.42.0.5", "10.65.0.5", 90)
		alice.spoof("192.168.55.5", "10.65.0.5", 90)
		alice.spoof("10.70.0.5", "10.65.0.5", 90)
	})
	if fmt.Sprint(got) != "[10.42.0.5]" {
		t.Errorf("the guest heard from %v", got)
	}
	if d := alice.do(order{Do: "drops"}).Drops; d["source"] != 2 {
		t.Errorf("drops: %v", d)
	}
	// Bob's own pod is none of his guests, although alice has a pod of its address.
	if got := alice.hears(90, func() { bob.spoof("10.42.0.5", "10.42.0.9", 90) }); len(got) != 0 {
		t.Errorf("alice's pod heard from %v", got)
	}
}

// TestPeerThatLiesAboutItself changes alice's gateway so that it sends as somebody else, and then bob's.
func TestPeerThatLiesAboutItself(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	guest := meet(alice, bob, "10.65.0.0/24")
	carols := meet(carol, bob, "10.65.9.0/24")
	for what, lie := range map[string]string{"under carol's name": "10.65.9.0/24", "under her own": "10.65.0.0/16"} { // by the start of the range
		alice.do(order{Do: "set", Peer: bob.provider(alice, lie)})
		if got := carols.hears(90, func() { alice.spoof("10.42.0.5", "10.65.9.5", 90) }); len(got) != 0 {
			t.Errorf("%s alice was heard by carol's guest, from %v", what, got)
		}
	}
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	if got := guest.hears(90, func() { alice.spoof("10.42.0.5", "10.65.0.5", 90) }); len(got) != 1 {
		t.Errorf("the truth was heard %d times", len(got))
	}
	// Bob sends as a guest of alice's at somebody else's: he has given himself that range.
	meet(alice, carol, "10.66.0.0/24")
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.66.0.0/24")})
	forged := bob.guest("10.66.0.9")
	if got := alice.hears(90, func() { forged.spoof("10.66.0.9", "10.42.0.5", 90) }); len(got) != 0 {
		t.Errorf("as carol bob was heard from %v", got)
	}
}

// TestGuestsReachOnlyWhatIsOpen tries every way from alice's guest at bob, as which bob himself may speak, to what is not meant for it at alice's.
func TestGuestsReachOnlyWhatIsOpen(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	guest := meet(alice, bob, "10.65.0.0/24", "10.99.0.0/16")
	t.Run("a range that alice does not have", func(t *testing.T) {
		guest.spoof("10.65.0.5", "10.99.0.5", 90)
		if !alice.dropped("destination", 0) {
			t.Error("not dropped by destination")
		}
	})
	t.Run("pods that do not exist", func(t *testing.T) {
		var c *icmp.PacketConn
		var err error
		guest.in(func() { c, err = icmp.ListenPacket("ip4:icmp", guest.addr.String()) })
		must(t, err)
		defer c.Close()
		guest.udp("10.42.200.9:90").Write([]byte("anybody"))
		// By alice's default route it would go to her LAN, and nothing would come back.
		if from, quoted := nextError(t, c); from != "10.42.255.2" || quoted.Dst.String() != "10.42.200.9" {
			t.Errorf("%s says that %s is unreachable", from, quoted.Dst)
		}
	})
	t.Run("a LAN inside the pods' range", func(t *testing.T) {
		address(t, l.nl, "br0", "10.42.7.254/24")
		address(t, alice.hostNL, "u0", "10.42.7.2/24")
		time.Sleep(500 * time.Millisecond) // netlink, then one look
		before := alice.do(order{Do: "drops"}).Drops["destination"]
		guest.spoof("10.65.0.5", "10.42.7.254", 90)
		if !alice.dropped("destination", before) {
			t.Error("not dropped")
		}
	})
	t.Run("services of the host", func(t *testing.T) {
		for _, port := range []int{22, 6443} {
			var ln net.Listener
			var err error
			alice.inHost(func() { ln, err = net.Listen("tcp4", fmt.Sprintf(":%d", port)) })
			must(t, err)
			defer ln.Close()
		}
		for _, host := range []string{"10.42.255.1", "10.42.255.2", "10.42.0.1", "10.42.7.2"} {
			c, err := guest.dialFor(host+":22", 300*time.Millisecond)
			if err == nil {
				c.Close()
				t.Errorf("%s:22 is open", host)
			}
			c, err = guest.dial(host + ":6443")
			if err != nil {
				t.Errorf("%s:6443 is shut: %v", host, err)
			} else {
				c.Close()
			}
		}
		before := alice.do(order{Do: "drops"}).Drops["host"]
		for _, host := range []string{"10.42.255.1", "10.42.0.1", "10.42.0.255"} { // the last one is a broadcast
			guest.spoof("10.65.0.5", host, 53)
		}
		if !alice.dropped("host", before+2) {
			t.Error("UDP to the host was not dropped")
		}
	})
	t.Run("services of the provider's host", func(t *testing.T) {
		var ln net.Listener
		var err error
		bob.inHost(func() { ln, err = net.Listen("tcp4", ":22") })
		must(t, err)
		defer ln.Close()
		if c, err := alice.dialFor("10.65.0.1:22", 300*time.Millisecond); err == nil {
			c.Close()
			t.Error("home reaches them")
		}
	})
	t.Run("but the host may ask", func(t *testing.T) {
		guest.serveTCP(80, whoCalls)
		guest.serveUDP(90)
		var c net.Conn
		var u *net.UDPConn
		var err, uerr error
		alice.inHost(func() {
			c, err = net.DialTimeout("tcp4", "10.65.0.5:80", patience)
			u, uerr = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.65.0.5:90")))
		})
		must(t, err)
		must(t, uerr)
		defer c.Close()
		defer u.Close()
		b := make([]byte, 100)
		n, _ := c.Read(b)
		if string(b[:n]) != "10.42.255.2" {
			t.Errorf("the guest saw %q", b[:n])
		}
		if got, err := exchange(u, 5); got != "5 10.42.255.2" {
			t.Errorf("UDP: %q, %v", got, err)
		}
	})
	t.Run("and the provider's host asks its guest", func(t *testing.T) { // probes
		var c net.Conn
		var err error
		bob.inHost(func() { c, err = net.DialTimeout("tcp4", "10.65.0.5:80", patience) })
		must(t, err)
		defer c.Close()
		b := make([]byte, 100)
		if n, _ := c.Read(b); string(b[:n]) != "10.65.0.1" {
			t.Errorf("the guest saw %q", b[:n])
		}
	})
}

func TestPeersThatMustBeRefused(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	meet(alice, bob, "10.65.0.0/24")
	p := carol.provider(alice, "10.65.0.0/24")
	if a := alice.try(order{Do: "set", Peer: p}); !strings.Contains(a.Err, "overlaps") {
		t.Errorf("a range twice: %q", a.Err)
	}
	p = carol.provider(alice, "10.66.0.0/24")
	p.PublicKey = bob.key.Public()
	if a := alice.try(order{Do: "set", Peer: p}); !strings.Contains(a.Err, "key") {
		t.Errorf("a key twice: %q", a.Err)
	}
	p.PublicKey = alice.key.Public()
	if a := alice.try(order{Do: "set", Peer: p}); !strings.Contains(a.Err, "key") {
		t.Errorf("our own key: %q", a.Err)
	}
	if alice.do(order{Do: "rtt", ID: "bob"}).RTT <= 0 {
		t.Error("bob suffered")
	}
}

func TestWhatIsTaken(t *testing.T) {
	alice, _, _ := pair(t)
	taken := alice.do(order{Do: "taken", ID: "carol"}).Taken
	for _, c := range []struct {
		prefix string
		want   bool
	}{
		{"172.31.0.0/16", true}, {"10.42.0.0/16", true}, {"10.65.0.0/24", true}, {"10.70.0.0/16", false}, {"10.43.0.0/16", false},
	} {
		if got := !netplan.Free(netip.MustParsePrefix(c.prefix), taken); got != c.want {
			t.Errorf("%s taken: %v, want %v (%v)", c.prefix, got, c.want, taken)
		}
	}
	if !netplan.Free(netip.MustParsePrefix("10.65.0.0/24"), alice.do(order{Do: "taken", ID: "bob"}).Taken) {
		t.Error("bob's range is taken from bob himself")
	}
}

// TestNothingStaysBehind looks at routes and rules after a peer left, and after the gateway did, of a consumer and of a provider.
func TestNothingStaysBehind(t *testing.T) {
	alice, bob, _ := routed(t)
	meet(alice, bob, "192.168.0.0/16")      // bob's endpoint is inside
	if got := alice.ours(); len(got) != 4 { // the range, bob's endpoint inside it, two rules
		t.Errorf("set: %v", got)
	}
	alice.do(order{Do: "remove", ID: "bob"})
	alice.do(order{Do: "set", Peer: bob.provider(alice, "10.65.0.0/24")})
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24", "10.66.0.0/24")})
	with := map[*laptop]int{alice: 3, bob: 3 + 8} // a route and two rules; three routes and a throw, rules of marks, of the tunnel, of the tenant, of local addresses
	for p, want := range with {
		if got := p.ours(); len(got) != want {
			t.Errorf("%s: %d, want %d: %v", p.name, len(got), want, got)
		}
	}
	if first := bob.rules()[0]; first.Priority == 0 {
		t.Errorf("the first rule is that of local addresses: %v", first)
	}
	alice.do(order{Do: "remove", ID: "bob"})
	bob.do(order{Do: "remove", ID: "alice"})
	for _, p := range []*laptop{alice, bob} {
		if got := p.ours(); len(got) != 2 || !isFirst(p.rules()[0]) {
			t.Errorf("%s, removed: %v, %v", p.name, got, p.rules())
		}
	}
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
	bob.kill()
	bob.start()
	if got := bob.ours(); len(got) != 2 || !isFirst(bob.rules()[0]) {
		t.Errorf("killed and started: %v", got)
	}
	bob.do(order{Do: "set", Peer: alice.consumer(bob, "10.65.0.0/24")})
	bob.stop()
	if got := bob.ours(); len(got) != 0 || !isFirst(bob.rules()[0]) {
		t.Errorf("stopped: %v", got)
	}
}

// TestSomebodyElseMovesTheRuleForLocalAddresses: then it is left where it is.
func TestSomebodyElseMovesTheRuleForLocalAddresses(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	moved := netlink.NewRule()
	moved.Family, moved.Table, moved.Priority = unix.AF_INET, unix.RT_TABLE_LOCAL, 100
	first := netlink.NewRule()
	first.Family, first.Table, first.Priority = unix.AF_INET, unix.RT_TABLE_LOCAL, 0
	must(t, bob.hostNL.RuleAdd(moved))
	must(t, bob.hostNL.RuleDel(first))
	guest := meet(alice, bob, "10.65.0.0/24")
	alice.serveTCP(80, whoCalls)
	if got := guest.ask("10.42.0.5:80"); got != "10.65.0.5" {
		t.Errorf("alice saw %q", got)
	}
	bob.stop()
	if rules := bob.rules(); len(rules) != 3 || rules[0].Priority != 100 {
		t.Errorf("%v", rules)
	}
}

func isFirst(r netlink.Rule) bool { return r.Priority == 0 && r.Table == unix.RT_TABLE_LOCAL }

func (p *laptop) rules() []netlink.Rule {
	p.t.Helper()
	rules, err := p.hostNL.RuleList(unix.AF_INET)
	must(p.t, err)
	return rules
}

func (p *laptop) ours() (out []string) {
	p.t.Helper()
	routes, err := p.hostNL.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: hostnet.Protocol, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	must(p.t, err)
	for _, r := range routes {
		out = append(out, r.String())
	}
	for _, r := range p.rules() {
		if r.Protocol == hostnet.Protocol {
			out = append(out, r.String())
		}
	}
	return out
}
