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
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/hostnet"
	"kith.dev/core/netplan"
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
}

type order struct {
	Do   string // set, remove, stats, drops, rtt, taken, told, overlaps
	Peer Peer
	ID   string
	Size int // of an echo; 0 is the least
}

type answer struct {
	Err   string
	Stats map[string]Stats
	Drops map[string]uint64
	RTT   time.Duration
	Taken []netip.Prefix
	IDs   []string // of peers whose aliases overlap something
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
	overlaps := make(chan []string, 64)
	g, err := New(Config{
		Device: "kith0", Address: podGateway, ListenPort: cfg.Port, PrivateKey: key, HostPorts: []uint16{6443},
		Reserved: []netip.Prefix{pods}, Changed: changed, Overlaps: func(ids []string) { overlaps <- ids }, Kernel: new(hostnet.Changes), Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
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
		out.Encode(obey(g, o, told, overlaps))
	}
}

func obey(g *Gateway, o order, told <-chan struct{}, overlaps <-chan []string) (a answer) {
	var err error
	switch o.Do {
	case "set":
		err = g.SetPeer(o.Peer)
	case "remove":
		err = g.RemovePeer(o.ID)
	case "stats":
		a.Stats = g.StatsAll()
	case "drops":
		a.Drops = g.Drops()
	case "rtt":
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		a.RTT, err = g.Echo(ctx, o.ID, o.Size)
	case "told": // waits until it is told of a change
		select {
		case <-told:
		case <-time.After(7 * time.Second):
			err = errors.New("nothing is told")
		}
		a.Stats = g.StatsAll()
	case "overlaps":
		select {
		case a.IDs = <-overlaps:
		case <-time.After(7 * time.Second):
			err = errors.New("nothing is told of overlaps")
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

// laptop is a host and its pod. Its number is the last byte of its LAN address.
type laptop struct {
	t             testing.TB
	name          string
	number        int
	elsewhere     netip.Addr // where it is, if not on the LAN
	key           PrivateKey
	host, pod     netns.NsHandle
	hostNL, podNL *netlink.Handle

	gateway *exec.Cmd
	in      *json.Encoder
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
	p := &laptop{t: t, name: name, number: number}
	var err error
	p.key, err = GenerateKey()
	must(t, err)
	p.host, p.hostNL = newNS(t)
	p.pod, p.podNL = newNS(t)
	connect(t, p.hostNL, "p0", p.podNL, p.pod, "eth0", 1500)
	address(t, p.hostNL, "p0", "10.42.0.1/24")
	address(t, p.podNL, "eth0", podAddr.String()+"/24")
	must(t, p.podNL.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 42, 0, 1)}))
	// A bridge without ports stands in for the dummy device, which some kernels lack.
	must(t, p.hostNL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kith-node"}}))
	address(t, p.hostNL, "kith-node", "10.42.255.1/32")
	return p
}

// start runs the gateway process and waits until its device is up.
func (p *laptop) start() {
	p.t.Helper()
	cfg, _ := json.Marshal(gatewayConfig{Key: base64.StdEncoding.EncodeToString(p.key.bytes[:]), Port: 6450})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "KITH_TEST_GATEWAY="+string(cfg))
	cmd.Stderr = &lineLog{t: p.t, prefix: p.name}
	in, err := cmd.StdinPipe()
	must(p.t, err)
	out, err := cmd.StdoutPipe()
	must(p.t, err)
	inside(p.t, p.host, func() { err = cmd.Start() })
	must(p.t, err)
	p.gateway, p.stdin, p.in, p.out = cmd, in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
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
	must(p.t, p.in.Encode(o))
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

// asPeer is p as q knows it: seenHere is p's alias at q, seenThere q's alias at p.
func (p *laptop) asPeer(seenHere, seenThere string) Peer {
	return Peer{
		ID: p.name, Name: p.name, PublicKey: p.key.Public(), Endpoint: netip.AddrPortFrom(p.address(), 6450),
		Pair: netplan.Pair{
			Theirs: []netplan.Mapping{{Name: "pods", Real: pods, Alias: netip.MustParsePrefix(seenHere)}},
			Ours:   []netplan.Mapping{{Name: "pods", Real: pods, Alias: netip.MustParsePrefix(seenThere)}},
		},
	}
}

// meet makes two laptops peers: b is seen as bAtA by a, and a as aAtB by b. It returns when the tunnel is up.
func meet(a, b *laptop, bAtA, aAtB string) {
	a.t.Helper()
	b.do(order{Do: "set", Peer: a.asPeer(aAtB, bAtA)}) // the responder first
	a.do(order{Do: "set", Peer: b.asPeer(bAtA, aAtB)})
	if a.do(order{Do: "rtt", ID: b.name}).RTT <= 0 {
		a.t.Fatal("no round trip")
	}
}

// inPod runs f with the thread inside the pod's namespace: sockets made in f belong there for good.
func (p *laptop) inPod(f func())  { p.t.Helper(); inside(p.t, p.pod, f) }
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
