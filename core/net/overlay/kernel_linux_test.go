package overlay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"kith.dev/core/net/hostnet"
)

// host is a network namespace; what is done in it is done by a thread of its own.
type host struct {
	t    *testing.T
	name string
	do   chan func()
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{t: t, name: fmt.Sprintf("kith-%s-%d", name, os.Getpid()), do: make(chan func())}
	run(t, "ip", "netns", "add", h.name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", h.name) })
	entered := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good
		ns, err := netns.GetFromName(h.name)
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		entered <- err
		for f := range h.do {
			f()
		}
	}()
	t.Cleanup(func() { close(h.do) })
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	h.ip("link", "set", "lo", "up")
	h.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1")
	return h
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h *host) in(f func()) {
	done := make(chan struct{})
	h.do <- func() { defer close(done); f() }
	<-done
}

func (h *host) run(args ...string) (out string) {
	h.t.Helper()
	return run(h.t, append([]string{"ip", "netns", "exec", h.name}, args...)...)
}

func (h *host) ip(args ...string) string {
	h.t.Helper()
	return h.run(append([]string{"ip"}, args...)...)
}

// wire joins two hosts by a link.
func wire(a *host, nameA string, b *host, nameB string) {
	a.t.Helper()
	run(a.t, "ip", "link", "add", nameA, "netns", a.name, "type", "veth", "peer", "name", nameB, "netns", b.name)
	a.ip("link", "set", nameA, "up")
	b.ip("link", "set", nameB, "up")
}

// answers says to each who asks by UDP what his address is.
func (h *host) answers(at string) {
	h.t.Helper()
	var conn net.PacketConn
	var err error
	h.in(func() { conn, err = net.ListenPacket("udp4", at) })
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	go func() {
		for b := make([]byte, 2000); ; {
			_, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(from.(*net.UDPAddr).IP.String()), from)
		}
	}()
}

// asks gives what it is called there, or why there is no answer.
func (h *host) asks(at string) (as string) {
	h.t.Helper()
	h.in(func() {
		conn, err := net.Dial("udp4", at)
		if err != nil {
			as = err.Error()
			return
		}
		defer conn.Close()
		for range 3 {
			_, _ = conn.Write([]byte("?"))
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			b := make([]byte, 2000)
			n, err := conn.Read(b)
			if err == nil {
				as = string(b[:n])
				return
			}
			as = err.Error()
		}
	})
	return as
}

// state is all that this room could leave.
func (h *host) state() string {
	var b bytes.Buffer
	for _, what := range [][]string{{"ip", "-br", "link"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}, {"ip", "neigh"}, {"nft", "list", "tables"}} {
		b.WriteString(h.run(what...))
	}
	return b.String()
}

// Three nodes, whose network plugin masquerades what leaves the range of pods, as flannel does, and a peer behind the gateway of the first.
func TestPodsOfEveryNodeReachPeersAndBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "iptables", "nft", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	lan, peer := newHost(t, "lan"), newHost(t, "peer")
	lan.ip("link", "add", "br0", "type", "bridge")
	lan.ip("link", "set", "br0", "up")
	w := World{Peers: []netip.Prefix{prefix("198.18.9.0/24")}}
	nodes, pods, kernels := map[string]*host{}, map[string]*host{}, map[string]*Kernel{}
	for i, name := range []string{"a", "b", "c"} {
		n, p := newHost(t, name), newHost(t, name+"pod")
		nodes[name], pods[name] = n, p
		wire(n, "eth0", lan, "to-"+name)
		lan.ip("link", "set", "to-"+name, "master", "br0")
		address, pod := fmt.Sprintf("192.0.2.1%d", i+1), fmt.Sprintf("10.42.%d.5", i)
		n.ip("addr", "add", address+"/24", "dev", "eth0")
		wire(n, "cni0", p, "eth0")
		n.ip("addr", "add", fmt.Sprintf("10.42.%d.1/24", i), "dev", "cni0")
		p.ip("addr", "add", pod+"/24", "dev", "eth0")
		p.ip("route", "add", "default", "via", fmt.Sprintf("10.42.%d.1", i))
		n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.42.0.0/16", "!", "-d", "10.42.0.0/16", "-j", "MASQUERADE")
		n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "!", "-s", "10.42.0.0/16", "-d", "10.42.0.0/16", "-j", "MASQUERADE")
		w.Nodes = append(w.Nodes, Node{name, addr(address), prefix(fmt.Sprintf("10.42.%d.0/24", i))})
		p.answers(pod + ":7")
		kernels[name] = NewKernel(cfg(name), new(hostnet.Changes), slog.New(slog.DiscardHandler))
	}
	for i, name := range []string{"a", "b", "c"} {
		for j := range 3 {
			if i != j { // the plugin's way between nodes, which drops what it does not know
				nodes[name].ip("route", "add", fmt.Sprintf("10.42.%d.0/24", j), "via", fmt.Sprintf("192.0.2.1%d", j+1))
			}
		}
		nodes[name].run("iptables", "-A", "FORWARD", "-i", "eth0", "!", "-s", "10.42.0.0/16", "-j", "DROP")
	}
	peer.ip("addr", "add", "198.18.9.7/32", "dev", "lo")
	peer.answers("198.18.9.7:7")

	before := map[string]string{}
	for name, n := range nodes {
		before[name] = n.state()
	}
	var is string // the gateway's node
	tunnel := func(to string) {
		t.Helper()
		if is != "" {
			nodes[is].ip("link", "del", "kith0")
		}
		is = to
		wire(nodes[to], "kith0", peer, "tunnel")
		// Like the tunnel's own device, without Ethernet's ways.
		nodes[to].ip("link", "set", "kith0", "arp", "off", "address", "02:00:00:00:00:01")
		peer.ip("link", "set", "tunnel", "arp", "off", "address", "02:00:00:00:00:01")
		nodes[to].ip("addr", "add", "10.42.255.2/32", "dev", "kith0")
		nodes[to].ip("route", "add", "198.18.9.0/24", "dev", "kith0")
		peer.ip("route", "add", "10.42.0.0/16", "dev", "tunnel")
		w.Gateway = to
		for name, n := range nodes {
			plan, ok := PlanOf(cfg(name), w)
			if !ok {
				t.Fatal(name, "has no plan")
			}
			for range 2 { // a second time nothing is to be done
				n.in(func() {
					if err := kernels[name].Set(plan); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				})
			}
		}
	}
	for _, gateway := range []string{"a", "c"} { // then another kithd works
		tunnel(gateway)
		for i, name := range []string{"a", "b", "c"} {
			pod := fmt.Sprintf("10.42.%d.5", i)
			if as := pods[name].asks("198.18.9.7:7"); as != pod {
				t.Errorf("by %s: the peer sees the pod on %s as %s, want %s", gateway, name, as, pod)
			}
			if as := peer.asks(pod + ":7"); as != "198.18.9.7" {
				t.Errorf("by %s: the pod on %s sees the peer as %s", gateway, name, as)
			}
			if name != gateway { // there kith0 has the gateway's address
				if as := nodes[name].asks("198.18.9.7:7"); as != fmt.Sprintf("10.42.%d.0", i) {
					t.Errorf("by %s: the peer sees node %s as %s", gateway, name, as)
				}
			}
		}
	}

	// Nobody but a node sends into the overlay: what a pod, or a stranger on the LAN, sends to its port is dropped.
	lan.ip("addr", "add", "192.0.2.99/24", "dev", "br0")
	pods["b"].asks("192.0.2.13:6451")
	lan.asks("192.0.2.13:6451")
	for where, chain := range map[string]string{"c": "from-nodes-alone", "b": "not-from-pods"} {
		if out := nodes[where].run("nft", "list", "chain", "ip", Table, chain); !strings.Contains(out, "counter packets 3") {
			t.Errorf("%s: %s", where, out)
		}
	}

	nodes[is].ip("link", "del", "kith0")
	for name, n := range nodes {
		n.in(func() {
			if err := kernels[name].Remove(); err != nil {
				t.Error(err)
			}
		})
		if after := forgetNeighbours(n.state()); after != forgetNeighbours(before[name]) {
			t.Errorf("%s has\n%s\nwant\n%s", name, after, before[name])
		}
	}
}

// forgetNeighbours leaves out whom the kernel met meanwhile.
func forgetNeighbours(state string) string {
	var b strings.Builder
	for line := range strings.Lines(state) {
		if !strings.Contains(line, "fe80::") && !strings.Contains(line, " lladdr ") && !strings.Contains(line, "FAILED") && !strings.Contains(line, "INCOMPLETE") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// stay runs something in the host's network until ctx ends.
func (h *host) stay(ctx context.Context, f func(context.Context) error) {
	h.t.Helper()
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good
		ns, err := netns.GetFromName(h.name)
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err == nil {
			err = f(ctx)
		}
		ended <- err
	}()
	h.t.Cleanup(func() {
		if err := <-ended; err != nil {
			h.t.Errorf("%s: %v", h.name, err)
		}
	})
}

// TestAWayThatIsCutIsKnown: a firewall that lets the VXLAN's port through in one direction, or in none; and firewalls of what comes out of it
// decide nothing.
func TestAWayThatIsCutIsKnown(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "iptables", "nft", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	w := World{Gateway: "a", Peers: []netip.Prefix{prefix("198.18.9.0/24")}, Nodes: []Node{
		{"a", addr("192.0.2.11"), prefix("10.42.0.0/24")}, {"b", addr("192.0.2.12"), prefix("10.42.1.0/24")},
	}}
	a, b := newHost(t, "a"), newHost(t, "b")
	wire(a, "eth0", b, "eth0")
	for i, h := range []*host{a, b} {
		h.ip("addr", "add", fmt.Sprintf("192.0.2.1%d/24", i+1), "dev", "eth0")
		h.run("iptables", "-A", "INPUT", "-i", Device, "-j", "DROP")
	}
	const every = 100 * time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	changes := make(chan struct{}, 100)
	ways := Ways{every: every}
	a.stay(ctx, func(ctx context.Context) error {
		return ways.Listen(ctx, new(hostnet.Changes), func() { changes <- struct{}{} })
	})
	t.Cleanup(end) // before the others end
	kernels := map[string]*Kernel{}
	for _, h := range []*host{a, b} {
		name := h.name[len("kith-"):][:1]
		k := NewKernel(cfg(name), new(hostnet.Changes), slog.New(slog.DiscardHandler))
		k.every = every
		kernels[name] = k
		h.stay(ctx, k.Ask)
		plan, _ := PlanOf(cfg(name), w)
		h.in(func() {
			if err := k.Set(plan); err != nil {
				t.Fatal(err)
			}
		})
	}
	await := func(want Direction) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(every) {
			is, port := ways.Cut(addr("192.0.2.12"))
			if is == want && port == int(cfg("a").Port) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the way by UDP port %d is %q, want %q", port, is, want)
			}
		}
	}
	heard := func() bool {
		ways.mu.Lock()
		defer ways.mu.Unlock()
		return len(ways.heard) == 1 && ways.sure(time.Now())
	}
	for end := time.Now().Add(2 * time.Minute); !heard(); time.Sleep(every) {
		if time.Now().After(end) {
			t.Fatal("nobody asks")
		}
	}
	await(Open)
	port := fmt.Sprint(cfg("a").Port)
	for _, c := range []struct {
		at   *host
		want Direction
	}{{a, To}, {b, From}} {
		for len(changes) > 0 {
			<-changes
		}
		rule := []string{"INPUT", "-i", "eth0", "-p", "udp", "--dport", port, "-j", "DROP"}
		c.at.run(append([]string{"iptables", "-A"}, rule...)...)
		await(c.want)
		c.at.run(append([]string{"iptables", "-D"}, rule...)...)
		await(Open)
		if len(changes) == 0 {
			t.Error("nobody was told of a change")
		}
	}
	still := ways.Most()
	if !still() {
		t.Error("nobody asks any more")
	}
	w.Gateway, w.Nodes = "c", append(w.Nodes, Node{"c", addr("192.0.2.13"), prefix("10.42.2.0/24")})
	plan, _ := PlanOf(cfg("b"), w)
	b.in(func() {
		if err := kernels["b"].Set(plan); err != nil {
			t.Fatal(err)
		}
	})
	for end := time.Now().Add(2 * every); still(); time.Sleep(every / 20) {
		if time.Now().After(end) {
			t.Fatal("a node that turned to another gateway said nothing")
		}
	}
	await(To)
}
