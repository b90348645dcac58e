package gateway

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// The tests in *_linux_test.go build a LAN of laptops from network namespaces without names, which vanish with
// the test. Each laptop has a pod, and all pods have the same address. A laptop's gateway is a process of its own:
// this test binary, started again inside the laptop's namespace and driven by lines of JSON.

func TestMain(m *testing.M) {
	if cfg := os.Getenv("KITH_TEST_GATEWAY"); cfg != "" {
		serveGateway(cfg)
		return
	}
	if settings := os.Getenv("KITH_TEST_WIREGUARD"); settings != "" {
		servePlain(settings)
		return
	}
	os.Exit(m.Run())
}

type gatewayConfig struct {
	Key  string
	Port uint16
	IPv6 netplan.Cluster6
}

type order struct {
	Do     string // set, remove, peer, stats, drops, rtt, taken, told, overlaps
	Peer   Peer
	ID     string
	Size   int    // of an echo; 0 is the least
	At     string // of a carrier: where to listen or dial
	Seen   []netip.AddrPort
	Mapped netip.AddrPort
	TLS    string // of a carrier: client or server; "" has none
}

type answer struct {
	Err   string
	Stats map[string]Stats
	Drops map[string]uint64
	RTT   time.Duration
	Taken []netip.Prefix
	Laps  []netip.Prefix // ranges that overlap something
	Peer  Peer
}

func serveGateway(config string) {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "gateway process:", err)
			os.Exit(1)
		}
	}
	var cfg gatewayConfig
	die(json.Unmarshal([]byte(config), &cfg))
	key, err := ParsePrivateKey(cfg.Key)
	die(err)
	told := make(chan struct{}, 64)
	changed := func() { told <- struct{}{} }
	g, err := New(Config{
		Device: "kith0", Address: podGateway, ListenPort: cfg.Port, PrivateKey: key, HostPorts: []uint16{6443}, Guests: guestGroup,
		Pods: pods, IPv6: cfg.IPv6, Changed: changed, Kernel: new(hostnet.Changes), Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	die(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for up := false; !up; {
		select {
		case err := <-ended:
			die(err)
		case <-time.After(time.Millisecond):
			g.mu.Lock()
			up = g.live != nil
			g.mu.Unlock()
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.Encode(answer{})
	for lines := json.NewDecoder(os.Stdin); ; {
		var o order
		err := lines.Decode(&o)
		if errors.Is(err, io.EOF) { // the test is over
			cancel()
			die(<-ended)
			return
		}
		die(err)
		out.Encode(obey(g, o, told))
	}
}

func obey(g *Gateway, o order, told <-chan struct{}) (a answer) {
	var err error
	switch o.Do {
	case "set":
		err = g.SetPeer(o.Peer)
	case "remove":
		err = g.RemovePeer(o.ID)
	case "peer":
		a.Peer, _ = g.Peer(o.ID)
	case "stats":
		a.Stats = g.StatsAll()
	case "drops":
		a.Drops = g.Drops()
	case "rtt":
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // a busy machine answers late; WireGuard tries again every five seconds
		defer cancel()
		for a.RTT, err = g.Echo(ctx, o.ID, o.Size); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil; {
			a.RTT, err = g.Echo(ctx, o.ID, o.Size)
		}
	case "told": // waits until it is told of a change
		select {
		case <-told:
		case <-time.After(2 * time.Minute):
			err = errors.New("nothing is told")
		}
		a.Stats = g.StatsAll()
	case "overlaps":
		for timeout := time.After(2 * time.Minute); err == nil && len(a.Laps) == 0; {
			select {
			case <-told:
				a.Laps = g.Overlapping(o.ID)
			case <-timeout:
				err = errors.New("nothing is told of overlaps")
			}
		}
	case "carry": // over a connection to At, until the process ends
		var over net.Conn
		if over, err = net.Dial("tcp", o.At); err == nil {
			if o.TLS != "" { // with the relay, and inside with the other one
				over = secured(secured(over, false), o.TLS == "server")
			}
			go g.Carry(context.Background(), o.ID, over, Carriage{By: "carol", Seen: o.Seen, Keep: true, First: true, Mapped: func() netip.AddrPort { return o.Mapped }})
		}
	case "taken":
		a.Taken, err = g.Taken(o.ID)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

var (
	pods       = netip.MustParsePrefix("10.42.0.0/16")
	podAddr    = netip.MustParseAddr("10.42.0.5")
	podGateway = netip.MustParseAddr("10.42.255.2")
)

// guestGroup is that of the links that lead to guests.
const guestGroup = 0x6b67

// lan is a bridge in a namespace of its own, at 172.31.0.254, which is everyone's default gateway and forwards
// nothing.
type lan struct {
	t      testing.TB
	ns     netns.NsHandle
	nl     *netlink.Handle
	bridge netlink.Link
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun")
	}
	l := &lan{t: t}
	l.ns, l.nl = newNS(t)
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, l.nl.LinkAdd(br))
	l.bridge = link(t, l.nl, "br0")
	address(t, l.nl, "br0", "172.31.0.254/24")
	return l
}

// end is a pod, somewhere.
type end struct {
	t    testing.TB
	name string
	addr netip.Addr
	ns   netns.NsHandle
	nl   *netlink.Handle
}

// laptop is a host and its pod. Its number is the last byte of its LAN address, and what others call it inside WireGuard.
type laptop struct {
	*end      // its own pod
	number    int
	elsewhere netip.Addr       // where it is, if not on the LAN
	ipv6      netplan.Cluster6 // of its cluster
	key       PrivateKey
	mapped    netip.AddrPort // what a router maps to it
	behind    *router        // nil: none
	tls       string         // of its carriers
	host      netns.NsHandle
	hostNL    *netlink.Handle

	gateway *exec.Cmd
	orders  *json.Encoder
	stdin   io.Closer
	out     *json.Decoder
}

func (l *lan) laptop(name string, number int) *laptop {
	l.t.Helper()
	p := l.host(name, number)
	connect(l.t, l.nl, fmt.Sprintf("to%d", number), p.hostNL, p.host, "u0", 1500)
	must(l.t, l.nl.LinkSetMaster(link(l.t, l.nl, fmt.Sprintf("to%d", number)), l.bridge))
	address(l.t, p.hostNL, "u0", fmt.Sprintf("172.31.0.%d/24", number))
	must(l.t, p.hostNL.RouteAdd(&netlink.Route{Gw: net.IPv4(172, 31, 0, 254)}))
	p.start()
	return p
}

// host is a laptop with its pod but without a network card.
func (l *lan) host(name string, number int) *laptop {
	t := l.t
	t.Helper()
	p := &laptop{end: &end{t: t, name: name, addr: podAddr}, number: number}
	var err error
	p.key, err = GenerateKey()
	must(t, err)
	p.host, p.hostNL = newNS(t)
	p.ns, p.nl = newNS(t)
	connect(t, p.hostNL, "p0", p.nl, p.ns, "eth0", 1500)
	address(t, p.hostNL, "p0", "10.42.0.1/24")
	address(t, p.nl, "eth0", podAddr.String()+"/24")
	must(t, p.nl.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 42, 0, 1)}))
	// A bridge without ports stands in for the dummy device, which some kernels lack.
	must(t, p.hostNL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kith-node"}}))
	address(t, p.hostNL, "kith-node", "10.42.255.1/32")
	return p
}

// start runs the gateway process and waits until its device is up.
func (p *laptop) start() {
	p.t.Helper()
	cfg, _ := json.Marshal(gatewayConfig{Key: base64.StdEncoding.EncodeToString(p.key.bytes[:]), Port: 6450, IPv6: p.ipv6})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "KITH_TEST_GATEWAY="+string(cfg))
	cmd.Stderr = &lineLog{t: p.t, prefix: p.name}
	in, err := cmd.StdinPipe()
	must(p.t, err)
	out, err := cmd.StdoutPipe()
	must(p.t, err)
	inside(p.t, p.host, func() { err = cmd.Start() })
	must(p.t, err)
	p.gateway, p.stdin, p.orders, p.out = cmd, in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	p.t.Cleanup(func() { p.stop() })
	p.answer()
}

// stop ends the gateway in an orderly way; kill does not.
func (p *laptop) stop() {
	if p.gateway == nil {
		return
	}
	p.stdin.Close()
	if err := p.gateway.Wait(); err != nil {
		p.t.Errorf("%s: gateway ended with %v", p.name, err)
	}
	p.gateway = nil
}

func (p *laptop) kill() {
	p.t.Helper()
	must(p.t, p.gateway.Process.Kill())
	p.gateway.Wait()
	p.gateway = nil
}

func (p *laptop) do(o order) answer {
	p.t.Helper()
	a := p.try(o)
	if a.Err != "" {
		p.t.Fatalf("%s: %s: %s", p.name, o.Do, a.Err)
	}
	return a
}

func (p *laptop) try(o order) answer {
	p.t.Helper()
	must(p.t, p.orders.Encode(o))
	return p.answer()
}

func (p *laptop) answer() (a answer) {
	p.t.Helper()
	if err := p.out.Decode(&a); err != nil {
		p.stdin.Close()
		ended := p.gateway.Wait() // also waits for its last words
		p.gateway = nil
		p.t.Fatalf("%s: the gateway process is gone: %v", p.name, ended)
	}
	return a
}

func (p *laptop) address() netip.Addr {
	if p.elsewhere.IsValid() {
		return p.elsewhere
	}
	return netip.AddrFrom4([4]byte{172, 31, 0, byte(p.number)})
}

// guest starts a pod of another laptop here, with an address of their range for guests, as the network plugin ptp does.
func (p *laptop) guest(addr string) *end {
	p.t.Helper()
	g := &end{t: p.t, name: addr + " at " + p.name, addr: netip.MustParseAddr(addr)}
	gw := netplan.GuestGateway(netip.PrefixFrom(g.addr, netplan.GuestBits))
	g.ns, g.nl = newNS(p.t)
	dev := "g" + strings.ReplaceAll(strings.TrimPrefix(addr, "10."), ".", "-")
	connect(p.t, p.hostNL, dev, g.nl, g.ns, "eth0", 1500)
	must(p.t, p.hostNL.LinkSetGroup(link(p.t, p.hostNL, dev), guestGroup))
	address(p.t, p.hostNL, dev, gw.String()+"/32")
	must(p.t, p.hostNL.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.PrefixFrom(g.addr, 32)), LinkIndex: link(p.t, p.hostNL, dev).Attrs().Index, Scope: netlink.SCOPE_LINK}))
	address(p.t, g.nl, "eth0", addr+"/32")
	must(p.t, g.nl.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.PrefixFrom(gw, 32)), LinkIndex: link(p.t, g.nl, "eth0").Attrs().Index, Scope: netlink.SCOPE_LINK}))
	must(p.t, g.nl.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}))
	return g
}

// known is p as others know it.
func (p *laptop) known() Peer {
	return Peer{ID: p.name, Name: p.name, PublicKey: p.key.Public(), Endpoint: netip.AddrPortFrom(p.address(), 6450)}
}

// provider is p as its consumer q knows it, whose guests at p have addresses of a range.
func (p *laptop) provider(q *laptop, there string) Peer {
	peer := p.known()
	peer.There = netip.MustParsePrefix(there)
	peer.AtThere = netplan.GuestGateway(peer.There)
	return peer
}

// consumer is p as its provider q knows it. Besides its pods p's address space has what is given.
func (p *laptop) consumer(q *laptop, here string, space ...string) Peer {
	peer := p.known()
	peer.Here, peer.Space, peer.AtHome = netip.MustParsePrefix(here), []netip.Prefix{pods}, podGateway
	for _, s := range space {
		peer.Space = append(peer.Space, netip.MustParsePrefix(s))
	}
	return peer
}

// meet makes two laptops peers: home has guests at host, with addresses of a range. It returns one of them, whose address ends in 5, when the tunnel is up.
func meet(home, host *laptop, guests string, space ...string) *end {
	home.t.Helper()
	host.do(order{Do: "set", Peer: home.consumer(host, guests, space...)}) // the responder first
	home.do(order{Do: "set", Peer: host.provider(home, guests)})
	if home.do(order{Do: "rtt", ID: host.name}).RTT <= 0 {
		home.t.Fatal("no round trip")
	}
	a := netip.MustParsePrefix(guests).Addr().As4()
	a[3] = 5
	return host.guest(netip.AddrFrom4(a).String())
}

// in runs f with the thread inside the pod's namespace: sockets made in f belong there for good.
func (p *end) in(f func())        { p.t.Helper(); inside(p.t, p.ns, f) }
func (p *laptop) inHost(f func()) { p.t.Helper(); inside(p.t, p.host, f) }

func inside(t testing.TB, ns netns.NsHandle, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			f()
		}
		done <- err
	}()
	must(t, <-done)
}

func newNS(t testing.TB) (netns.NsHandle, *netlink.Handle) {
	t.Helper()
	var ns netns.NsHandle
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("needs network namespaces: %v", err)
	}
	nl, err := netlink.NewHandleAt(ns)
	must(t, err)
	t.Cleanup(func() { nl.Close(); ns.Close() })
	must(t, nl.LinkSetUp(link(t, nl, "lo")))
	return ns, nl
}

// connect lays a cable between two namespaces.
func connect(t testing.TB, here *netlink.Handle, name string, there *netlink.Handle, thereNS netns.NsHandle, peerName string, mtu int) {
	t.Helper()
	must(t, here.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: peerName, PeerNamespace: netlink.NsFd(int(thereNS)), PeerMTU: uint32(mtu),
	}))
	must(t, here.LinkSetUp(link(t, here, name)))
	must(t, there.LinkSetUp(link(t, there, peerName)))
}

func address(t testing.TB, nl *netlink.Handle, dev, cidr string) {
	t.Helper()
	l := link(t, nl, dev)
	must(t, nl.AddrAdd(l, parseAddr(t, cidr)))
	must(t, nl.LinkSetUp(l))
}

func parseAddr(t testing.TB, cidr string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	return a
}

func link(t testing.TB, nl *netlink.Handle, name string) netlink.Link {
	t.Helper()
	l, err := nl.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lineLog shows what a gateway process says.
type lineLog struct {
	t      testing.TB
	prefix string
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.t.Logf("%s: %s", l.prefix, b)
	return len(b), nil
}
