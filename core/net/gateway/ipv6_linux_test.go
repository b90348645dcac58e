package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// cafe is the IPv6 ranges of all clusters here; pod6 is the address of each one's pod.
var (
	cafe = netplan.Cluster6{Pods: netip.MustParsePrefix("2001:cafe:42::/56"), Services: netip.MustParsePrefix("2001:cafe:43::/112")}
	pod6 = netip.MustParseAddr("2001:cafe:42::5")
)

// laptop6 is a laptop whose cluster has both families. Its LAN has IPv4 alone.
func (l *lan) laptop6(name string, number int) *laptop {
	l.t.Helper()
	p := l.laptop(name, number)
	p.stop()
	p.ipv6 = cafe
	for _, ns := range []func(func()){p.in, p.inHost} {
		ns(func() { _ = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) })
	}
	address6(l.t, p.hostNL, "p0", "2001:cafe:42::1/64")
	address6(l.t, p.hostNL, "kith-node", cafe.Node().String()+"/128")
	address6(l.t, p.nl, "eth0", pod6.String()+"/64")
	must(l.t, p.nl.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:cafe:42::1")}))
	p.start()
	return p
}

func address6(t testing.TB, nl *netlink.Handle, dev, cidr string) {
	t.Helper()
	a := parseAddr(t, cidr)
	a.Flags = unix.IFA_F_NODAD
	must(t, nl.AddrAdd(link(t, nl, dev), a))
}

// six is a pod by its IPv6 address.
func (p *end) six(a netip.Addr) *end {
	other := *p
	other.addr, other.name = a, p.name+" by IPv6"
	return &other
}

// guests6 is a range of IPv6 for a range of IPv4.
func guests6(guests string) netip.Prefix {
	a := netip.MustParsePrefix(guests).Addr().As4()
	return netip.MustParsePrefix(fmt.Sprintf("fd00:%d:%d::/64", a[1], a[2]))
}

// meet6 is meet with both families, and gives the guest by each.
func meet6(home, host *laptop, guests string, space ...string) (guest, six *end) {
	t := home.t
	t.Helper()
	r := guests6(guests)
	at, of := home.consumer(host, guests, space...), host.provider(home, guests)
	at.IPv6 = netplan.Pair6{Here: r, Space: []netip.Prefix{cafe.Pods}, Services: cafe.Services, AtHome: cafe.Gateway()}
	for _, s := range space {
		at.IPv6.Space = append(at.IPv6.Space, guests6(s))
	}
	of.IPv6 = netplan.Pair6{There: r, AtThere: netplan.GuestGateway(r), Services: cafe.Services}
	guest = meet(home, host, guests, space...)
	host.do(order{Do: "set", Peer: at})
	home.do(order{Do: "set", Peer: of})
	return guest, host.guest6(guest, r)
}

// guest6 gives a guest an address of IPv6, as the network plugin ptp does: its router is this host by its address of the link.
func (p *laptop) guest6(g *end, r netip.Prefix) *end {
	p.t.Helper()
	addr := r.Addr().Next().Next().Next().Next().Next()
	dev := "g" + strings.ReplaceAll(strings.TrimPrefix(g.addr.String(), "10."), ".", "-")
	address6(p.t, p.hostNL, dev, "fe80::1/64")
	must(p.t, p.hostNL.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.PrefixFrom(addr, 128)), LinkIndex: link(p.t, p.hostNL, dev).Attrs().Index}))
	address6(p.t, g.nl, "eth0", addr.String()+"/128")
	must(p.t, g.nl.RouteAdd(&netlink.Route{Gw: net.ParseIP("fe80::1"), LinkIndex: link(p.t, g.nl, "eth0").Attrs().Index}))
	return g.six(addr)
}

func TestAGuestLivesInItsHomesAddressSpaceOfIPv6(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop6("alice", 1), l.laptop6("bob", 2)
	_, guest := meet6(alice, bob, "10.65.0.0/24")
	pod, bobs := alice.six(pod6), bob.six(pod6)
	pod.serveTCP(80, whoCalls)
	bobs.serveTCP(80, func(c net.Conn) { fmt.Fprint(c, "bob's own pod") })
	guest.serveTCP(80, whoCalls)
	if got := pod.ask("[fd00:65::5]:80"); got != pod6.String() {
		t.Errorf("the guest saw %s call", got)
	}
	if got := guest.ask("[2001:cafe:42::5]:80"); got != "fd00:65::5" {
		t.Errorf("alice's pod saw %s call", got)
	}
	if got := bobs.ask("[2001:cafe:42::5]:80"); got != "bob's own pod" {
		t.Errorf("bob's pod asks itself: %s", got)
	}
	guest.serveUDP(90)
	for _, size := range []int{0, 100, 1232, 8000, 65000} {
		got, err := exchange(pod.udp("[fd00:65::5]:90"), size)
		if errors.Is(err, unix.EMSGSIZE) { // the pod is told of the way's size once, and makes its fragments by it
			got, err = exchange(pod.udp("[fd00:65::5]:90"), size)
		}
		if want := fmt.Sprintf("%d %s", size, pod6); got != want || err != nil {
			t.Errorf("%d bytes: got %q, %v", size, got, err)
		}
	}
	transfer(t, pod, guest, "[fd00:65::5]", 5_000_000)
	transfer(t, guest, pod, "[2001:cafe:42::5]", 5_000_000)
	transfer(t, alice.end, bob.guest("10.65.0.6"), "10.65.0.6", 5_000_000) // IPv4 beside it
}

// TestWhatIPv6NeedsFitsANarrowPath: one that has not even room for the least packet of IPv6, whose outer packets are fragmented then.
func TestWhatIPv6NeedsFitsANarrowPath(t *testing.T) {
	for _, mtu := range []int{1400, 1300} {
		l := newLAN(t)
		alice, bob := l.laptop6("alice", 1), l.laptop6("bob", 2)
		for _, p := range []*laptop{alice, bob} {
			must(t, p.hostNL.LinkSetMTU(link(t, p.hostNL, "u0"), mtu))
		}
		_, guest := meet6(alice, bob, "10.65.0.0/24")
		transfer(t, alice.six(pod6), guest, "[fd00:65::5]", 3_000_000)
		transfer(t, guest, alice.six(pod6), "[2001:cafe:42::5]", 3_000_000)
	}
}

// TestTwoHomesOfIPv6 is TestThreeLaptopsTwoHomes by IPv6.
func TestTwoHomesOfIPv6(t *testing.T) {
	l := newLAN(t)
	alice, bob, carol, dave := l.laptop6("alice", 1), l.laptop6("bob", 2), l.laptop6("carol", 3), l.laptop6("dave", 4)
	_, atBob := meet6(alice, bob, "10.65.0.0/24", "10.66.0.0/24")
	_, atCarol := meet6(alice, carol, "10.66.0.0/24", "10.65.0.0/24")
	_, davesAtBob := meet6(dave, bob, "10.67.0.0/24")
	pod := func(p *laptop) *end { return p.six(pod6) }
	for _, p := range []*end{pod(alice), pod(bob), pod(carol), pod(dave), atBob, atCarol, davesAtBob} {
		p.serveTCP(80, func(c net.Conn) { fmt.Fprintf(c, "%s saw ", p.name); whoCalls(c) })
	}
	for _, c := range []struct {
		from     *end
		to, want string
	}{
		{pod(alice), "fd00:65::5", "10.65.0.5 at bob by IPv6 saw 2001:cafe:42::5"},
		{pod(dave), "fd00:67::5", "10.67.0.5 at bob by IPv6 saw 2001:cafe:42::5"},
		{atBob, "2001:cafe:42::5", "alice by IPv6 saw fd00:65::5"},
		{davesAtBob, "2001:cafe:42::5", "dave by IPv6 saw fd00:67::5"},
		{atBob, "fd00:66::5", "10.66.0.5 at carol by IPv6 saw fd00:65::5"},
		{atCarol, "fd00:65::5", "10.65.0.5 at bob by IPv6 saw fd00:66::5"},
	} {
		if got := c.from.ask("[" + c.to + "]:80"); got != c.want {
			t.Errorf("%s asks %s: %q, want %q", c.from.name, c.to, got, c.want)
		}
	}
	for _, c := range []struct {
		from *end
		to   string
	}{{pod(carol), "fd00:65::5"}, {davesAtBob, "fd00:66::5"}, {pod(dave), "fd00:65::5"}, {pod(carol), "fd00:67::5"}} {
		if conn, err := c.from.dialFor("["+c.to+"]:80", 300*time.Millisecond); err == nil {
			conn.Close()
			t.Errorf("%s reaches %s", c.from.name, c.to)
		}
	}
	transfer(t, atBob, atCarol, "[fd00:66::5]", 5_000_000)
}

// send6 sends a packet of IPv6 with a header of its own making from the pod.
func (p *end) send6(src, dst string, proto byte, hops byte, payload []byte) {
	p.t.Helper()
	b := make([]byte, 40, 40+len(payload))
	b[0], b[4], b[5], b[6], b[7] = 0x60, byte(len(payload)>>8), byte(len(payload)), proto, hops
	copy(b[8:], netip.MustParseAddr(src).AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	var err error
	p.in(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return
		}
		defer unix.Close(fd)
		err = unix.Sendto(fd, append(b, payload...), 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(dst).As16()})
	})
	must(p.t, err)
}

// TestWhatAGuestSendsOfIPv6: bob may send as alice's guest there whatever he likes; alice's host believes none of what is for one link, and
// opens no more than by IPv4.
func TestWhatAGuestSendsOfIPv6(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop6("alice", 1), l.laptop6("bob", 2)
	_, guest := meet6(alice, bob, "10.65.0.0/24")
	address6(t, alice.hostNL, "u0", "2001:db8::1/64")
	counts := func(reason string, send func()) {
		t.Helper()
		before := bob.do(order{Do: "drops"}).Drops[reason] + alice.do(order{Do: "drops"}).Drops[reason]
		for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(25 * time.Millisecond) {
			send()
			if bob.do(order{Do: "drops"}).Drops[reason]+alice.do(order{Do: "drops"}).Drops[reason] > before {
				return
			}
		}
		t.Errorf("nothing was dropped as %s", reason)
	}
	advert := func(to string) []byte { // of a router, with a prefix, all checksums right
		b, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: append([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0},
			append([]byte{3, 4, 64, 0xc0, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 0, 0}, netip.MustParseAddr("2001:bad::").AsSlice()...)...)}}).
			Marshal(icmp.IPv6PseudoHeader(net.ParseIP("fd00:65::5"), net.ParseIP(to)))
		must(t, err)
		return b
	}
	for _, to := range []string{cafe.Gateway().String(), pod6.String()} {
		counts("neighbour", func() { guest.send6("fd00:65::5", to, unix.IPPROTO_ICMPV6, 255, advert(to)) })
	}
	routes, err := alice.hostNL.RouteList(nil, unix.AF_INET6)
	must(t, err)
	for _, r := range routes {
		if r.Protocol == unix.RTPROT_RA || strings.Contains(r.String(), "2001:bad") {
			t.Errorf("alice's host believes a guest: %s", r)
		}
	}
	counts("malformed", func() {
		guest.send6("fd00:65::5", pod6.String(), 43, 64, append([]byte{59, 2, 0, 1, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8::7").AsSlice()...))
	})
	counts("malformed", func() { guest.send6("fd00:65::5", pod6.String(), 0, 64, []byte{59, 0, 1, 4, 0, 0, 0, 0}) })
	for _, port := range []int{22, 6443} {
		var ln net.Listener
		var err error
		alice.inHost(func() { ln, err = net.Listen("tcp6", fmt.Sprintf("[::]:%d", port)) })
		must(t, err)
		defer ln.Close()
	}
	for _, host := range []string{cafe.Node().String(), cafe.Gateway().String(), "2001:cafe:42::1", "2001:cafe:42::"} {
		if c, err := guest.dialFor("["+host+"]:22", 300*time.Millisecond); err == nil {
			c.Close()
			t.Errorf("[%s]:22 is open", host)
		}
	}
	c, err := guest.dial("[" + cafe.Node().String() + "]:6443")
	if err != nil {
		t.Errorf("the API server: %v", err)
	} else {
		c.Close()
	}
	for _, host := range []string{"2001:db8::1", "2001:db8::7"} { // of alice's LAN
		if c, err := guest.dialFor("["+host+"]:6443", 300*time.Millisecond); err == nil {
			c.Close()
			t.Errorf("%s is reached", host)
		}
	}
}

// TestAPeerOfIPv4AloneGetsNothingElse, and is not disturbed by the other's IPv6.
func TestAPeerOfIPv4AloneGetsNothingElse(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop6("alice", 1), l.laptop("bob", 2)
	guest := meet(alice, bob, "10.65.0.0/24")
	guest.serveTCP(80, whoCalls)
	if got := alice.ask("10.65.0.5:80"); got != "10.42.0.5" {
		t.Errorf("the guest saw %s call", got)
	}
	// bob's own word for it changes nothing at alice's: she has no such range.
	_, six := meet6(alice, l.laptop6("carol", 3), "10.66.0.0/24")
	six.serveTCP(80, whoCalls)
	if got := alice.six(pod6).ask("[fd00:66::5]:80"); got != pod6.String() {
		t.Errorf("carol's guest saw %s call", got)
	}
	if c, err := alice.six(pod6).dialFor("[fd00:65::5]:80", 300*time.Millisecond); err == nil {
		c.Close()
		t.Error("bob is reached by IPv6")
	}
}

// TestNothingOfIPv6StaysBehind: nor is the host's device asked for a neighbour, or has it an address of the link.
func TestNothingOfIPv6StaysBehind(t *testing.T) {
	l := newLAN(t)
	alice, bob := l.laptop6("alice", 1), l.laptop6("bob", 2)
	meet6(alice, bob, "10.65.0.0/24")
	for p, want := range map[*laptop]int{alice: 3, bob: 3 + 7} { // a route and two rules; two routes and a throw, rules as of IPv4
		if got := p.ours6(); len(got) != want {
			t.Errorf("%s: %d, want %d: %v", p.name, len(got), want, got)
		}
	}
	addrs, err := bob.hostNL.AddrList(link(t, bob.hostNL, "kith0"), unix.AF_INET6)
	must(t, err)
	if len(addrs) != 2 {
		t.Errorf("addresses of the device: %v", addrs)
	}
	first := bob.ours6()
	time.Sleep(3 * settle)
	if again := bob.ours6(); strings.Join(again, " ") != strings.Join(first, " ") {
		t.Errorf("%v became %v", first, again)
	}
	bob.kill()
	bob.start()
	if got := bob.ours6(); len(got) != 2 {
		t.Errorf("killed and started: %v", got)
	}
	bob.stop()
	bob.ipv6 = netplan.Cluster6{}
	bob.start()
	if got := bob.ours6(); len(got) != 0 {
		t.Errorf("with IPv4 alone: %v", got)
	}
	alice.stop()
	rules, err := alice.hostNL.RuleList(unix.AF_INET6)
	must(t, err)
	if got := alice.ours6(); len(got) != 0 || !isFirst(rules[0]) {
		t.Errorf("stopped: %v, %v", got, rules)
	}
}

// TestTheHostKeepsItsRouter when it is to forward IPv6: without the care that is taken the kernel would give it up.
func TestTheHostKeepsItsRouter(t *testing.T) {
	l := newLAN(t)
	p := l.host("alice", 1)
	connect(t, l.nl, "to1", p.hostNL, p.host, "u0", 1500)
	read := func(name string) (text string) {
		p.inHost(func() { b, _ := os.ReadFile("/proc/sys/net/ipv6/conf/" + name); text = strings.TrimSpace(string(b)) })
		return text
	}
	address6(t, p.hostNL, "u0", "2001:db8::1/64")
	must(t, p.hostNL.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8::2"), Protocol: unix.RTPROT_RA}))
	if read("u0/accept_ra") != "1" || read("all/forwarding") != "0" {
		t.Skip("the kernel begins with other settings here")
	}
	var err error
	p.inHost(func() { err = hostnet.Forward6() })
	must(t, err)
	if read("all/forwarding") != "1" || read("u0/accept_ra") != "2" || read("p0/accept_ra") == "2" {
		t.Errorf("forwarding %s, accept_ra %s, of a pod's link %s", read("all/forwarding"), read("u0/accept_ra"), read("p0/accept_ra"))
	}
}

func (p *laptop) ours6() (out []string) {
	p.t.Helper()
	routes, err := p.hostNL.RouteListFiltered(unix.AF_INET6, &netlink.Route{Protocol: hostnet.Protocol, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	must(p.t, err)
	for _, r := range routes {
		out = append(out, r.String())
	}
	rules, err := p.hostNL.RuleList(unix.AF_INET6)
	must(p.t, err)
	for _, r := range rules {
		if r.Protocol == hostnet.Protocol {
			out = append(out, r.String())
		}
	}
	return out
}
