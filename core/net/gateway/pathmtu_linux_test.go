package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/datapath"
)

func TestTunnelMTU(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		path  int
		outer netip.Addr
		want  int
	}{
		{1500, v4, 1400}, {1500, v6, 1400}, {1480, v4, 1400}, {1479, v4, 1388}, {1499, v6, 1388},
		{1300, v4, 1212}, {1300, v6, 1196}, {9000, v4, 1400}, {576, v4, 576}, {0, v4, 576},
	} {
		got := tunnelMTU(c.path, c.outer)
		if got != c.want {
			t.Errorf("path %d to %s: %d, want %d", c.path, c.outer, got, c.want)
		}
		if overhead := 60 + (c.outer.BitLen()-32)/96*20; c.path > 700 && got < DefaultMTU && (got+datapath.Header+15)&^15+overhead > c.path {
			t.Errorf("path %d: %d with padding does not fit", c.path, got)
		}
	}
}

// largest finds by DF datagrams what the pod's kernel has learned about the path.
func (p *end) largest(t *testing.T, to string) int {
	t.Helper()
	c := p.udp(to, dontFragment)
	for deadline := time.Now().Add(patience); ; {
		_, err := exchangeFor(c, p.mtu(c)-28, 3*time.Second) // what is too large is lost until the kernel has learned of it
		if err == nil {
			return p.mtu(c)
		}
		if !errors.Is(err, syscall.EMSGSIZE) && !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			t.Fatalf("a datagram of %d: %v", p.mtu(c), err)
		}
	}
}

func (p *end) mtu(c *net.UDPConn) (mtu int) {
	raw, _ := c.SyscallConn()
	raw.Control(func(fd uintptr) { mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU) })
	return mtu
}

func TestPodsLearnThePathMTU(t *testing.T) {
	alice, _, guest := pair(t)
	guest.serveUDP(90)
	alice.serveUDP(91)
	if got := alice.largest(t, "10.65.0.5:90"); got != 1400 {
		t.Errorf("through the tunnel: %d", got)
	}
	narrow(t, alice.hostNL, "p0", 1300)
	if got := guest.largest(t, "10.42.0.5:91"); got != 1300 {
		t.Errorf("with a narrow link behind alice: %d", got)
	}
	transfer(t, alice.end, guest, "10.65.0.5", 5_000_000)
}

// TestNarrowLAN has an underlay of 1300 bytes, known from the interface.
func TestNarrowLAN(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	narrow(t, alice.hostNL, "u0", 1300)
	narrow(t, bob.hostNL, "u0", 1300)
	guest := meet(alice, bob, "10.65.0.0/24")
	if got := alice.do(order{Do: "stats"}).Stats["bob"].MTU; got != 1212 {
		t.Errorf("MTU %d", got)
	}
	guest.serveUDP(90)
	if got := alice.largest(t, "10.65.0.5:90"); got != 1212 {
		t.Errorf("pods learned %d", got)
	}
	if got, err := exchange(alice.udp("10.65.0.5:90"), 8000); err != nil || got != "8000 10.42.0.5" {
		t.Errorf("fragments: %q, %v", got, err)
	}
	transfer(t, alice.end, guest, "10.65.0.5", 5_000_000)
}

// routed puts bob behind a router: alice - 172.31.0.0/24 - router - 192.168.9.0/24 - bob.
func routed(t *testing.T) (alice, bob *laptop, router *netlink.Handle) {
	l := newLAN(t)
	l.forward(t)
	alice = l.laptop("alice", 1)
	bob = l.host("bob", 2)
	connect(t, l.nl, "narrow", bob.hostNL, bob.host, "u0", 1500)
	address(t, l.nl, "narrow", "192.168.9.1/24")
	address(t, bob.hostNL, "u0", "192.168.9.2/24")
	must(t, bob.hostNL.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 9, 1)}))
	bob.elsewhere = netip.MustParseAddr("192.168.9.2")
	bob.start()
	return alice, bob, l.nl
}

// forward makes the LAN's own namespace forward, as a router.
func (l *lan) forward(t *testing.T) {
	t.Helper()
	var err error
	inside(t, l.ns, func() { err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	must(t, err)
}

// TestNarrowHopOnTheWay lowers the MTU of a link that alice is not attached to, in the middle of a transfer.
func TestNarrowHopOnTheWay(t *testing.T) {
	alice, bob, router := routed(t)
	narrowHop(t, alice, bob, router, 1212)
}

// TestNarrowHopOfIPv6 does so where no router cuts anything up (RFC 8200, section 5).
func TestNarrowHopOfIPv6(t *testing.T) {
	l := newLAN(t)
	set := func(h netns.NsHandle, key, value string) {
		inside(t, h, func() {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+key, []byte(value), 0); err != nil {
				t.Skipf("no IPv6 here: %v", err)
			}
		})
	}
	give := func(nl *netlink.Handle, dev, cidr string) {
		a := parseAddr(t, cidr)
		a.Flags = unix.IFA_F_NODAD
		must(t, nl.AddrAdd(link(t, nl, dev), a))
	}
	set(l.ns, "all/forwarding", "1")
	alice, bob := l.laptop("alice", 1), l.host("bob", 2)
	connect(t, l.nl, "narrow", bob.hostNL, bob.host, "u0", 1500)
	give(l.nl, "br0", "fd00:6b::fe/64")
	give(l.nl, "narrow", "fd00:9::1/64")
	give(bob.hostNL, "u0", "fd00:9::2/64")
	must(t, bob.hostNL.RouteAdd(&netlink.Route{Gw: net.ParseIP("fd00:9::1")}))
	alice.speaksIPv6("fd00:6b::")
	alice.losesIPv4()
	must(t, alice.hostNL.RouteAdd(&netlink.Route{Gw: net.ParseIP("fd00:6b::fe")}))
	bob.elsewhere = netip.MustParseAddr("fd00:9::2")
	bob.start()
	narrowHop(t, alice, bob, l.nl, 1196)
}

// narrowHop makes the last link narrow, and wants alice to find out how much fits through the tunnel then.
func narrowHop(t *testing.T, alice, bob *laptop, router *netlink.Handle, want int) {
	t.Helper()
	guest := meet(alice, bob, "10.65.0.0/24")
	guest.serveTCP(83, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprint(c, n)
	})
	c, err := alice.dial("10.65.0.5:83")
	must(t, err)
	chunk := make([]byte, 5_000_000)
	_, err = c.Write(chunk)
	must(t, err)
	narrow(t, router, "narrow", 1300)
	narrow(t, bob.hostNL, "u0", 1300)
	start := time.Now()
	// A router tells of its MTU only when a datagram came alone; those sent as a batch it cuts up.
	guest.serveUDP(90)
	for u, late := alice.udp("10.65.0.5:90"), start.Add(patience); ; {
		u.Write(make([]byte, 1372))
		u.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := u.Read(make([]byte, 100)); err == nil {
			break
		} else if time.Now().After(late) {
			t.Fatal("large datagrams do not arrive any more")
		}
	}
	_, err = c.Write(chunk)
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	must(t, err)
	if string(got) != "10000000" {
		t.Errorf("bob got %s bytes", got)
	}
	t.Logf("going on over the narrow path took %s", time.Since(start))
	if got := alice.do(order{Do: "stats"}).Stats["bob"].MTU; got != want {
		t.Errorf("alice uses an MTU of %d, not %d", got, want)
	}
	transfer(t, alice.end, guest, "10.65.0.5", 5_000_000)
}

// TestEchoProvesThatFullPacketsPass asks with packets as large as the tunnel says it takes.
func TestEchoProvesThatFullPacketsPass(t *testing.T) {
	alice, bob, _ := routed(t)
	meet(alice, bob, "10.65.0.0/24")
	mtu := alice.do(order{Do: "stats"}).Stats["bob"].MTU
	if d := alice.do(order{Do: "rtt", ID: "bob", Size: mtu}).RTT; d <= 0 {
		t.Errorf("%d bytes went and came in %s", mtu, d)
	}
}

// TestEndpointInsideAnAlias has bob's real network inside the alias that alice uses for bob.
func TestEndpointInsideAnAlias(t *testing.T) {
	alice, bob, _ := routed(t)
	guest := meet(alice, bob, "192.168.0.0/16")
	guest.serveTCP(80, whoCalls)
	if got := alice.ask("192.168.0.5:80"); got != "10.42.0.5" {
		t.Errorf("bob saw %s", got)
	}
	if d := alice.do(order{Do: "drops"}).Drops; d["loop"] != 0 || d["source"] != 0 {
		t.Errorf("the tunnel's own packets entered the tunnel: %v", d)
	}
}

func narrow(t *testing.T, nl *netlink.Handle, dev string, mtu int) {
	t.Helper()
	must(t, nl.LinkSetMTU(link(t, nl, dev), mtu))
}
