package network

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestOtherNodesAreNoStrangers: they and their pods reach this node and its pods, which they see as they are; over a restart, too, and not once
// they are nodes no more.
func TestOtherNodesAreNoStrangers(t *testing.T) {
	l := newLAN(t)
	o := options(t)
	o.Cluster, o.DNSPort = true, 10053
	setup := func() {
		t.Helper()
		if err := Setup(t.Context(), o, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	setup()
	l.pod(t)
	answer(t, "10.42.255.1:8081")
	l.in(t, l.neighbour, func() {
		answer(t, neighbourIP+":9000")
		for _, dst := range []string{"10.42.0.0/24", "10.42.255.1/32", "10.43.0.0/16"} {
			_, to, _ := net.ParseCIDR(dst)
			if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(laptopIP)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := netlink.ParseAddr("10.42.0.9/32") // stands for a pod that asks: what counts is the packet's source
	if err := netlink.AddrAdd(lo, pod); err != nil {
		t.Fatal(err)
	}
	seen := func() string {
		c, err := (&net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: pod.IP}}).Dial("tcp", neighbourIP+":9000")
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	for _, step := range []struct {
		name string
		do   func()
		open bool
	}{
		{"a neighbour", func() {}, false},
		{"a node", func() {
			if err := Others(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix(neighbourIP + "/32")}); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a node, after a restart", setup, true},
		{"a node that was", func() {
			if err := Others(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		step.do()
		for _, to := range []string{"10.42.0.7:8080", "10.42.255.1:8081"} {
			_, heard := l.hears(t, to)
			for tries := 0; step.open && !heard && tries < 20; tries++ { // links need a moment
				_, heard = l.hears(t, to)
			}
			if heard != step.open {
				t.Errorf("%s reaches %s: %t", step.name, to, heard)
			}
		}
		want := laptopIP
		if step.open {
			want = "10.42.0.9"
		}
		if got := seen(); got != want {
			t.Errorf("%s sees a pod as %s, want %s", step.name, got, want)
		}
	}
	o.Cluster = false
	setup()
	if err := Others(t.Context(), nil); err == nil {
		t.Error("a laptop alone has a set of other nodes")
	}
}

// TestANodeMayBeAtItsMachinesAddress: of which everything stays open that was, and nothing of the cluster's is.
func TestANodeMayBeAtItsMachinesAddress(t *testing.T) {
	l := newLAN(t)
	o := options(t)
	o.NodeIP, o.DNSPort = netip.MustParseAddr(laptopIP), 10053
	log := slog.New(slog.DiscardHandler)
	if err := Setup(t.Context(), o, log); err == nil || !strings.Contains(err.Error(), "node-ip "+laptopIP+" is the address of the device eth0") {
		t.Errorf("a laptop at its LAN's address: %v", err)
	}
	o.Cluster = true
	if err := Setup(t.Context(), o, log); err != nil {
		t.Fatal(err)
	}
	answer(t, "0.0.0.0:8080")
	answer(t, "0.0.0.0:10053")
	for to, want := range map[string]bool{laptopIP + ":8080": true, laptopIP + ":10053": false} {
		_, heard := l.hears(t, to)
		for tries := 0; want && !heard && tries < 20; tries++ {
			_, heard = l.hears(t, to)
		}
		if heard != want {
			t.Errorf("%s: reached is %t", to, heard)
		}
	}
	if err := Others(t.Context(), []netip.Prefix{netip.MustParsePrefix(neighbourIP + "/32")}); err != nil {
		t.Fatal(err)
	}
	if _, heard := l.hears(t, laptopIP+":10053"); !heard {
		t.Error("another node does not reach the cluster's DNS")
	}
}

func TestRangesInOthersAreLeftOut(t *testing.T) {
	p := netip.MustParsePrefix
	got := merged([]netip.Prefix{p("10.42.1.0/24"), p("192.0.2.3/32"), p("10.42.1.7/32"), p("192.0.2.3/32"), p("10.42.2.0/24")})
	if want := []netip.Prefix{p("10.42.1.0/24"), p("192.0.2.3/32"), p("10.42.2.0/24")}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
