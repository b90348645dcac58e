package fence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/provide/guestnet"
)

// A world of both families has an address of IPv6 for each of IPv4, and routes, rules and services likewise; there the same is asked.

// sixOf is the address of IPv6 beside one of IPv4.
func sixOf(a netip.Addr) netip.Addr {
	b := a.As4()
	text := map[string]string{"169.254.169.254": "fd00:ec2::254", "192.168.1.1": "fe80::77", "172.16.0.1": "fc00::1", "10.9.9.9": "2002:a09:909::1", "100.64.0.1": "64:ff9b::6440:1", "0.0.0.0": "::"}[a.String()]
	switch {
	case text != "":
	case b[0] == 10 && b[1] == 42: // as netplan has node and gateway
		text = fmt.Sprintf("2001:cafe:42:%x::%x", b[2], b[3])
	case b[0] == 10 && b[1] == 43:
		text = fmt.Sprintf("2001:cafe:43::%x", int(b[2])<<8|int(b[3]))
	case b[0] == 10:
		text = fmt.Sprintf("fd%02d:%x::%x", b[1], b[2], b[3])
	default:
		text = fmt.Sprintf("26%02x:%x:%x::%x", b[0], b[1], b[2], b[3])
	}
	return netip.MustParseAddr(text)
}

// sixRange is the range beside one of IPv4.
func sixRange(p netip.Prefix) netip.Prefix {
	if p.Bits() <= 0 {
		return netip.MustParsePrefix("::/0")
	}
	bits := map[int]int{32: 128, 24: 64, 16: 16}[p.Bits()]
	switch p.Masked() {
	case testConfig.Pods:
		bits = 56
	case testConfig.Services:
		bits = 112
	}
	return netip.PrefixFrom(sixOf(p.Addr()), bits)
}

var (
	withPort = regexp.MustCompile(`dnat to (\d+\.\d+\.\d+\.\d+):`)
	anIPv4   = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(/\d+)?`)
)

// sixScript is an nft script for IPv6.
func sixScript(script string) string {
	script = withPort.ReplaceAllString(script, "dnat to [$1]:")
	script = anIPv4.ReplaceAllStringFunc(script, func(text string) string {
		if p, err := netip.ParsePrefix(text); err == nil {
			return sixRange(p).String()
		}
		return sixOf(netip.MustParseAddr(text)).String()
	})
	return strings.NewReplacer("table ip ", "table ip6 ", "ip daddr", "ip6 daddr", "ip saddr", "ip6 saddr").Replace(script)
}

// services6 does for IPv6 what guestnet does of what these tests need: what guests ask of DNS, and their answers to the owner's pods, which they know
// as this host, stay here.
func (w *world) services6() {
	w.nft(sixScript(fmt.Sprintf(`table ip guests6 {
  chain marks {
    type filter hook prerouting priority mangle;
    iifgroup %[1]d ip daddr 10.43.0.10 meta mark set 0x10000000
    iifgroup %[1]d ct direction reply ct status snat meta mark set 0x10000000
  }
  chain own {
    type nat hook postrouting priority srcnat - 5;
    iifname "cni0" oifgroup %[1]d ip saddr 10.42.0.0/16 masquerade
  }
}`, guestnet.Group)))
}

// six6 is a relation of both families.
func six6(rel Relations) Relations {
	for i := range rel.Tenants {
		t := &rel.Tenants[i]
		for _, list := range []*[]netip.Prefix{&t.Home, &t.Guests} {
			for _, p := range *list {
				*list = append(*list, sixRange(p))
			}
		}
	}
	for i := range rel.Providers {
		rel.Providers[i].Guests6 = sixRange(rel.Providers[i].Guests)
	}
	return rel
}

func TestGuestsReachTheirOwnAndNothingElseByIPv6(t *testing.T) {
	w := newWorldOf(t, true)
	w.expect("web1", hostLAN, "host") // there is no fence yet
	w.expect("web1", neighbour, "neighbour")
	w.expect("web1", job, "job")
	w.expect("newcomer", ownPod, "own")
	w.must(w.fence.Set(six6(twoTenants())))
	var tries []try
	for _, c := range []struct {
		from, to string
		want     outcome
	}{
		{"web1", web2, "web2"}, {"web2", web1, "web1"}, {"web1", "udp:" + web2 + ":10053", "web2"},
		{"web1", homePod, "alice"}, {"web1", homeOther, "alice"}, {"web1", "udp:" + homePod + ":10053", "alice"}, {"job", homePod, "dora"},
		{"web1", nodeIP, "alice"}, {"web1", gatewayIP, "alice"}, {"job", nodeIP, "dora"},
		{"web1", nodeIP + ":10053", "alice"},
		{"web1", beas, "alice"},
		{"web1", internet, "router"},
		{"web1", "10.43.0.10:53", "host"}, {"web1", "udp:10.43.0.10:53", "host"},

		{"web1", hostLAN, rejected}, {"web1", gateway1, rejected}, {"web1", gateway2, rejected},
		{"web1", neighbour, rejected}, {"web1", router, rejected}, {"web1", office, rejected},
		{"web1", "169.254.169.254", rejected}, {"web1", "172.16.0.1", rejected}, {"web1", "10.9.9.9", rejected}, {"web1", "100.64.0.1", rejected},
		{"web1", hostLAN + ":8081", rejected}, {"web1", hostLAN + ":8080", rejected}, {"job", hostLAN + ":8080", rejected},
		{"web1", job, rejected}, {"job", web1, rejected},
		{"web1", carols, rejected}, {"job", beas, rejected}, {"web1", newcomerIP, rejected},
		{"job", internet, rejected},
		{"job", "udp:10.43.0.10:53", "host"},
		{"newcomer", internet, silent}, {"newcomer", web2, silent}, {"newcomer", ownPod, silent}, {"newcomer", hostLAN, silent}, {"newcomer", "udp:10.43.0.10:53", "host"},

		{"own", web1, "web1"}, {"own", job, "job"}, {"own", "udp:" + web1 + ":10053", "web1"}, {"host", web1, "web1"}, {"host", job, "job"},
		{"own", neighbour, "neighbour"}, {"own", internet, "router"}, {"own", hostLAN, "host"}, {"own", "10.43.5.6", "web2"},
		{"own", "udp:10.43.0.10:53", "host"}, {"neighbour", hostLAN, "host"}, {"own", nodeIP, "host"},
		{"own", beas, "bea"}, {"own", carols, "carol"}, {"host", beas, "bea"}, {"host", "udp:" + carols + ":10053", "carol"},
		{"own", strayPeer, rejected}, {"host", strayPeer, rejected},

		{"web1", absent1, refused}, {"own", absent1, rejected}, {"host", absent1, rejected}, {"job", absent1, rejected}, {"newcomer", absent1, silent},
		{"neighbour", web2, silent}, {"neighbour", newcomerIP, silent}, {"neighbour", hostLAN + ":8080", "web2"},
	} {
		tries = append(tries, try{c.from, "", c.to, c.want})
	}
	w.expectAll(tries...)
	w.six = false // and by IPv4 as ever
	for to, want := range map[string]outcome{web2: "web2", homePod: "alice", internet: "router", hostLAN: rejected, job: rejected} {
		w.expect("web1", to, want)
	}
}

func TestThroughTheTunnelEveryoneReachesOnlyWhatIsHisByIPv6(t *testing.T) {
	w := newWorldOf(t, true)
	closed := []struct{ from, source, place, to string }{
		{"alice", homeOther, "own", ownOther}, {"alice", homeOther, "host", bridge}, {"alice", homeOther, "host", hostLAN}, {"alice", homeOther, "neighbour", neighbour},
		{"alice", homeOther, "newcomer", newcomerIP}, {"alice", homeOther, "host", gateway1},
		{"bea", beas, "neighbour", neighbour}, {"bea", beas, "job", job}, {"bea", beas, "host", gateway1},
		{"carol", carols, "web1", web1}, {"carol", carols, "job", job}, {"carol", strayPeer, "own", ownPod}, {"carol", strayPeer, "host", nodeIP}, {"carol", strayPeer, "bea", beas},
		{"bea", beas, "host", nodeIP},
		{"neighbour", web1, "web2", web2}, {"neighbour", web1, "alice", homeOther}, {"neighbour", "10.42.0.99", "web2", web2}, // the LAN, in others' names
		{"newcomer", web1, "web2", web2}, {"newcomer", ownPod, "web2", web2}, {"newcomer", neighbour, "web2", web2}, // a guest in others'
	}
	for _, one := range []struct{ place, addr string }{{"neighbour", web1}, {"neighbour", "10.42.0.99"}, {"newcomer", web1}, {"newcomer", ownPod}, {"newcomer", neighbour}} {
		w.address(one.place, "lo", one.addr+"/32")
	}
	for _, c := range closed {
		if !w.heard6(c.from, c.source, c.place, c.to, true) {
			t.Fatalf("without a fence, from %s at %s to %s: not heard", c.source, c.from, c.to)
		}
	}
	w.must(w.fence.Set(six6(twoTenants())))
	var done sync.WaitGroup
	for _, c := range closed {
		done.Go(func() {
			if w.heard6(c.from, c.source, c.place, c.to, false) {
				t.Errorf("from %s at %s to %s: heard", c.source, c.from, c.to)
			}
		})
	}
	done.Wait()
	w.expectAll([]try{
		{"alice", homePod, web1, "web1"}, {"alice", nodeIP, web2, "web2"}, {"dora", homePod, job, "job"},
		{"alice", beas, web1, "web1"},
		{"bea", beas, ownPod, "own"}, {"carol", carols, ownPod, "own"},
		{"bea", beas, nodeIP, "host"},
		{"bea", beas, nodeIP + ":30080", silent},
		{"bea", beas, carols, "carol"}, {"carol", carols, beas, "bea"},
		{"alice", homeOther, carols, silent},
		{"host", gateway1, homePod, "alice"}, {"host", gateway2, homePod, "dora"},
		{"carol", carols, absent1, silent}, {"alice", homePod, absent1, refused},
	}...)
}

// heard6 reports whether a place hears a datagram from an address of another, as it is to or not.
func (w *world) heard6(from, source, place, to string, want bool) bool {
	w.t.Helper()
	var at net.PacketConn
	w.in(place, func() (err error) {
		at, err = net.ListenPacket("udp6", "["+sixOf(netip.MustParseAddr(to)).String()+"]:0")
		return err
	})
	defer at.Close()
	w.in(from, func() error {
		c, err := net.DialUDP("udp6", &net.UDPAddr{IP: sixOf(netip.MustParseAddr(source)).AsSlice()}, at.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	_ = at.SetReadDeadline(time.Now().Add(within(want)))
	_, _, err := at.ReadFrom(make([]byte, 16))
	return err == nil
}

func TestErrorsAreHeardFromTheEndsOfAConnectionOnlyByIPv6(t *testing.T) {
	w := newWorldOf(t, true)
	type about struct{ what, victim, at, with, from, as string }
	attacks := []about{
		{"a guest, about this laptop and the internet", "host", hostLAN, internet, "web1", web1},
		{"a guest, about this laptop and another tenant's guest", "host", gateway2, job, "web1", web1},
		{"a guest, about another tenant's guest and its home", "job", job, homePod, "web1", web1},
		{"a guest nobody knows, about the owner's pod", "own", ownPod, internet, "newcomer", newcomerIP},
		{"a consumer's home, about the owner's pod and the internet", "own", ownOther, internet, "alice", homeOther},
		{"a consumer's home, about this laptop and the internet", "host", hostLAN, internet, "alice", homeOther},
		{"a consumer's home, about its guest and the internet", "web1", web1, internet, "carol", carols},
		{"a provider, about the owner's pod and the internet", "own", ownPod, internet, "carol", carols},
		{"a provider, about the owner's pod and one at another", "own", ownPod, beas, "carol", carols},
		{"a provider, about one of ours at another", "bea", beas, ownPod, "carol", carols},
	}
	for _, a := range attacks {
		f := w.flow6(a.victim, a.at, a.with)
		if w.refuse6(a.from, a.as, f); !f.broken(true) {
			t.Fatalf("without a fence, %s: the error did not arrive", a.what)
		}
	}
	w.must(w.fence.Set(six6(both())))
	var done sync.WaitGroup
	for _, a := range attacks {
		done.Go(func() {
			f := w.flow6(a.victim, a.at, a.with)
			if w.refuse6(a.from, a.as, f); f.broken(false) {
				t.Errorf("%s: heard", a.what)
			}
			if err := f.say(); err != nil {
				t.Errorf("%s: %v", a.what, err)
			}
		})
	}
	done.Wait()
	for _, c := range []about{
		{"a guest, to its laptop's probe", "host", gateway1, web1, "web1", web1},
		{"a consumer's home, to its guest", "web1", web1, homePod, "alice", homePod},
		{"a router of the consumer's, to its guest", "web1", web1, homePod, "alice", homeOther},
		{"a guest, to its home", "alice", homeOther, web1, "web1", web1},
		{"an own pod at a provider, to an own pod", "own", ownPod, beas, "bea", beas},
		{"an own pod, to one at a provider", "bea", beas, ownPod, "own", ownPod},
		{"an own pod at a provider, to one at another", "bea", beas, carols, "carol", carols},
	} {
		f := w.flow6(c.victim, c.at, c.with)
		if w.refuse6(c.from, c.as, f); !f.broken(true) {
			t.Errorf("%s: not heard", c.what)
		}
	}
}

func (w *world) flow6(from, source, to string) *flow {
	w.t.Helper()
	f := &flow{}
	w.in(from, func() (err error) {
		f.c, err = net.DialUDP("udp6", &net.UDPAddr{IP: sixOf(netip.MustParseAddr(source)).AsSlice()}, &net.UDPAddr{IP: sixOf(netip.MustParseAddr(to)).AsSlice(), Port: 10053})
		return err
	})
	w.t.Cleanup(func() { f.c.Close() })
	if err := f.say(); err != nil {
		w.t.Fatalf("%s to %s: %v", from, to, err)
	}
	return f
}

// refuse6 is refuse by ICMPv6, whose checksum the kernel fills in.
func (w *world) refuse6(place, source string, f *flow) {
	w.t.Helper()
	src, dst := f.c.LocalAddr().(*net.UDPAddr), f.c.RemoteAddr().(*net.UDPAddr)
	m := make([]byte, 8+40+8)
	m[0], m[1] = 1, 4
	quote := m[8:]
	quote[0], quote[5], quote[6], quote[7] = 0x60, 8, unix.IPPROTO_UDP, 64
	copy(quote[8:], src.IP.To16())
	copy(quote[24:], dst.IP.To16())
	binary.BigEndian.PutUint16(quote[40:], uint16(src.Port))
	binary.BigEndian.PutUint16(quote[42:], uint16(dst.Port))
	quote[45] = 8
	w.in(place, func() error {
		c, err := net.DialIP("ip6:ipv6-icmp", &net.IPAddr{IP: sixOf(netip.MustParseAddr(source)).AsSlice()}, &net.IPAddr{IP: src.IP})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(m)
		return err
	})
}

// TestWhatOfALinkGuestsReach: to find their router, and no more: neither this host by its address of the link, nor by what all hosts hear, nor do
// they tell it of routers.
func TestWhatOfALinkGuestsReach(t *testing.T) {
	w := newWorldOf(t, true)
	h := w.net("host")
	var local string
	for deadline := time.Now().Add(2 * time.Minute); local == "" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		l, err := h.LinkByName("vweb1")
		w.must(err)
		addrs, err := h.AddrList(l, unix.AF_INET6)
		w.must(err)
		for _, a := range addrs {
			if a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				local = a.IP.String()
			}
		}
	}
	if local == "" {
		t.Fatal("the host has no address of the guest's link")
	}
	try := func(to string, comes bool) (err error) {
		w.in("web1", func() error {
			var c net.Conn
			if c, err = net.DialTimeout("tcp", to, within(comes)); err == nil {
				c.Close()
			}
			return nil
		})
		return err
	}
	w.in("host", func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/vweb1/accept_ra", []byte("2"), 0) })
	advertise := func(prefix string) {
		w.in("web1", func() error {
			c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
			if err != nil {
				return err
			}
			defer c.Close()
			p := ipv6.NewPacketConn(c)
			if err := errors.Join(p.SetMulticastHopLimit(255), p.SetMulticastLoopback(false)); err != nil {
				return err
			}
			body := append([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, append([]byte{3, 4, 64, 0xc0, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 0, 0}, netip.MustParseAddr(prefix).AsSlice()...)...)
			m, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: body}}).Marshal(nil)
			if err != nil {
				return err
			}
			_, err = p.WriteTo(m, nil, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: w.zone("web1", "eth0")})
			return err
		})
	}
	believed := func(prefix string) bool {
		routes, err := h.RouteList(nil, unix.AF_INET6)
		w.must(err)
		return slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && strings.HasPrefix(r.Dst.String(), prefix) })
	}
	if err := try("["+local+"%"+w.zone("web1", "eth0")+"]:80", true); err != nil {
		t.Fatalf("without a fence: %v", err)
	}
	advertise("2001:bad:1::")
	for deadline := time.Now().Add(2 * time.Minute); !believed("2001:bad:1:"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("without a fence, the host does not believe the guest")
		}
	}
	w.must(w.fence.Set(six6(twoTenants())))
	if try("["+local+"%"+w.zone("web1", "eth0")+"]:80", false) == nil {
		t.Error("a guest reached the host by its address of the link")
	}
	w.expect("web1", web2, "web2") // by its router, which it finds
	advertise("2001:bad:2::")
	w.expect("web1", web2, "web2") // what was sent before has been heard
	if believed("2001:bad:2:") {
		t.Error("the host believes a guest")
	}
}

// TestSmallerPacketsAreAskedForByIPv6: a router on the way may, for routers do not fragment.
func TestSmallerPacketsAreAskedForByIPv6(t *testing.T) {
	w := newWorldOf(t, true)
	w.must(w.fence.Set(six6(twoTenants())))
	h := w.net("host")
	kith0, err := h.LinkByName("kith0")
	w.must(err)
	w.must(h.LinkSetMTU(kith0, 1300))
	var got error
	w.in("web1", func() error {
		d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			})
		}}
		c, err := d.Dial("udp", "["+sixOf(netip.MustParseAddr(homePod)).String()+"]:10053")
		if err != nil {
			return err
		}
		defer c.Close()
		for range 5 {
			if _, got = c.Write(make([]byte, 1400)); got != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	if got == nil || !strings.Contains(got.Error(), "message too long") {
		t.Errorf("the guest did not hear of the path MTU: %v", got)
	}
}

// TestRoutersOfIPv6AreKnownByTheirLinks: another router of the same address of its link, which a static route leads to, is not one for the internet.
func TestRoutersOfIPv6AreKnownByTheirLinks(t *testing.T) {
	route := func(dst, gw string, link int) netlink.Route {
		r := netlink.Route{Family: unix.AF_INET6, Type: unix.RTN_UNICAST, LinkIndex: link, Dst: hostnet.IPNet(netip.MustParsePrefix(dst))}
		if gw != "" {
			r.Gw = net.ParseIP(gw)
		}
		return r
	}
	unreachable := route("::/0", "", 1)
	unreachable.Type = unix.RTN_UNREACHABLE
	links := []netlink.Link{
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1, Name: "lo"}}, &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "wlan0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "wg0"}}, &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 4, Name: "eth0"}},
	}
	got := hostStateOf(links, []netlink.Route{route("::/0", "fe80::1", 2), route("2000::/3", "", 3), route("2600:9::/32", "fe80::1", 4), unreachable})
	if fmt.Sprint(got.routers, got.uplinks, got.uplinks6, got.links6) != "[fe80::1] [] [wg0] [wlan0]" {
		t.Errorf("%+v", got)
	}
}
