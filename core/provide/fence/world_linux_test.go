package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
)

// A world is a laptop with guests and pods of its owner, on a LAN with public addresses, with the internet behind the
// router and four other clusters behind kith0. Two of them, alice and dora, are homes of guests here and have the same addresses,
// those of this cluster; guests of this cluster are at bea and carol. All of it are network namespaces without names, gone with the test.
type world struct {
	t     *testing.T
	place map[string]netns.NsHandle
	fence *Fence
	node  *noderoute.Node
	both  bool // everything has IPv6, too
	six   bool // and is asked by it
}

const (
	hostLAN   = "203.0.113.5"
	router    = "203.0.113.1"
	neighbour = "203.0.113.50"
	internet  = "198.51.100.7"
	office    = "192.0.2.9" // public, but by a static route of the LAN: a VPN, or the next building
	gatewayIP = "10.42.255.2"
	ownPod    = "10.42.0.5"
	ownOther  = "10.42.0.6"
	bridge    = "10.42.0.1"

	alices     = "10.65.1.0/24" // guests here
	web1       = "10.65.1.4"
	web2       = "10.65.1.5"
	absent1    = "10.65.1.77" // nobody has it
	gateway1   = "10.65.1.1"
	doras      = "10.65.2.0/24"
	job        = "10.65.2.4"
	gateway2   = "10.65.2.1"
	newcomerIP = "10.65.3.4" // of no pair

	homePod   = ownPod      // at alice's and dora's
	homeOther = "10.42.3.3" // there alone

	atBea     = "10.65.8.0/24" // guests of ours there, and of alice's at carol's
	beas      = "10.65.8.4"
	atCarol   = "10.65.9.0/24"
	carols    = "10.65.9.4"
	atAlice   = "10.65.10.0/24" // of ours, for those who have some there
	ownThere  = "10.65.10.4"
	strayPeer = "10.79.0.4" // by a route that should not be there, at carol's
	aliasHome = "10.76.0.4" // alice's pod as translated guests know it
)

// behind the tunnel: which addresses are where.
var behind = map[string][]string{
	"alice": {homePod, homeOther, nodeIP, gatewayIP, beas, ownThere, aliasHome},
	"dora":  {homePod, homeOther, nodeIP, gatewayIP},
	"bea":   {beas, "10.65.8.1"},
	"carol": {carols, "10.65.9.1", strayPeer},
}

func newWorld(t *testing.T) *world { return newWorldOf(t, false) }

func newWorldOf(t *testing.T, both bool) *world {
	t.Helper()
	w := newPlaces(t, "host", "router", "neighbour", "wire", "alice", "dora", "bea", "carol", "own", "web1", "web2", "job", "newcomer")
	w.both, w.six = both, both
	if both {
		for name := range w.place {
			w.setting(name, "ipv6/conf/default/accept_dad", "0")
		}
	}
	w.wire("router", "br0p", "host", "eth0", hostLAN+"/24")
	w.wire("router", "br1p", "neighbour", "eth0", neighbour+"/24")
	w.bridge("router", "br0", router+"/24", "br0p", "br1p")
	for _, a := range []string{internet, office} {
		w.address("router", "lo", a+"/32")
	}
	w.route("host", "0.0.0.0/0", router)
	w.route("host", office+"/32", "203.0.113.2") // another router
	w.address("router", "br0", "203.0.113.2/24")
	w.route("neighbour", "0.0.0.0/0", hostLAN)
	w.address("host", "lo", nodeIP+"/32")

	w.wire("host", "vown", "own", "eth0", ownPod+"/24")
	w.address("own", "eth0", ownOther+"/24")
	w.bridge("host", "cni0", bridge+"/24", "vown")
	w.route("own", "0.0.0.0/0", bridge)
	for name, a := range map[string]string{"web1": web1, "web2": web2, "job": job, "newcomer": newcomerIP} {
		w.guest(name, a)
	}
	w.tunnel()
	for file, value := range map[string]string{"ip_forward": "1", "icmp_ratelimit": "0"} {
		w.in("host", func() error { return os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0) })
	}
	if w.both {
		w.in("host", func() error { return os.WriteFile("/proc/sys/net/ipv6/icmp/ratelimit", []byte("0"), 0) })
	}
	for name := range w.place {
		w.serve(name)
	}
	w.kubeProxy()
	w.guestnet()
	if w.both {
		w.services6()
	}
	w.raise()
	if w.both { // links come to IPv6 in their own time, and who is asked for before is asked again after a second
		for _, place := range []string{"neighbour", "own", "web1", "web2", "job", "newcomer"} {
			w.soon(place, hostLAN, "host")
		}
		w.soon("host", internet, open)
	}
	return w
}

func newPlaces(t *testing.T, names ...string) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	w := &world{t: t, place: map[string]netns.NsHandle{}}
	for _, name := range names {
		w.make(name)
	}
	return w
}

// tunnel makes kith0 and what is behind it. The place wire does what the gateway would: what guests here send goes to their home, all
// else to where the destination is a guest.
func (w *world) tunnel() {
	w.plain("host", "kith0", "wire", "host0")
	for name, list := range behind {
		w.plain("wire", "to"+name, name, "eth0")
		for _, a := range list {
			w.address(name, "eth0", a+"/32")
		}
		w.routeDev(name, "0.0.0.0/0", "eth0", list[0])
		w.rule("wire", 10, 100, func(r *netlink.Rule) { r.IifName = "to" + name })
	}
	w.in("wire", func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	if w.both {
		w.in("wire", hostnet.Forward6)
	}
	w.leads("wire", 100, "0.0.0.0/0", "host0")
	for to, guests := range map[string]string{"alice": alices, "dora": doras} {
		table := map[string]int{"alice": 101, "dora": 102}[to]
		w.rule("wire", 20, table, func(r *netlink.Rule) { r.Src = hostnet.IPNet(netip.MustParsePrefix(guests)) })
		w.leads("wire", table, "0.0.0.0/0", "to"+to)
	}
	for guests, to := range map[string]string{atBea: "bea", atCarol: "carol", atAlice: "alice", "10.79.0.0/16": "carol", "10.76.0.0/16": "alice"} {
		w.leads("wire", unix.RT_TABLE_MAIN, guests, "to"+to)
	}
	w.in("host", func() (err error) {
		w.node, err = noderoute.Up("kith0", netip.MustParseAddr(gatewayIP), slog.New(slog.DiscardHandler))
		if err == nil && w.both {
			err = w.node.UseIPv6(sixOf(netip.MustParseAddr(gatewayIP)))
		}
		return err
	})
	w.lead()
}

// lead has the host's routes lead into the tunnel.
func (w *world) lead() {
	var into []noderoute.Route
	for _, p := range ranges(atBea, atCarol, atAlice, alices, doras, "10.79.0.0/16", "10.76.0.0/16") {
		into = append(into, noderoute.Route{To: p, MTU: 1500})
	}
	home := noderoute.Route{To: netip.MustParsePrefix("10.42.0.0/16"), MTU: 1500}
	tenants := []noderoute.Tenant{
		{From: netip.MustParsePrefix(alices), To: []noderoute.Route{home, {To: netip.MustParsePrefix(atBea), MTU: 1500}}},
		{From: netip.MustParsePrefix(doras), To: []noderoute.Route{home}},
	}
	if w.both {
		and6 := func(list []noderoute.Route) []noderoute.Route {
			for _, r := range list {
				list = append(list, noderoute.Route{To: sixRange(r.To), MTU: 1500})
			}
			return list
		}
		into = and6(into)
		for i := range tenants {
			tenants[i].From6, tenants[i].To = sixRange(tenants[i].From), and6(tenants[i].To)
		}
	}
	w.in("host", func() error { return w.node.Sync(into, nil, tenants) })
}

// plain connects two places as a tunnel does: whatever is sent arrives, nobody is asked where an address is.
func (w *world) plain(a, aName, b, bName string) {
	w.t.Helper()
	w.wire(a, aName, b, bName, "")
	at := w.up(a, aName).Attrs().HardwareAddr
	for place, name := range map[string]string{a: aName, b: bName} {
		h, l := w.net(place), w.up(place, name)
		w.must(h.LinkSetHardwareAddr(l, at))
		w.must(h.LinkSetARPOff(l))
	}
}

func (w *world) rule(place string, priority, table int, change func(*netlink.Rule)) {
	w.t.Helper()
	r := netlink.NewRule()
	r.Priority, r.Table = priority, table
	change(r)
	w.must(w.net(place).RuleAdd(r))
	if w.both {
		if r.Family = unix.AF_INET6; r.Src != nil {
			r.Src = hostnet.IPNet(sixRange(hostnet.Prefix(r.Src)))
		}
		w.must(w.net(place).RuleAdd(r))
	}
}

func (w *world) leads(place string, table int, dst, dev string) {
	w.t.Helper()
	l, err := w.net(place).LinkByName(dev)
	w.must(err)
	to := hostnet.IPNet(netip.MustParsePrefix(dst))
	w.must(w.net(place).RouteAdd(&netlink.Route{Dst: to, LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Table: table}))
	if w.both {
		w.must(w.net(place).RouteAdd(&netlink.Route{Dst: hostnet.IPNet(sixRange(hostnet.Prefix(to))), LinkIndex: l.Attrs().Index, Table: table}))
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// in does something in a place.
func (w *world) in(place string, do func() error) {
	w.t.Helper()
	w.must(inside(w.place[place], do))
}

func inside(ns netns.NsHandle, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

func (w *world) make(name string) {
	made := make(chan netns.NsHandle, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.New()
		if err != nil {
			ns = netns.None()
		}
		made <- ns
	}()
	ns := <-made
	if !ns.IsOpen() {
		w.t.Fatal("no network namespace could be made")
	}
	w.t.Cleanup(func() { ns.Close() })
	w.place[name] = ns
	h := w.net(name)
	lo, err := h.LinkByName("lo")
	w.must(err)
	w.must(h.LinkSetUp(lo))
	if w.both {
		w.in(name, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) })
	}
}

func (w *world) net(place string) *netlink.Handle {
	h, err := netlink.NewHandleAt(w.place[place])
	w.must(err)
	w.t.Cleanup(h.Close)
	return h
}

// wire connects two places; the second end gets an address.
func (w *world) wire(a, aName, b, bName, addr string) {
	w.t.Helper()
	h := w.net(a)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	w.must(h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(w.place[b])}))
	w.up(a, aName)
	w.up(b, bName)
	if addr != "" {
		w.address(b, bName, addr)
	}
}

func (w *world) up(place, name string) netlink.Link {
	h := w.net(place)
	l, err := h.LinkByName(name)
	w.must(err)
	w.must(h.LinkSetUp(l))
	return l
}

func (w *world) bridge(place, name, addr string, ports ...string) {
	h := w.net(place)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	br := &netlink.Bridge{LinkAttrs: attrs}
	w.must(h.LinkAdd(br))
	for _, p := range ports {
		l, err := h.LinkByName(p)
		w.must(err)
		w.must(h.LinkSetMaster(l, br))
	}
	w.up(place, name)
	w.address(place, name, addr)
}

func (w *world) address(place, link, addr string) {
	w.t.Helper()
	h := w.net(place)
	l, err := h.LinkByName(link)
	w.must(err)
	a, err := netlink.ParseAddr(addr)
	w.must(err)
	w.must(h.AddrAdd(l, a))
	if w.both {
		w.must(h.AddrAdd(l, &netlink.Addr{IPNet: hostnet.IPNet(sixRange(hostnet.Prefix(a.IPNet))), Flags: unix.IFA_F_NODAD}))
	}
}

func (w *world) route(place, dst, via string) {
	w.t.Helper()
	_, n, err := net.ParseCIDR(dst)
	w.must(err)
	w.must(w.net(place).RouteAdd(&netlink.Route{Dst: n, Gw: net.ParseIP(via)}))
	if w.both {
		w.must(w.net(place).RouteAdd(&netlink.Route{Dst: hostnet.IPNet(sixRange(hostnet.Prefix(n))), Gw: sixOf(netip.MustParseAddr(via)).AsSlice()}))
	}
}

func (w *world) routeDev(place, dst, dev, src string) {
	w.t.Helper()
	h := w.net(place)
	l, err := h.LinkByName(dev)
	w.must(err)
	_, n, err := net.ParseCIDR(dst)
	w.must(err)
	w.must(h.RouteReplace(&netlink.Route{Dst: n, LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Src: net.ParseIP(src)}))
	if w.both {
		w.must(h.RouteReplace(&netlink.Route{Dst: hostnet.IPNet(sixRange(hostnet.Prefix(n))), LinkIndex: l.Attrs().Index, Src: sixOf(netip.MustParseAddr(src)).AsSlice()}))
	}
}

// guest gives a place a link as the CNI plugins ptp and kith-mark do, with the first address of its range at the host's end.
func (w *world) guest(name, addr string) {
	own := netplan.GuestGateway(netip.PrefixFrom(netip.MustParseAddr(addr), netplan.GuestBits)).String()
	w.wire("host", "v"+name, name, "eth0", addr+"/32")
	w.address("host", "v"+name, own+"/32")
	w.routeDev("host", addr+"/32", "v"+name, own)
	w.routeDev(name, own+"/32", "eth0", addr)
	w.route(name, "0.0.0.0/0", own)
	h := w.net("host")
	l, err := h.LinkByName("v" + name)
	w.must(err)
	w.must(h.LinkSetGroup(l, guestnet.Group))
}

// serve answers TCP on ports 80 and 10053, and UDP on 10053, with the name of the place, and echoes what else comes by TCP.
func (w *world) serve(place string) {
	w.in(place, func() error {
		for _, addr := range []string{":80", ":10053"} {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() { // until the other side ends it
						buf := make([]byte, 16)
						for n := copy(buf, place); err == nil; n, err = c.Read(buf) {
							_, err = c.Write(buf[:n])
						}
						c.Close()
					}()
				}
			}()
		}
		at := []string{""}
		if all := answering[place]; all != nil {
			at = slices.Clone(all)
			for _, a := range all {
				if w.both {
					at = append(at, "["+sixOf(netip.MustParseAddr(a)).String()+"]")
				}
			}
		}
		for _, a := range at {
			p, err := net.ListenPacket("udp", a+":10053")
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { p.Close() })
			go answer(p, place)
		}
		return nil
	})
}

// answering are the addresses by which places with several answer to UDP: an answer must come from where the question went.
var answering = map[string][]string{
	"host": {nodeIP}, "router": {internet}, "own": {ownPod, ownOther},
	"alice": behind["alice"], "dora": behind["dora"], "bea": behind["bea"], "carol": behind["carol"],
}

func answer(p net.PacketConn, name string) {
	buf := make([]byte, 16)
	for {
		_, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = p.WriteTo([]byte(name), from)
		}
	}
}

// kubeProxy translates services: DNS on the node, an own pod, a guest of alice, and a pod at its guest's home; and ports of the host that
// lead to the first two.
func (w *world) kubeProxy() {
	script := `table ip proxy {
  chain services {
    type nat hook prerouting priority dstnat;
    ip daddr 10.43.0.10 udp dport 53 dnat to ` + nodeIP + `:10053
    ip daddr 10.43.0.10 tcp dport 53 dnat to ` + nodeIP + `:10053
    ip daddr 10.43.5.5 tcp dport 80 dnat to ` + ownPod + `
    ip daddr 10.43.5.6 tcp dport 80 dnat to ` + web2 + `
    ip daddr 10.43.5.7 tcp dport 80 dnat to ` + homeOther + `
    ip daddr ` + hostLAN + ` tcp dport 8080 dnat to ` + web2 + `:80
    ip daddr ` + hostLAN + ` tcp dport 8081 dnat to ` + ownPod + `:80
  }
  chain masq {
    type nat hook postrouting priority srcnat;
    ip saddr { 10.42.0.0/16, 10.65.0.0/16 } oifname "eth0" masquerade
  }
}`
	w.nft(script)
	if w.both {
		w.nft(sixScript(script))
	}
}

// guestnet has guests reach services by their addresses at home, and the owner's pods appear to guests as the host.
func (w *world) guestnet() {
	k := guestnet.New(netplan.Cluster{Pods: testConfig.Pods, Services: testConfig.Services}, slog.New(slog.DiscardHandler))
	own, remote, twin, back := netip.MustParseAddr("10.43.8.6"), netip.MustParseAddr("10.43.5.5"), netip.MustParseAddr("10.43.5.6"), netip.MustParseAddr("10.43.5.7")
	w.in("host", func() error {
		return k.Set([]guestnet.Tenant{
			{Guests: netip.MustParsePrefix(alices), Services: guestnet.Services{own: twin, remote: back}},
			{Guests: netip.MustParsePrefix(doras), Services: guestnet.Services{remote: back}},
		})
	})
}

// nft runs the program on the host; some tests look at, or do, what an administrator would.
func (w *world) nft(script string) string {
	w.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		w.t.Skip("there is no nft here")
	}
	var out []byte
	w.in("host", func() (err error) {
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(script)
		out, err = c.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return string(out)
}

// raise puts up a fence in the host's namespace.
func (w *world) raise() {
	cfg := testConfig
	if w.both {
		cfg.IPv6 = netplan.Cluster6{Pods: sixRange(cfg.Pods), Services: sixRange(cfg.Services)}
	}
	cfg.Log, cfg.Kernel = slog.New(slog.DiscardHandler), new(hostnet.Changes)
	f, err := New(cfg)
	w.must(err)
	h, host := w.net("host"), int(w.place["host"])
	f.fence.Options = []nftables.ConnOption{nftables.WithNetNSFd(host)}
	f.limits.Options, f.links.Options, f.bandwidth.Options = f.fence.Options, f.fence.Options, f.fence.Options
	w.at(f, h)
	w.fence = f
}

// at has a fence look at the host's namespace.
func (w *world) at(f *Fence, h *netlink.Handle) {
	host := w.place["host"]
	f.readHost = func(wires bool) (s hostState, err error) {
		err = inside(host, func() (err error) {
			s, err = readHost(h, f.cfg.Group, wires)
			return err
		})
		return s, err
	}
	f.seek = func(found wires, a netip.Addr) { found.seek(h, a) }
	f.narrow = func(link int) error { return inside(host, func() error { return narrow(link) }) }
}

// run follows the host until the test, or the function it returns, ends it.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	host, f := w.place["host"], w.fence
	go func() { done <- inside(host, func() error { return f.Run(ctx) }) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				w.t.Errorf("the fence ended: %v", err)
			}
		}
	}
	w.t.Cleanup(stop)
	return stop
}
