package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

const patience = time.Minute

// serveTCP lets the pod answer on a port: it says who called, then f goes on.
func (p *end) serveTCP(port int, f func(net.Conn)) {
	p.t.Helper()
	p.serveTCPAt(netip.AddrPortFrom(p.addr, uint16(port)).String(), f)
}

func (p *end) serveTCPAt(addr string, f func(net.Conn)) {
	p.t.Helper()
	var l net.Listener
	var err error
	p.in(func() { l, err = net.Listen("tcp", addr) })
	must(p.t, err)
	p.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(6 * patience))
				f(c)
			}()
		}
	}()
}

func whoCalls(c net.Conn) { io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String()) }

func (p *end) dial(to string) (net.Conn, error) {
	p.t.Helper()
	return p.dialFor(to, patience)
}

func (p *end) dialFor(to string, d time.Duration) (c net.Conn, err error) {
	p.t.Helper()
	p.in(func() { c, err = net.DialTimeout("tcp", to, d) })
	if c != nil {
		c.SetDeadline(time.Now().Add(6 * patience))
	}
	return c, err
}

// ask reads all that a TCP server of another pod says.
func (p *end) ask(to string) string {
	p.t.Helper()
	c, err := p.dial(to)
	must(p.t, err)
	defer c.Close()
	b, err := io.ReadAll(c)
	must(p.t, err)
	return string(b)
}

// serveUDP answers each datagram with its length and sender.
func (p *end) serveUDP(port int) {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.in(func() { c, err = net.ListenUDP("udp", &net.UDPAddr{IP: p.addr.AsSlice(), Port: port}) })
	must(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(fmt.Appendf(nil, "%d %s", n, from.Addr()), from)
		}
	}()
}

// udp opens a connected socket in the pod.
func (p *end) udp(to string, options ...[3]int) *net.UDPConn {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.in(func() { c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))) })
	must(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	raw, _ := c.SyscallConn()
	raw.Control(func(fd uintptr) {
		for _, o := range options {
			must(p.t, unix.SetsockoptInt(int(fd), o[0], o[1], o[2]))
		}
	})
	return c
}

var (
	noChecksum   = [3]int{unix.SOL_SOCKET, unix.SO_NO_CHECK, 1}
	dontFragment = [3]int{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO}
)

func ttl(n int) [3]int { return [3]int{unix.IPPROTO_IP, unix.IP_TTL, n} }

func exchange(c *net.UDPConn, size int) (string, error) { return exchangeFor(c, size, patience) }

func exchangeFor(c *net.UDPConn, size int, d time.Duration) (string, error) {
	c.SetDeadline(time.Now().Add(d))
	if _, err := c.Write(make([]byte, size)); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// pair are two laptops, and alice's guest at bob, 10.65.0.5.
func pair(t *testing.T) (alice, bob *laptop, guest *end) {
	l := newLAN(t)
	alice, bob = l.laptop("alice", 1), l.laptop("bob", 2)
	return alice, bob, meet(alice, bob, "10.65.0.0/24")
}

// TestAGuestLivesInItsHomesAddressSpace although its provider has a pod, a bridge and a node of home's addresses.
func TestAGuestLivesInItsHomesAddressSpace(t *testing.T) {
	alice, bob, guest := pair(t)
	alice.serveTCP(80, whoCalls)
	bob.serveTCP(80, func(c net.Conn) { io.WriteString(c, "bob's own pod") })
	guest.serveTCP(80, whoCalls)
	if got := alice.ask("10.65.0.5:80"); got != "10.42.0.5" {
		t.Errorf("the guest saw %s call", got)
	}
	if got := guest.ask("10.42.0.5:80"); got != "10.65.0.5" {
		t.Errorf("alice's pod saw %s call", got)
	}
	if got := bob.ask("10.42.0.5:80"); got != "bob's own pod" {
		t.Errorf("bob's pod asks itself: %s", got)
	}
	guest.serveUDP(90)
	for name, c := range map[string]struct {
		size    int
		options [][3]int
	}{
		"small":                      {100, nil},
		"empty":                      {0, nil},
		"no checksum":                {100, [][3]int{noChecksum}},
		"fragments":                  {8000, nil},
		"fragments without checksum": {8000, [][3]int{noChecksum}},
		"the largest there is":       {65507, nil},
	} {
		got, err := exchange(alice.udp("10.65.0.5:90", c.options...), c.size)
		if want := fmt.Sprintf("%d 10.42.0.5", c.size); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestLargeTransfersArriveWhole(t *testing.T) {
	alice, _, guest := pair(t)
	transfer(t, alice.end, guest, "10.65.0.5", 20_000_000)
	transfer(t, guest, alice.end, "10.42.0.5", 20_000_000)
}

// transfer downloads and uploads n bytes and compares what arrived.
func transfer(t *testing.T, from, to *end, addr string, n int64) {
	t.Helper()
	blob := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }
	sum := sha256.New()
	io.Copy(sum, blob())
	want := fmt.Sprintf("%x", sum.Sum(nil))
	to.serveTCP(81, func(c net.Conn) { io.Copy(c, blob()) })
	to.serveTCP(82, func(c net.Conn) {
		h := sha256.New()
		io.Copy(h, c)
		fmt.Fprintf(c, "%x", h.Sum(nil))
	})
	start := time.Now()
	h := sha256.New()
	c, err := from.dial(addr + ":81")
	must(t, err)
	_, err = io.Copy(h, c)
	must(t, err)
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		t.Errorf("download differs")
	}
	t.Logf("download %.0f Mbit/s", float64(n)*8/1e6/time.Since(start).Seconds())
	start = time.Now()
	c, err = from.dial(addr + ":82")
	must(t, err)
	_, err = io.Copy(c, blob())
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	must(t, err)
	if string(got) != want {
		t.Errorf("upload differs")
	}
	t.Logf("upload %.0f Mbit/s", float64(n)*8/1e6/time.Since(start).Seconds())
}

func TestClosedPortsRefuseAtOnce(t *testing.T) {
	alice, _, _ := pair(t)
	if _, err := alice.dial("10.65.0.5:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("TCP: %v", err)
	}
	if _, err := exchange(alice.udp("10.65.0.5:9"), 10); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP: %v", err)
	}
}

// TestErrorsFindTheirWay: of those on the way to a guest, and of routers behind home whose addresses nobody there knows, to the guest. The provider's
// host alone is silent towards home: to the kernel, what it has to say of a packet from there is for its own pod of that address.
func TestErrorsFindTheirWay(t *testing.T) {
	alice, _, guest := pair(t)
	listen := func(p *end) *icmp.PacketConn {
		var c *icmp.PacketConn
		var err error
		p.in(func() { c, err = icmp.ListenPacket("ip4:icmp", p.addr.String()) })
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	atAlice, atGuest := listen(alice.end), listen(guest)
	for hop, want := range map[int]string{1: "10.42.0.1", 3: "10.65.0.5"} {
		alice.udp("10.65.0.5:33434", ttl(hop)).Write([]byte("who is there"))
		if from, quoted := nextError(t, atAlice); from != want || quoted.Src.String() != "10.42.0.5" || quoted.Dst.String() != "10.65.0.5" {
			t.Errorf("hop %d answered from %s, want %s, about %s → %s", hop, from, want, quoted.Src, quoted.Dst)
		}
	}
	for hop, want := range map[int]string{1: "10.65.0.1", 2: "10.42.255.2", 3: "10.42.0.5"} {
		guest.udp("10.42.0.5:33434", ttl(hop)).Write([]byte("who is there"))
		if from, quoted := nextError(t, atGuest); from != want || quoted.Src.String() != "10.65.0.5" || quoted.Dst.String() != "10.42.0.5" {
			t.Errorf("hop %d of the guest's answered from %s, want %s, about %s → %s", hop, from, want, quoted.Src, quoted.Dst)
		}
	}
	// A router behind alice speaks from an address that nobody else knows: it gets the gateway's.
	must(t, alice.hostNL.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix("10.42.9.0/24")), Gw: podAddr.AsSlice()}))
	address(t, alice.nl, "lo", "192.168.78.1/32")
	must(t, alice.nl.RouteReplace(&netlink.Route{Gw: net.IPv4(10, 42, 0, 1), Src: net.IPv4(192, 168, 78, 1)}))
	var err error
	alice.in(func() { err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	must(t, err)
	guest.udp("10.42.9.1:33435", ttl(3)).Write([]byte("who is there"))
	if from, quoted := nextError(t, atGuest); from != "10.42.255.2" || quoted.Dst.String() != "10.42.9.1" {
		t.Errorf("a router with an unknown address answered from %s about %s", from, quoted.Dst)
	}
}

func nextError(t *testing.T, c *icmp.PacketConn) (from string, quoted *ipv4.Header) {
	t.Helper()
	b := make([]byte, 1500)
	for {
		c.SetReadDeadline(time.Now().Add(patience))
		n, addr, err := c.ReadFrom(b)
		must(t, err)
		m, err := icmp.ParseMessage(1, b[:n])
		must(t, err)
		var data []byte
		switch body := m.Body.(type) {
		case *icmp.TimeExceeded:
			data = body.Data
		case *icmp.DstUnreach:
			data = body.Data
		default:
			continue
		}
		h, err := icmp.ParseIPv4Header(data)
		must(t, err)
		return addr.String(), h
	}
}

// TestThreeLaptopsTwoHomes: all have the same pods. Alice has guests at bob and at carol, who meet by way of her; dave has guests at bob. Bob
// and carol know nothing of each other.
func TestThreeLaptopsTwoHomes(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol, dave := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3), l.laptop("dave", 4)
	atBob := meet(alice, bob, "10.65.0.0/24", "10.66.0.0/24")
	atCarol := meet(alice, carol, "10.66.0.0/24", "10.65.0.0/24")
	davesAtBob := meet(dave, bob, "10.67.0.0/24")
	all := []*end{alice.end, bob.end, carol.end, dave.end, atBob, atCarol, davesAtBob}
	for _, p := range all {
		p.serveTCP(80, func(c net.Conn) { fmt.Fprintf(c, "%s saw ", p.name); whoCalls(c) })
	}
	for _, c := range []struct {
		from     *end
		to, want string
	}{
		{alice.end, "10.65.0.5:80", "10.65.0.5 at bob saw 10.42.0.5"},
		{alice.end, "10.66.0.5:80", "10.66.0.5 at carol saw 10.42.0.5"},
		{dave.end, "10.67.0.5:80", "10.67.0.5 at bob saw 10.42.0.5"},
		{atBob, "10.42.0.5:80", "alice saw 10.65.0.5"},
		{davesAtBob, "10.42.0.5:80", "dave saw 10.67.0.5"},
		{atCarol, "10.42.0.5:80", "alice saw 10.66.0.5"},
		{atBob, "10.66.0.5:80", "10.66.0.5 at carol saw 10.65.0.5"},
		{atCarol, "10.65.0.5:80", "10.65.0.5 at bob saw 10.66.0.5"},
		{atBob, "10.65.0.5:80", "10.65.0.5 at bob saw 10.65.0.5"},
		{bob.end, "10.42.0.5:80", "bob saw 10.42.0.5"},
	} {
		if got := c.from.ask(c.to); got != c.want {
			t.Errorf("%s asks %s: %q, want %q", c.from.name, c.to, got, c.want)
		}
	}
	// Without a fence, which is not here, it is by the data path alone that nothing else passes the tunnel.
	for _, c := range []struct {
		from *end
		to   string
	}{{carol.end, "10.65.0.5:80"}, {davesAtBob, "10.66.0.5:80"}, {dave.end, "10.65.0.5:80"}, {carol.end, "10.67.0.5:80"}} {
		if conn, err := c.from.dialFor(c.to, 300*time.Millisecond); err == nil {
			conn.Close()
			t.Errorf("%s reaches %s", c.from.name, c.to)
		}
	}
	transfer(t, atBob, atCarol, "10.66.0.5", 5_000_000)
}

// TestHomesOwnPodsPassBesideItsGuestsTraffic: with as much between her guests as the machine can do, alice's pod is heard; and her gateway ends when
// it is told to.
func TestHomesOwnPodsPassBesideItsGuestsTraffic(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	atBob, atCarol := meet(alice, bob, "10.65.0.0/24", "10.66.0.0/24"), meet(alice, carol, "10.66.0.0/24", "10.65.0.0/24")
	atBob.serveTCP(80, whoCalls)
	var arrived atomic.Int64
	atCarol.serveTCP(81, func(c net.Conn) {
		for b := make([]byte, 1<<16); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			arrived.Add(int64(n))
		}
	})
	for range 4 {
		c, err := atBob.dial("10.66.0.5:81")
		must(t, err)
		t.Cleanup(func() { c.Close() })
		go func() {
			for b := make([]byte, 1<<16); err == nil; _, err = c.Write(b) {
			}
		}()
	}
	for range 50 {
		if who := alice.ask("10.65.0.5:80"); who != "10.42.0.5" {
			t.Fatalf("%q called", who)
		}
	}
	was := arrived.Load()
	for end := time.Now().Add(patience); arrived.Load() < was+10_000_000; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing passes between guests")
		}
	}
	alice.stop()
}

func TestPing(t *testing.T) {
	alice, _, _ := pair(t)
	for _, size := range []int{0, 56, 1372, 4000} {
		if err := alice.ping("10.65.0.5", size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// ping sends one ICMP echo of the given payload from the pod.
func (p *end) ping(to string, size int) error {
	p.t.Helper()
	var c *icmp.PacketConn
	var err error
	p.in(func() { c, err = icmp.ListenPacket("ip4:icmp", p.addr.String()) })
	must(p.t, err)
	defer c.Close()
	msg := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: size, Data: []byte(strings.Repeat("x", size))}}
	b, err := msg.Marshal(nil)
	must(p.t, err)
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.WriteTo(b, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
		return err
	}
	in := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(in)
		if err != nil {
			return err
		}
		if m, err := icmp.ParseMessage(1, in[:n]); err == nil && m.Type == ipv4.ICMPTypeEchoReply && from.String() == to {
			if e := m.Body.(*icmp.Echo); e.Seq == size && len(e.Data) == size {
				return nil
			}
		}
	}
}
