package network

import (
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Guests are known by their links: their ranges are agreed on with each home, and are none of the engine's.
func TestAGuestIsHiddenOnTheLANAndReachedByPortsOfTheHostAlone(t *testing.T) {
	l := newLAN(t)
	if err := Setup(t.Context(), options(t), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	guest := l.guest(t)
	l.in(t, l.neighbour, func() {
		answer(t, neighbourIP+":9000")
		_, to, _ := net.ParseCIDR("10.127.0.0/24")
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(laptopIP)}); err != nil {
			t.Fatal(err)
		}
	})
	// As kube-proxy has it for a node port and for a service, and the plugin portmap for a hostPort.
	nft(t, "add table ip nat; add chain ip nat in { type nat hook prerouting priority dstnat; };"+
		"add chain ip nat out { type nat hook output priority -100; };"+
		"add rule ip nat in fib daddr type local tcp dport 8088 dnat to 10.127.0.2:8080;"+
		"add rule ip nat out ip daddr 192.0.2.200 tcp dport 80 dnat to 10.127.0.2:8080")
	seen := ""
	for range 20 { // links need a moment
		if seen = l.sees(t, guest, neighbourIP+":9000"); seen != "" {
			break
		}
	}
	if seen != laptopIP {
		t.Errorf("on the LAN a guest is seen as %q, want the laptop's %s", seen, laptopIP)
	}
	if from, _ := l.hears(t, laptopIP+":8088"); from != neighbourIP {
		t.Errorf("by a port of the host a guest is asked by %q, want %s", from, neighbourIP)
	}
	if _, heard := l.hears(t, "10.127.0.2:8080"); heard {
		t.Error("a neighbour who knows the way reaches a guest")
	}
	// A service: its address is reached by the LAN, so the laptop asks with the one it has there.
	if from := l.sees(t, l.laptop, "192.0.2.200:80"); from != "10.127.0.1" {
		t.Errorf("a guest is asked by the host as %q, want 10.127.0.1", from)
	}
	nft(t, "flush chain ip "+Table+" far")
	if _, heard := l.hears(t, "10.127.0.2:8080"); !heard {
		t.Error("without the rule it is not reached either: the test proves nothing")
	}
}

// Docker, and some firewalls, have the kernel forward nothing that no rule allows.
func TestGuestsAndPeersPassWhereForwardingIsForbidden(t *testing.T) {
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("there is no iptables here")
	}
	l := newLAN(t)
	iptables := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "iptables", args...).CombinedOutput()
		if err != nil {
			t.Skipf("iptables %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	iptables("-P", "FORWARD", "DROP")
	for range 2 { // every start of a server sets up again
		if err := Setup(t.Context(), options(t), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if rules := iptables("-S", "FORWARD"); strings.Count(rules, "ACCEPT") != 6 {
		t.Errorf("%s", rules)
	}
	guest := l.guest(t)
	l.in(t, l.neighbour, func() { answer(t, neighbourIP+":9000") })
	seen := ""
	for tries := 0; tries < 20 && seen == ""; tries++ { // links need a moment
		seen = l.sees(t, guest, neighbourIP+":9000")
	}
	if seen != laptopIP {
		t.Errorf("a guest is seen as %q, want %s", seen, laptopIP)
	}
}

// guest makes a pod behind a link of its own, 10.127.0.2, as the plugins ptp and kith-mark do. It tells whoever asks at 8080 who he is.
func (l lan) guest(t *testing.T) netns.NsHandle {
	t.Helper()
	h, err := netns.New() // the thread is in there now
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if err := netns.Set(l.laptop); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vguest"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h)}); err != nil {
		t.Fatal(err)
	}
	up(t, "vguest", "10.127.0.1/32")
	link, err := netlink.LinkByName("vguest")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetGroup(link, GuestGroup); err != nil {
		t.Fatal(err)
	}
	way := func(to string, link netlink.Link, via net.IP, scope netlink.Scope) {
		_, dst, _ := net.ParseCIDR(to)
		if err := netlink.RouteAdd(&netlink.Route{Dst: dst, LinkIndex: link.Attrs().Index, Gw: via, Scope: scope}); err != nil {
			t.Fatal(err)
		}
	}
	way("10.127.0.2/32", link, nil, netlink.SCOPE_LINK)
	l.in(t, h, func() {
		up(t, "eth0", "10.127.0.2/32")
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		way("10.127.0.1/32", eth, nil, netlink.SCOPE_LINK)
		way("0.0.0.0/0", eth, net.ParseIP("10.127.0.1"), netlink.SCOPE_UNIVERSE)
		answer(t, "10.127.0.2:8080")
	})
	return h
}

// sees is what a server says of who asks it from a place.
func (l lan) sees(t *testing.T, from netns.NsHandle, addr string) (seen string) {
	t.Helper()
	l.in(t, from, func() {
		c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		seen = string(b)
	})
	return seen
}
