package network

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nodedevice"
)

// lan is a laptop and its neighbour on one wire, each in a network namespace of its own.
type lan struct {
	laptop, neighbour netns.NsHandle
}

const (
	laptopIP    = "192.0.2.11"
	neighbourIP = "192.0.2.99"
)

func options(t *testing.T) Options {
	dir := t.TempDir()
	return Options{
		NodeIP:  netip.MustParseAddr("10.42.255.1"),
		PodCIDR: netip.MustParsePrefix("10.42.0.0/24"), ServiceCIDR: netip.MustParsePrefix("10.43.0.0/16"),
		MTU: 1400, CNIConf: filepath.Join(dir, "net.d"), GuestConf: filepath.Join(dir, "guests.d"), CNIData: filepath.Join(dir, "addresses"), GuestNetworks: filepath.Join(dir, "guests"),
	}
}

func newLAN(t *testing.T) lan {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	var l lan
	for _, ns := range []*netns.NsHandle{&l.neighbour, &l.laptop} {
		h, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		*ns = h
	}
	// The thread is in the laptop now.
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(l.neighbour)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	l.in(t, l.neighbour, func() { plug(t, neighbourIP) })
	plug(t, laptopIP)
	return l
}

func plug(t *testing.T, ip string) {
	t.Helper()
	for name, addr := range map[string]string{"lo": "", "eth0": ip + "/24"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if addr != "" {
			a, _ := netlink.ParseAddr(addr)
			if err := netlink.AddrAdd(link, a); err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
}

// in runs f in a namespace and comes back to the laptop.
func (l lan) in(t *testing.T, ns netns.NsHandle, f func()) {
	t.Helper()
	if err := netns.Set(ns); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(l.laptop); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// hears tells whether the neighbour, who knows the way, reaches addr.
func (l lan) hears(t *testing.T, addr string) (from string, heard bool) {
	t.Helper()
	l.in(t, l.neighbour, func() {
		d := net.Dialer{Timeout: 500 * time.Millisecond}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		from, heard = string(b), true
	})
	return from, heard
}

// answer listens on addr of the namespace the thread is in, and tells each caller who he is.
func answer(t *testing.T, addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host)
			c.Close()
		}
	}()
}

func TestNeighbourWhoKnowsTheWayReachesTheLaptopAndNotItsCluster(t *testing.T) {
	l := newLAN(t)
	o := options(t)
	if err := nodedevice.Ensure(netplan.Node, o.NodeIP); err != nil {
		t.Fatal(err)
	}
	answer(t, "0.0.0.0:8080")
	l.in(t, l.neighbour, func() {
		for _, dst := range []string{"10.42.0.0/16", "10.43.0.0/16"} {
			_, to, _ := net.ParseCIDR(dst)
			if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(laptopIP)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	heard := false
	for tries := 0; tries < 10 && !heard; tries++ { // links that just came up lose packets
		_, heard = l.hears(t, "10.42.255.1:8080")
	}
	if !heard {
		t.Fatal("without the rules the node's address is not reached: the test would prove nothing")
	}
	for range 2 { // every start of a server sets up again
		if err := Setup(t.Context(), o, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if _, heard := l.hears(t, "10.42.255.1:8080"); heard {
		t.Error("a neighbour reaches the node's address")
	}
	if _, heard := l.hears(t, laptopIP+":8080"); !heard {
		t.Error("a neighbour no longer reaches the laptop itself")
	}
}

func TestLANThatHasTheServiceRangeIsSpared(t *testing.T) {
	l := newLAN(t)
	for ns, ip := range map[netns.NsHandle]string{l.laptop: "10.43.7.1/24", l.neighbour: "10.43.7.2/24"} {
		l.in(t, ns, func() {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				t.Fatal(err)
			}
			a, _ := netlink.ParseAddr(ip)
			if err := netlink.AddrAdd(link, a); err != nil {
				t.Fatal(err)
			}
		})
	}
	answer(t, "0.0.0.0:8080")
	if err := Setup(t.Context(), options(t), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, heard := l.hears(t, "10.43.7.1:8080"); !heard {
		t.Error("a laptop whose LAN has the service range lost its LAN")
	}
}

func TestPodIsHiddenOnTheLANAndNotBehindTheGateway(t *testing.T) {
	l := newLAN(t)
	o := options(t)
	if err := Setup(t.Context(), o, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	// An address of the pod range on loopback stands for a pod: what counts is the packet's source.
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := netlink.ParseAddr("10.42.0.7/32")
	if err := netlink.AddrAdd(lo, pod); err != nil {
		t.Fatal(err)
	}
	l.in(t, l.neighbour, func() {
		answer(t, neighbourIP+":9000")
		_, to, _ := net.ParseCIDR("10.42.0.0/24")
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(laptopIP)}); err != nil {
			t.Fatal(err)
		}
	})
	seen := func() string {
		d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: pod.IP}}
		c, err := d.Dial("tcp", neighbourIP+":9000")
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := seen(); got != laptopIP {
		t.Errorf("on the LAN the pod is seen as %s, want the laptop's %s", got, laptopIP)
	}
	// The same wire, named as the gateway's device.
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netlink.LinkSetDown(eth), netlink.LinkSetName(eth, netplan.Tunnel), netlink.LinkSetUp(eth)); err != nil {
		t.Fatal(err)
	}
	if got := seen(); got != "10.42.0.7" {
		t.Errorf("behind the gateway the pod is seen as %s, want its own address", got)
	}
}

func TestNodeDeviceHasOneAddressWhateverItHadBefore(t *testing.T) {
	newLAN(t)
	for _, ip := range []string{"10.42.255.1", "10.42.255.1", "10.9.255.1"} {
		if err := nodedevice.Ensure("kith-node", netip.MustParseAddr(ip)); err != nil {
			t.Fatal(err)
		}
		link, err := netlink.LinkByName("kith-node")
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := netlink.AddrList(link, unix.AF_INET)
		if err != nil || len(addrs) != 1 || addrs[0].IPNet.String() != ip+"/32" {
			t.Errorf("%v, %v, want %s alone", addrs, err, ip)
		}
	}
}

func TestCNIConfigurationsSayRangesAndMTU(t *testing.T) {
	o := options(t)
	for range 2 {
		if err := writeCNI(o); err != nil {
			t.Fatal(err)
		}
	}
	for folder, ranges := range map[string]string{o.CNIConf: "host-local 10.42.0.0/24", o.GuestConf: "kith-mark " + o.GuestNetworks} {
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".conflist") {
			t.Fatalf("%s: %v, %v", folder, entries, err)
		}
		b, err := os.ReadFile(filepath.Join(folder, entries[0].Name()))
		if err != nil {
			t.Fatal(err)
		}
		var conf struct {
			Plugins []struct {
				MTU  int
				IPAM struct {
					Type, Networks, DataDir string
					Ranges                  [][]struct{ Subnet string }
				}
			}
		}
		if err := json.Unmarshal(b, &conf); err != nil {
			t.Fatal(err)
		}
		first := conf.Plugins[0]
		got := first.IPAM.Type + " " + first.IPAM.Networks
		if len(first.IPAM.Ranges) > 0 {
			got += first.IPAM.Ranges[0][0].Subnet
		}
		if first.MTU != o.MTU || got != ranges || first.IPAM.DataDir != o.CNIData {
			t.Errorf("%s: %+v, want addresses of %s and MTU %d", folder, first, ranges, o.MTU)
		}
	}
}

// A node that joins its cluster anew may have another range: until that is known its container runtime has no network to start pods on.
func TestTheNetworkOfAnotherRangeIsWithheld(t *testing.T) {
	o := options(t)
	o.CNIConf = t.TempDir()
	conf := filepath.Join(o.CNIConf, podsConf)
	for _, unless := range []netip.Prefix{{}, o.PodCIDR} {
		if err := Withhold(o.CNIConf, unless); err != nil {
			t.Errorf("with none written: %v", err)
		}
	}
	for _, tc := range []struct {
		unless netip.Prefix
		stays  bool
	}{{o.PodCIDR, true}, {netip.MustParsePrefix("10.42.3.0/24"), false}, {netip.Prefix{}, false}} {
		if err := writeCNI(o); err != nil {
			t.Fatal(err)
		}
		if err := Withhold(o.CNIConf, tc.unless); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(conf); (err == nil) != tc.stays {
			t.Errorf("of %s, unless it is %s: %v", o.PodCIDR, tc.unless, err)
		}
	}
}
