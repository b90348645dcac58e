package discovery

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/ipv4"

	"kith.dev/core/identity"
)

// The test binary, called again in a namespace, is one laptop: it runs the finder and writes its events.
const agentEnv = "KITH_DISCOVERY_AGENT"

func TestMain(m *testing.M) {
	if name := os.Getenv(agentEnv); name != "" {
		if err := agent(name); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type seen struct {
	At        int64 // Unix nanoseconds
	Who       identity.ID
	Name      string
	Gone      bool
	Addresses []netip.AddrPort
}

func agent(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	level := slog.LevelInfo
	if os.Getenv("KITH_DISCOVERY_DEBUG") != "" {
		level = slog.LevelDebug
	}
	friend := testID(os.Getenv("KITH_DISCOVERY_TRUSTS"))
	lan, err := NewLAN(LANConfig{ID: testID(name), Name: name, Port: 6450,
		Trusted: func(id identity.ID) bool { return id == friend },
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))})
	if err != nil {
		return err
	}
	events := make(chan Event)
	go func() {
		out := json.NewEncoder(os.Stdout)
		for e := range events {
			out.Encode(seen{time.Now().UnixNano(), e.ID, e.Name, e.Gone, e.Addresses})
		}
	}()
	return lan.Run(ctx, events)
}

// lab is a LAN in namespaces of its own: a bridge, and laptops on it.
type lab struct {
	t       *testing.T
	bridge  *netlink.Handle
	br      netlink.Link
	laptops []*laptop
}

type laptop struct {
	lab     *lab
	name    string
	trusts  string
	id      identity.ID
	ns      netns.NsHandle
	net     *netlink.Handle
	process *exec.Cmd
	started time.Time

	mu     sync.Mutex
	events []seen
	done   chan struct{}
}

func newLab(t *testing.T, n int) *lab {
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	l := &lab{t: t}
	ns := newNamespace(t)
	l.bridge = handleAt(t, ns)
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lan"}, MulticastSnooping: &snooping}
	must(t, l.bridge.LinkAdd(bridge))
	must(t, l.bridge.LinkSetUp(bridge))
	l.br = bridge
	for i := range n {
		p := &laptop{lab: l, name: fmt.Sprintf("n%02d", i), ns: newNamespace(t)}
		p.id = testID(p.name)
		p.net = handleAt(t, p.ns)
		l.laptops = append(l.laptops, p)
		p.plug(i, fmt.Sprintf("192.168.77.%d/24", i+1))
	}
	return l
}

func newNamespace(t *testing.T) netns.NsHandle {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	ns, err := netns.New()
	must(t, err)
	must(t, netns.Set(home))
	t.Cleanup(func() { ns.Close() })
	return ns
}

func handleAt(t *testing.T, ns netns.NsHandle) *netlink.Handle {
	h, err := netlink.NewHandleAt(ns)
	must(t, err)
	t.Cleanup(h.Close)
	return h
}

// plug connects a laptop to the bridge with a new eth0.
func (p *laptop) plug(i int, address string) {
	t := p.lab.t
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("port%d", i), MasterIndex: p.lab.br.Attrs().Index},
		PeerName: "eth0", PeerNamespace: netlink.NsFd(p.ns)}
	must(t, p.lab.bridge.LinkAdd(veth))
	must(t, p.lab.bridge.LinkSetUp(veth))
	p.address(address)
}

// address gives eth0 this address and no other.
func (p *laptop) address(cidr string) {
	t := p.lab.t
	eth0, err := p.net.LinkByName("eth0")
	must(t, err)
	old, err := p.net.AddrList(eth0, netlink.FAMILY_V4)
	must(t, err)
	for _, a := range old {
		must(t, p.net.AddrDel(eth0, &a))
	}
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, p.net.AddrAdd(eth0, a))
	must(t, p.net.LinkSetUp(eth0))
}

func (p *laptop) unplug() {
	eth0, err := p.net.LinkByName("eth0")
	must(p.lab.t, err)
	must(p.lab.t, p.net.LinkDel(eth0))
}

func (p *laptop) start() {
	t := p.lab.t
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), agentEnv+"="+p.name, "KITH_DISCOVERY_TRUSTS="+p.trusts, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, netns.Set(p.ns))
	p.started = time.Now()
	err = cmd.Start() // the child is born into the namespace of this thread
	must(t, netns.Set(home))
	must(t, err)
	p.process, p.done = cmd, make(chan struct{})
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s seen
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				p.mu.Lock()
				p.events = append(p.events, s)
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { p.kill() })
}

func (p *laptop) kill() {
	if p.process != nil {
		p.process.Process.Kill()
		<-p.done
		p.process.Wait()
		p.process = nil
	}
}

// stop ends the laptop's finder gracefully and says when that was asked.
func (p *laptop) stop() time.Time {
	at := time.Now()
	p.process.Process.Signal(syscall.SIGTERM)
	<-p.done
	p.process.Wait()
	p.process = nil
	return at
}

// when tells when p first had, after a time, an event about other that fits.
func (p *laptop) when(after time.Time, other *laptop, fits func(seen) bool) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.events {
		if s.Who == other.id && s.At >= after.UnixNano() && fits(s) {
			return time.Unix(0, s.At), true
		}
	}
	return time.Time{}, false
}

// all waits until each of the watchers had such an event about each of the others, and gives the longest
// it took.
func (l *lab) all(after time.Time, limit time.Duration, watchers, others []*laptop, fits func(seen) bool) time.Duration {
	l.t.Helper()
	deadline := time.Now().Add(limit + time.Second)
	for {
		var longest time.Duration
		var missing []string
		for _, w := range watchers {
			for _, o := range others {
				if w == o {
					continue
				}
				at, ok := w.when(after, o, fits)
				if !ok {
					missing = append(missing, w.name+" of "+o.name)
				}
				longest = max(longest, at.Sub(after))
			}
		}
		if len(missing) == 0 {
			if longest > limit {
				l.t.Errorf("took %v, want %v at most", longest, limit)
			}
			return longest
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("after %v still missing: %d, first %s", time.Since(after), len(missing), missing[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func here(s seen) bool { return !s.Gone }
func gone(s seen) bool { return s.Gone }
func hereAt(a string) func(seen) bool {
	return func(s seen) bool { return !s.Gone && slices.Contains(s.Addresses, netip.MustParseAddrPort(a)) }
}

func TestLAN(t *testing.T) {
	n := 8
	if s := os.Getenv("KITH_DISCOVERY_LAPTOPS"); s != "" { // for measuring
		n, _ = strconv.Atoi(s)
	}
	l := newLab(t, n)
	first, rest := l.laptops[0], l.laptops[1:]
	newcomer, early := rest[len(rest)-1], l.laptops[:n-1]

	begin := time.Now()
	for _, p := range early {
		p.start()
	}
	t.Logf("%d start together: all see all after %v", len(early), l.all(begin, 5*time.Second, early, early, here))

	time.Sleep(2 * time.Second)
	newcomer.start()
	us := []*laptop{newcomer}
	t.Logf("a newcomer sees all after %v", l.all(newcomer.started, 2*time.Second, us, early, here))
	t.Logf("all see the newcomer after %v", l.all(newcomer.started, 2*time.Second, early, us, here))

	at := newcomer.stop()
	t.Logf("all see it gone after %v", l.all(at, time.Second, early, us, gone))
	newcomer.start()
	l.all(newcomer.started, 2*time.Second, early, us, here)

	one := []*laptop{first}
	at = time.Now()
	first.address("192.168.77.201/24")
	t.Logf("all see a new address after %v", l.all(at, 2*time.Second, rest, one, hereAt("192.168.77.201:6450")))

	first.unplug()
	time.Sleep(500 * time.Millisecond)
	at = time.Now()
	first.plug(100, "192.168.77.202/24")
	t.Logf("all see a replaced link after %v", l.all(at, 2*time.Second, rest, one, hereAt("192.168.77.202:6450")))
	at = newcomer.stop()
	l.all(at, time.Second, one, us, gone) // the replaced link is heard as well
	newcomer.start()
	l.all(newcomer.started, 3*time.Second, one, us, here)

	at = time.Now()
	for _, p := range rest {
		must(t, p.process.Process.Signal(syscall.SIGTERM))
	}
	t.Logf("all the others leave at once: seen after %v", l.all(at, 2*time.Second, one, rest, gone))
	for _, p := range l.laptops {
		if p.process != nil {
			p.stop()
		}
	}
	idle(t, l, n)
}

// idle counts packets on the wire when nothing happens, for as long as KITH_DISCOVERY_IDLE says.
func idle(t *testing.T, l *lab, n int) {
	wait, err := time.ParseDuration(os.Getenv("KITH_DISCOVERY_IDLE"))
	if err != nil {
		return
	}
	begin := time.Now()
	for _, p := range l.laptops {
		p.start()
	}
	l.all(begin, 5*time.Second, l.laptops, l.laptops, here)
	time.Sleep(time.Until(begin.Add(10 * time.Second)))
	received := func() uint64 {
		eth0, err := l.laptops[1].net.LinkByName("eth0")
		must(t, err)
		return eth0.Attrs().Statistics.RxPackets + eth0.Attrs().Statistics.TxPackets
	}
	for start := time.Now(); time.Since(start) < wait; {
		before := received()
		time.Sleep(time.Minute)
		t.Logf("idle since %v, %d laptops: %d packets in a minute on the whole LAN", time.Since(begin).Round(time.Second), n, received()-before)
	}
	for _, p := range l.laptops[1:] {
		if when, ok := l.laptops[0].when(begin, p, gone); ok {
			t.Errorf("%s was taken for gone at %v while idle", p.name, when.Sub(begin))
		}
	}
}

func TestLANBesideAnotherResponder(t *testing.T) {
	l := newLab(t, 2)
	for _, p := range l.laptops {
		// Another daemon has the port already, as avahi-daemon does.
		runtime.LockOSThread()
		home, err := netns.Get()
		must(t, err)
		must(t, netns.Set(p.ns))
		eth0, err := net.InterfaceByName("eth0")
		must(t, err)
		other, err := net.ListenMulticastUDP("udp4", eth0, group4)
		must(t, netns.Set(home))
		runtime.UnlockOSThread()
		home.Close()
		must(t, err)
		defer other.Close()
	}
	begin := time.Now()
	for _, p := range l.laptops {
		p.start()
	}
	l.all(begin, 2*time.Second, l.laptops, l.laptops, here)
}

// Ten thousand spoofed announcements, from fifty addresses, in about ten seconds: the wire carries six
// times what a minute may bring.
func TestLANFlood(t *testing.T) {
	l := newLab(t, 3)
	alice, bob, mallory := l.laptops[0], l.laptops[1], l.laptops[2]
	alice.trusts = bob.name
	alice.start()
	time.Sleep(3 * time.Second) // IPv6 is ready, the link at rest
	memory := alice.resident()
	eth0, err := mallory.net.LinkByName("eth0")
	must(t, err)
	for i := range 50 {
		a, err := netlink.ParseAddr(fmt.Sprintf("192.168.77.%d/24", 100+i))
		must(t, err)
		must(t, mallory.net.AddrAdd(eth0, a))
	}
	conns := mallory.sockets(50)
	go func() {
		time.Sleep(3 * time.Second)
		bob.start()
	}()
	for i := range 10_000 {
		packet := compose(t, card{1, numbered(i), "x"}, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		if _, err := conns[i%len(conns)].WriteTo(packet, group4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Microsecond)
	}
	l.all(bob.started, 2*time.Second, []*laptop{alice}, []*laptop{bob}, here)
	alice.mu.Lock()
	events := len(alice.events)
	alice.mu.Unlock()
	grown := alice.resident() - memory
	t.Logf("10 000 spoofed in %v: %d events, memory grew by %d KiB; a peer with a contract was seen at once",
		time.Since(bob.started)+3*time.Second, events, grown)
	if events > strangersBurst+20*strangersSecond+20 || grown > 16<<10 {
		t.Errorf("%d events, %d KiB", events, grown)
	}
}

// resident is the memory of a laptop's process, in KiB.
func (p *laptop) resident() (kib int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	must(p.lab.t, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscanf(rest, "%d kB", &kib)
	must(p.lab.t, err)
	return kib
}

// sockets opens the mDNS port in the laptop's namespace, once for each of its further addresses.
func (p *laptop) sockets(n int) (conns []net.PacketConn) {
	t := p.lab.t
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	must(t, netns.Set(p.ns))
	defer func() { must(t, netns.Set(home)) }()
	eth0, err := net.InterfaceByName("eth0")
	must(t, err)
	for i := range n {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 168, 77, byte(100+i)), Port: mdnsPort})
		must(t, err)
		must(t, ipv4.NewPacketConn(conn).SetMulticastInterface(eth0))
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}
