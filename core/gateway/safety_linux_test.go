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

	"kith.dev/core/hostnet"
	"kith.dev/core/netplan"
)

// dropped waits until a reason's counter has grown beyond before.
func (p *laptop) dropped(reason string, before uint64) bool {
	for range 40 {
		if p.do(order{Do: "drops"}).Drops[reason] > before {
			return true
		}
		time.Sleep(25 * time.Millisecond)
	}
	return false
}

// spoof sends a UDP datagram with a source address of its own choosing from the pod.
func (p *laptop) spoof(src, dst string, port int) {
	p.t.Helper()
	b := append(make([]byte, 28), "spoofed"...) // the kernel fills in length and checksum of the header (raw(7)); UDP has none
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint16(b[20:], 4444)
	binary.BigEndian.PutUint16(b[22:], uint16(port))
	binary.BigEndian.PutUint16(b[24:], uint16(len(b)-20))
	var err error
	p.inPod(func() {
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
func (p *laptop) hears(port int, during func()) (from []string) {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.inPod(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}) })
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
	alice, bob := pair(t)
	got := bob.hears(90, func() {
		alice.spoof("10.42.0.5", "10.65.0.5", 90)
		alice.spoof("192.168.55.5", "10.65.0.5", 90)
		alice.spoof("10.70.0.5", "10.65.0.5", 90)
	})
	if fmt.Sprint(got) != "[10.70.0.5]" {
		t.Errorf("bob's pod heard from %v", got)
	}
	if d := alice.do(order{Do: "drops"}).Drops; d["source"] != 2 {
		t.Errorf("drops: %v", d)
	}
}

// TestPeerThatLiesAboutItself changes alice's gateway so that it sends as somebody else.
func TestPeerThatLiesAboutItself(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	meet(alice, bob, "10.65.0.0/16", "10.70.0.0/16")
	meet(carol, bob, "10.65.0.0/16", "10.71.0.0/16")
	for _, lie := range []string{"10.71.0.0/16", "10.99.0.0/16", "10.42.0.0/16", "172.31.0.0/16"} {
		alice.do(order{Do: "set", Peer: bob.asPeer("10.65.0.0/16", lie)})
		if got := bob.hears(90, func() { alice.spoof("10.42.0.5", "10.65.0.5", 90) }); len(got) != 0 {
			t.Errorf("as %s alice was heard from %v", lie, got)
		}
	}
	alice.do(order{Do: "set", Peer: bob.asPeer("10.65.0.0/16", "10.70.0.0/16")})
	if got := bob.hears(90, func() { alice.spoof("10.42.0.5", "10.65.0.5", 90) }); len(got) != 1 {
		t.Errorf("the truth was heard %d times", len(got))
	}
}

// TestPeersReachOnlyWhatIsMapped tries every way from alice to what is not hers at bob's.
func TestPeersReachOnlyWhatIsMapped(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	meet(alice, bob, "10.65.0.0/16", "10.70.0.0/16")

	t.Run("a range that bob does not show", func(t *testing.T) {
		p := bob.asPeer("10.65.0.0/16", "10.70.0.0/16")
		more := netip.MustParsePrefix("10.99.0.0/16")
		p.Theirs = append(p.Theirs, netplan.Mapping{Name: "more", Real: more, Alias: more})
		alice.do(order{Do: "set", Peer: p})
		alice.spoof("10.42.0.5", "10.99.0.5", 90)
		if !bob.dropped("destination", 0) {
			t.Error("not dropped by destination")
		}
		alice.do(order{Do: "set", Peer: bob.asPeer("10.65.0.0/16", "10.70.0.0/16")})
	})
	t.Run("pods that do not exist", func(t *testing.T) {
		var c *icmp.PacketConn
		var err error
		alice.inPod(func() { c, err = icmp.ListenPacket("ip4:icmp", podAddr.String()) })
		must(t, err)
		defer c.Close()
		alice.udp("10.65.200.9:90").Write([]byte("anybody"))
		// By bob's default route it would go to his LAN, and nothing would come back.
		if from, quoted := nextError(t, c); from != "10.65.255.2" || quoted.Dst.String() != "10.65.200.9" {
			t.Errorf("%s says that %s is unreachable", from, quoted.Dst)
		}
	})
	t.Run("a LAN inside the pods' range", func(t *testing.T) {
		address(t, l.nl, "br0", "10.42.7.254/24")
		address(t, bob.hostNL, "u0", "10.42.7.2/24")
		time.Sleep(500 * time.Millisecond) // netlink, then one look
		before := bob.do(order{Do: "drops"}).Drops["destination"]
		alice.spoof("10.42.0.5", "10.65.7.254", 90)
		if !bob.dropped("destination", before) {
			t.Error("not dropped")
		}
	})
	t.Run("services of the host", func(t *testing.T) {
		for _, port := range []int{22, 6443} {
			var ln net.Listener
			var err error
			bob.inHost(func() { ln, err = net.Listen("tcp4", fmt.Sprintf(":%d", port)) })
			must(t, err)
			defer ln.Close()
		}
		for _, host := range []string{"10.65.255.1", "10.65.255.2", "10.65.0.1", "10.65.7.2"} {
			c, err := alice.dialFor(host+":22", 300*time.Millisecond)
			if err == nil {
				c.Close()
				t.Errorf("%s:22 is open", host)
			}
			c, err = alice.dial(host + ":6443")
			if err != nil {
				t.Errorf("%s:6443 is shut: %v", host, err)
			} else {
				c.Close()
			}
		}
		before := bob.do(order{Do: "drops"}).Drops["host"]
		for _, host := range []string{"10.65.255.1", "10.65.0.1", "10.65.0.255"} { // the last one is a broadcast
			alice.spoof("10.42.0.5", host, 53)
		}
		if !bob.dropped("host", before+2) {
			t.Error("UDP to the host was not dropped")
		}
	})
	t.Run("but the host may ask", func(t *testing.T) {
		alice.serveTCP(80, whoCalls)
		alice.serveUDP(90)
		var c net.Conn
		var u *net.UDPConn
		var err, uerr error
		bob.inHost(func() {
			c, err = net.DialTimeout("tcp4", "10.70.0.5:80", patience)
			u, uerr = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.70.0.5:90")))
		})
		must(t, err)
		must(t, uerr)
		defer c.Close()
		defer u.Close()
		b := make([]byte, 100)
		n, _ := c.Read(b)
		if string(b[:n]) != "10.65.255.2" {
			t.Errorf("alice saw %q", b[:n])
		}
		if got, err := exchange(u, 5); got != "5 10.65.255.2" {
			t.Errorf("UDP: %q, %v", got, err)
		}
	})
}

func TestPeersThatMustBeRefused(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	meet(alice, bob, "10.65.0.0/16", "10.70.0.0/16")
	p := carol.asPeer("10.65.0.0/16", "10.70.0.0/16")
	if a := alice.try(order{Do: "set", Peer: p}); !strings.Contains(a.Err, "overlaps") {
		t.Errorf("an alias twice: %q", a.Err)
	}
	p = carol.asPeer("10.66.0.0/16", "10.70.0.0/16")
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
	alice, _ := pair(t)
	taken := alice.do(order{Do: "taken", ID: "carol"}).Taken
	for _, c := range []struct {
		prefix string
		want   bool
	}{
		{"172.31.0.0/16", true}, {"10.42.0.0/16", true}, {"10.65.0.0/16", true}, {"10.70.0.0/16", false}, {"10.43.0.0/16", false},
	} {
		if got := !netplan.Free(netip.MustParsePrefix(c.prefix), taken); got != c.want {
			t.Errorf("%s taken: %v, want %v (%v)", c.prefix, got, c.want, taken)
		}
	}
	if !netplan.Free(netip.MustParsePrefix("10.65.0.0/16"), alice.do(order{Do: "taken", ID: "bob"}).Taken) {
		t.Error("bob's alias is taken from bob himself")
	}
}

// TestNothingStaysBehind looks at routes and rules after a peer left, and after the gateway did.
func TestNothingStaysBehind(t *testing.T) {
	alice, bob, _ := routed(t)
	meet(alice, bob, "192.168.0.0/16", "10.70.0.0/16")
	if got := alice.ours(); len(got) != 4 { // the alias, bob's endpoint inside it, two rules
		t.Errorf("set: %v", got)
	}
	alice.do(order{Do: "remove", ID: "bob"})
	if got := alice.ours(); len(got) != 2 {
		t.Errorf("removed: %v", got)
	}
	alice.do(order{Do: "set", Peer: bob.asPeer("192.168.0.0/16", "10.70.0.0/16")})
	alice.kill()
	alice.start()
	if got := alice.ours(); len(got) != 2 {
		t.Errorf("killed and started: %v", got)
	}
	alice.stop()
	if got := alice.ours(); len(got) != 0 {
		t.Errorf("stopped: %v", got)
	}
}

func (p *laptop) ours() (out []string) {
	p.t.Helper()
	routes, err := p.hostNL.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: hostnet.Protocol}, netlink.RT_FILTER_PROTOCOL)
	must(p.t, err)
	for _, r := range routes {
		out = append(out, r.String())
	}
	rules, err := p.hostNL.RuleList(unix.AF_INET)
	must(p.t, err)
	for _, r := range rules {
		if r.IifName == "kith0" {
			out = append(out, r.String())
		}
	}
	return out
}
