package mdns

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"kith.dev/core/find/discovery"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/trust/identity"
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
	Heap      uint64 // not an event, but the answer to a line of input: what lives in the laptop's memory, in bytes
}

func agent(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	friend := testID(os.Getenv("KITH_DISCOVERY_TRUSTS"))
	lan := New(Config{ID: testID(name), Name: name, Port: 6450, Kernel: new(hostnet.Changes),
		Trusted: func(id identity.ID) bool { return id == friend },
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil))})
	events, weigh := make(chan discovery.Event), make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			weigh <- struct{}{}
		}
	}()
	go func() {
		out := json.NewEncoder(os.Stdout)
		for {
			select {
			case e := <-events:
				out.Encode(seen{At: time.Now().UnixNano(), Who: e.ID, Name: e.Name, Gone: e.Gone, Addresses: e.Addresses})
			case <-weigh:
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				out.Encode(seen{Heap: m.HeapAlloc})
			}
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
	input  io.Writer
	heaps  chan uint64
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

// kernelHas waits for an address of IPv6 of a kind, and until nobody else can have it.
func (p *laptop) kernelHas(is func(netlink.Addr) bool) string {
	t := p.lab.t
	eth0, err := p.net.LinkByName("eth0")
	must(t, err)
	for deadline := time.Now().Add(unasked); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		list, err := p.net.AddrList(eth0, netlink.FAMILY_V6)
		must(t, err)
		for _, a := range list {
			if a.Flags&unix.IFA_F_TENTATIVE == 0 && is(a) {
				return a.IP.String()
			}
		}
	}
	t.Fatalf("%s has no such address", p.name)
	return ""
}

// in does something in the laptop's namespace.
func (p *laptop) in(do func() error) {
	t := p.lab.t
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	must(t, netns.Set(p.ns))
	err = do()
	must(t, netns.Set(home))
	must(t, err)
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
	p.input, err = cmd.StdinPipe()
	must(t, err)
	must(t, netns.Set(p.ns))
	p.started = time.Now()
	err = cmd.Start() // the child is born into the namespace of this thread
	must(t, netns.Set(home))
	must(t, err)
	p.process, p.done, p.heaps = cmd, make(chan struct{}), make(chan uint64, 1)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s seen
			if json.Unmarshal(lines.Bytes(), &s) != nil {
				continue
			}
			if s.Heap > 0 {
				p.heaps <- s.Heap
			} else {
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

// unasked is less than anything lasts that would be found out without being told: records live for minutes.
const unasked = 10 * time.Second

// all waits until each of the watchers had such an event about each of the others, and gives the longest
// it took; `make bench` has bounds.
func (l *lab) all(after time.Time, watchers, others []*laptop, fits func(seen) bool) time.Duration {
	l.t.Helper()
	deadline := time.Now().Add(unasked)
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

// heap is what lives in the memory of a laptop's process, in KiB. What the process holds beyond it says more of the collector's
// pace and of the race detector than of what a LAN makes it keep.
func (p *laptop) heap() int {
	_, err := fmt.Fprintln(p.input)
	must(p.lab.t, err)
	select {
	case bytes := <-p.heaps:
		return int(bytes >> 10)
	case <-p.done:
		p.lab.t.Fatalf("%s has ended", p.name)
		return 0
	}
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
