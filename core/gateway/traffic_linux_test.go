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
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"kith.dev/core/hostnet"
)

const patience = 10 * time.Second

// serveTCP lets the pod answer on a port: it says who called, then f goes on.
func (p *laptop) serveTCP(port int, f func(net.Conn)) {
	p.t.Helper()
	p.serveTCPAt(fmt.Sprintf("%s:%d", podAddr, port), f)
}

func (p *laptop) serveTCPAt(addr string, f func(net.Conn)) {
	p.t.Helper()
	var l net.Listener
	var err error
	p.inPod(func() { l, err = net.Listen("tcp4", addr) })
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

func (p *laptop) dial(to string) (net.Conn, error) {
	p.t.Helper()
	return p.dialFor(to, patience)
}

func (p *laptop) dialFor(to string, d time.Duration) (c net.Conn, err error) {
	p.t.Helper()
	p.inPod(func() { c, err = net.DialTimeout("tcp4", to, d) })
	if c != nil {
		c.SetDeadline(time.Now().Add(6 * patience))
	}
	return c, err
}

// ask reads all that a TCP server of another pod says.
func (p *laptop) ask(to string) string {
	p.t.Helper()
	c, err := p.dial(to)
	must(p.t, err)
	defer c.Close()
	b, err := io.ReadAll(c)
	must(p.t, err)
	return string(b)
}

// serveUDP answers each datagram with its length and sender.
func (p *laptop) serveUDP(port int) {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.inPod(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: podAddr.AsSlice(), Port: port}) })
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
func (p *laptop) udp(to string, options ...[3]int) *net.UDPConn {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.inPod(func() { c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))) })
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

func exchange(c *net.UDPConn, size int) (string, error) {
	c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Write(make([]byte, size)); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func pair(t *testing.T) (alice, bob *laptop) {
	l := newLAN(t)
	alice, bob = l.laptop("alice", 1), l.laptop("bob", 2)
	meet(alice, bob, "10.65.0.0/16", "10.70.0.0/16")
	return alice, bob
}

func TestPodsWithTheSameAddressTalk(t *testing.T) {
	alice, bob := pair(t)
	alice.serveTCP(80, whoCalls)
	bob.serveTCP(80, whoCalls)
	if got := alice.ask("10.65.0.5:80"); got != "10.70.0.5" {
		t.Errorf("bob saw %s call", got)
	}
	if got := bob.ask("10.70.0.5:80"); got != "10.65.0.5" {
		t.Errorf("alice saw %s call", got)
	}
	bob.serveUDP(90)
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
		if want := fmt.Sprintf("%d 10.70.0.5", c.size); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestLargeTransfersArriveWhole(t *testing.T) {
	alice, bob := pair(t)
	transfer(t, alice, bob, "10.65.0.5", 60_000_000)
}

// transfer downloads and uploads n bytes and compares what arrived.
func transfer(t *testing.T, from, to *laptop, addr string, n int64) {
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
	alice, _ := pair(t)
	if _, err := alice.dial("10.65.0.5:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("TCP: %v", err)
	}
	if _, err := exchange(alice.udp("10.65.0.5:9"), 10); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP: %v", err)
	}
}

// TestEveryHopOfTracerouteShows sends datagrams that die on the way and looks who reports it.
func TestEveryHopOfTracerouteShows(t *testing.T) {
	alice, bob := pair(t)
	var c *icmp.PacketConn
	var err error
	alice.inPod(func() { c, err = icmp.ListenPacket("ip4:icmp", podAddr.String()) })
	must(t, err)
	defer c.Close()
	for hop, want := range []string{1: "10.42.0.1", 2: "10.65.255.2", 3: "10.65.0.5"} {
		if hop == 0 {
			continue
		}
		alice.udp("10.65.0.5:33434", ttl(hop)).Write([]byte("who is there"))
		from, quoted := nextError(t, c)
		if from != want {
			t.Errorf("hop %d answered from %s, want %s", hop, from, want)
		}
		if quoted.Src.String() != "10.42.0.5" || quoted.Dst.String() != "10.65.0.5" {
			t.Errorf("hop %d quotes %s → %s, which the sender does not know", hop, quoted.Src, quoted.Dst)
		}
	}
	// A router behind bob speaks from an address that alice does not know: it gets the gateway's.
	must(t, bob.hostNL.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix("10.42.9.0/24")), Gw: podAddr.AsSlice()}))
	address(t, bob.podNL, "lo", "192.168.78.1/32")
	must(t, bob.podNL.RouteReplace(&netlink.Route{Gw: net.IPv4(10, 42, 0, 1), Src: net.IPv4(192, 168, 78, 1)}))
	bob.inPod(func() { err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	must(t, err)
	alice.udp("10.65.9.1:33435", ttl(3)).Write([]byte("who is there"))
	if from, quoted := nextError(t, c); from != "10.65.255.2" || quoted.Dst.String() != "10.65.9.1" {
		t.Errorf("a router with an unknown address answered from %s about %s", from, quoted.Dst)
	}
}

func nextError(t *testing.T, c *icmp.PacketConn) (from string, quoted *ipv4.Header) {
	t.Helper()
	b := make([]byte, 1500)
	for {
		c.SetReadDeadline(time.Now().Add(3 * time.Second))
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

// TestTwoPeersMayCallUsTheSame has bob and carol give alice the same alias, and dave nothing to rewrite.
func TestTwoPeersMayCallUsTheSame(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	meet(alice, bob, "10.65.0.0/16", "10.70.0.0/16")
	meet(alice, carol, "10.66.0.0/16", "10.70.0.0/16")
	meet(bob, carol, "10.100.0.0/16", "172.20.0.0/16")
	for _, p := range []*laptop{alice, bob, carol} {
		p.serveTCP(80, func(c net.Conn) { fmt.Fprintf(c, "%s saw ", p.name); whoCalls(c) })
	}
	for _, c := range []struct {
		from     *laptop
		to, want string
	}{
		{alice, "10.65.0.5:80", "bob saw 10.70.0.5"},
		{alice, "10.66.0.5:80", "carol saw 10.70.0.5"},
		{bob, "10.70.0.5:80", "alice saw 10.65.0.5"},
		{carol, "10.70.0.5:80", "alice saw 10.66.0.5"},
		{bob, "10.100.0.5:80", "carol saw 172.20.0.5"},
		{carol, "172.20.0.5:80", "bob saw 10.100.0.5"},
	} {
		if got := c.from.ask(c.to); got != c.want {
			t.Errorf("%s asks %s: %q, want %q", c.from.name, c.to, got, c.want)
		}
	}
}

func TestPing(t *testing.T) {
	alice, _ := pair(t)
	for _, size := range []int{0, 56, 1392, 4000} {
		if err := alice.ping("10.65.0.5", size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// ping sends one ICMP echo of the given payload from the pod.
func (p *laptop) ping(to string, size int) error {
	p.t.Helper()
	var c *icmp.PacketConn
	var err error
	p.inPod(func() { c, err = icmp.ListenPacket("ip4:icmp", podAddr.String()) })
	must(p.t, err)
	defer c.Close()
	msg := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: size, Data: []byte(strings.Repeat("x", size))}}
	b, err := msg.Marshal(nil)
	must(p.t, err)
	c.SetDeadline(time.Now().Add(2 * time.Second))
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
