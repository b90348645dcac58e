package network

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/net/netplan"
)

// A node port that is open to the LAN is not open to whoever is at the other end of a VPN.
func TestNodePortsAreOpenToTheLANAndNotThroughAVPN(t *testing.T) {
	l := newLAN(t)
	if err := Setup(t.Context(), options(t), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	l.pod(t)
	l.vpn(t)
	for range 20 { // links need a moment
		if c, err := net.DialTimeout("tcp", "10.42.0.7:8080", 500*time.Millisecond); err == nil {
			c.Close()
			break
		}
	}
	// As kube-proxy has it for a node port, and the plugin portmap for a hostPort.
	nft(t, "add table ip nat; add chain ip nat in { type nat hook prerouting priority dstnat; };"+
		"add rule ip nat in fib daddr type local tcp dport { 30080, 8088 } dnat to 10.42.0.7:8080")
	for _, tt := range []struct {
		to   string
		want bool
	}{{laptopIP + ":30080", true}, {laptopIP + ":8088", true}, {"172.31.0.1:8088", true}, {"172.31.0.1:30080", false}} {
		if _, heard := l.hears(t, tt.to); heard != tt.want {
			t.Errorf("%s: reached is %t, want %t", tt.to, heard, tt.want)
		}
	}
	nft(t, "flush chain ip "+Table+" far")
	if _, heard := l.hears(t, "172.31.0.1:30080"); !heard {
		t.Error("without the rule it is not reached either: the test proves nothing")
	}
}

// A laptop on a LAN of IPv6 alone, or on none, has no route that a packet to a service could take.
func TestTheLaptopReachesServicesWithoutADefaultRoute(t *testing.T) {
	l := newLAN(t)
	o, before := options(t), options(t)
	before.ServiceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	for _, o := range []Options{before, o, o} {
		if err := Setup(t.Context(), o, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	l.pod(t)
	nft(t, "add table ip nat; add chain ip nat out { type nat hook output priority -100; };"+ // as kube-proxy has it
		"add rule ip nat out ip daddr 10.43.0.10 tcp dport 80 dnat to 10.42.0.7:8080")
	ask := func() (from string, err error) {
		c, err := net.DialTimeout("tcp", "10.43.0.10:80", time.Second)
		if err != nil {
			return "", err
		}
		defer c.Close()
		b, err := io.ReadAll(c)
		return string(b), err
	}
	from, err := ask()
	for tries := 0; tries < 10 && err != nil; tries++ { // links need a moment
		from, err = ask()
	}
	if err != nil || from != "10.42.0.1" { // as where it is asked over the LAN's default route
		t.Errorf("the service saw %q, %v", from, err)
	}
	if r, err := netlink.RouteGet(net.ParseIP("10.96.0.10")); err == nil {
		t.Errorf("the services of another configuration still have a route: %v", r)
	}
	// Where there is another way that is taken, and what comes back finds home by it.
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(neighbourIP)}); err != nil {
		t.Fatal(err)
	}
	if r, err := netlink.RouteGet(net.ParseIP("10.43.0.10")); err != nil || !r[0].Src.Equal(net.ParseIP(laptopIP)) {
		t.Errorf("with a default route: %v, %v", r, err)
	}
}

func nft(t *testing.T, script string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(script, ";add", ";\nadd"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s\n%s", err, out, script)
	}
}

// pod answers at 10.42.0.7:8080 behind a device called like the pods' bridge.
func (l lan) pod(t *testing.T) {
	t.Helper()
	h, err := netns.New() // the thread is in there now
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if err := netns.Set(l.laptop); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: netplan.Bridge}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h)}); err != nil {
		t.Fatal(err)
	}
	up(t, netplan.Bridge, "10.42.0.1/24")
	l.in(t, h, func() {
		up(t, "eth0", "10.42.0.7/24")
		if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.42.0.1")}); err != nil {
			t.Fatal(err)
		}
		answer(t, "10.42.0.7:8080")
	})
}

// vpn is a wire of IP packets between laptop (172.31.0.1) and neighbour, as a VPN makes it.
func (l lan) vpn(t *testing.T) {
	t.Helper()
	end := func(ip string) *os.File {
		tun := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: "vpn0"}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI, Queues: 1, NonPersist: true,
		}
		if err := netlink.LinkAdd(tun); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tun.Fds[0].Close() })
		up(t, "vpn0", ip)
		return tun.Fds[0]
	}
	near := end("172.31.0.1/24")
	var far *os.File
	l.in(t, l.neighbour, func() { far = end("172.31.0.2/24") })
	for _, way := range [][2]*os.File{{near, far}, {far, near}} {
		go func() {
			packet := make([]byte, 2048)
			for {
				n, err := way[0].Read(packet)
				if err != nil {
					return
				}
				_, _ = way[1].Write(packet[:n]) // lost, as packets are
			}
		}()
	}
}

func up(t *testing.T, name, addr string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}
