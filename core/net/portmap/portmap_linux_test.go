package portmap

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
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/net/hostnet"
)

// The tests have miniupnpd for a router, between a laptop and a host outside: namespaces without names, which vanish with the test. The laptop is this
// test binary, started again inside its namespace.

func TestMain(m *testing.M) {
	if os.Getenv("KITH_TEST_PORTMAP") != "" {
		serveLaptop()
		return
	}
	os.Exit(m.Run())
}

// serveLaptop keeps the ports mapped until its input ends, says each status, and answers what comes.
func serveLaptop() {
	socket, err := net.ListenPacket("udp4", ":6450")
	if err != nil {
		panic(err)
	}
	go func() {
		buf := make([]byte, 64)
		for {
			if n, from, err := socket.ReadFrom(buf); err == nil {
				socket.WriteTo(buf[:n], from)
			}
		}
	}()
	out := json.NewEncoder(os.Stdout)
	var m *Mapper
	m = New(Config{
		Ports: []Port{{UDP, 6450}, {TCP, 6450}}, Kernel: new(hostnet.Changes), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Changed: func() { out.Encode(m.Status()) },
	})
	ctx, stop := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); stop() }()
	if err := m.Run(ctx); err != nil {
		panic(err)
	}
}

// home is a router with miniupnpd, laptops and somebody outside.
type home struct {
	t               *testing.T
	router, outside netns.NsHandle
	nl              *netlink.Handle // of the router
	daemon          *exec.Cmd
}

func newHome(t *testing.T) *home {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	h := &home{t: t}
	var outsideNL *netlink.Handle
	h.router, h.nl = newNS(t)
	h.outside, outsideNL = newNS(t)
	cable(t, h.nl, "wan", outsideNL, h.outside)
	address(t, h.nl, "wan", "11.0.0.1/24")
	address(t, outsideNL, "u0", "11.0.0.9/24")
	must(t, h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lan"}}))
	address(t, h.nl, "lan", "192.168.77.1/24")
	h.run(h.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	h.run(h.router, "nft", `add table inet home
add chain inet home forward { type filter hook forward priority 0; policy drop; }
add chain inet home upnp
add rule inet home forward iifname lan accept
add rule inet home forward ct state established,related accept
add rule inet home forward jump upnp
add chain inet home pre { type nat hook prerouting priority -100; }
add chain inet home upnp_pre
add rule inet home pre jump upnp_pre
add chain inet home post { type nat hook postrouting priority 100; }
add chain inet home upnp_post
add rule inet home post jump upnp_post
add rule inet home post oifname wan masquerade`)
	return h
}

// speaks starts miniupnpd, with one of its protocols.
func (h *home) speaks(natPMP, upnp string) {
	h.t.Helper()
	program, err := exec.LookPath("miniupnpd")
	if err != nil {
		h.t.Skip("needs miniupnpd: scripts/deps.sh installs it")
	}
	config := filepath.Join(h.t.TempDir(), "miniupnpd.conf")
	must(h.t, os.WriteFile(config, []byte(fmt.Sprintf("ext_ifname=wan\nlistening_ip=lan\nenable_natpmp=%s\nenable_upnp=%s\nsecure_mode=yes\nsystem_uptime=yes\nuuid=b0e1a7c2-0000-4000-8000-000000000001\n"+
		"min_lifetime=120\nmax_lifetime=86400\nupnp_table_name=home\nupnp_nat_table_name=home\nupnp_forward_chain=upnp\nupnp_nat_chain=upnp_pre\nupnp_nat_postrouting_chain=upnp_post\n"+
		"allow 1024-65535 192.168.77.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n", natPMP, upnp)), 0o600))
	h.daemon = exec.Command(program, "-d", "-f", config, "-P", filepath.Join(filepath.Dir(config), "pid"))
	h.daemon.Stderr, h.daemon.Stdout = &said{h.t, "router"}, &said{h.t, "router"}
	inside(h.t, h.router, func() { err = h.daemon.Start() })
	must(h.t, err)
	h.t.Cleanup(func() { h.daemon.Process.Kill(); h.daemon.Wait() })
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until it listens
		var conn net.Conn
		inside(h.t, h.router, func() {
			if sockets, err := exec.Command("ss", "-lun").Output(); err == nil && strings.Contains(string(sockets), map[string]string{"yes": ":5351", "no": ":1900"}[natPMP]) {
				conn, _ = net.Pipe()
			}
		})
		if conn != nil {
			return
		}
		if time.Since(start) > 20*time.Second {
			h.t.Fatal("miniupnpd does not listen")
		}
	}
}

// kithd is the process at a laptop.
type kithd struct {
	t   *testing.T
	nl  *netlink.Handle // of the laptop
	cmd *exec.Cmd
	in  io.Closer
	out *json.Decoder
}

// kithd starts it at a laptop with a number, the last byte of its address, for which the router is another number.
func (h *home) kithd(number, router byte) *kithd {
	h.t.Helper()
	ns, nl := newNS(h.t)
	name := fmt.Sprintf("to%d", number)
	cable(h.t, h.nl, name, nl, ns)
	must(h.t, h.nl.LinkSetMaster(link(h.t, h.nl, name), link(h.t, h.nl, "lan")))
	address(h.t, nl, "u0", fmt.Sprintf("192.168.77.%d/24", number))
	must(h.t, nl.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 77, router)}))
	k := &kithd{t: h.t, nl: nl, cmd: exec.Command("/proc/self/exe")}
	k.cmd.Env = append(os.Environ(), "KITH_TEST_PORTMAP=1")
	k.cmd.Stderr = &said{h.t, "laptop"}
	in, err := k.cmd.StdinPipe()
	must(h.t, err)
	out, err := k.cmd.StdoutPipe()
	must(h.t, err)
	k.in, k.out = in, json.NewDecoder(bufio.NewReader(out))
	inside(h.t, ns, func() { err = k.cmd.Start() })
	must(h.t, err)
	h.t.Cleanup(func() { k.stop() })
	return k
}

func (k *kithd) stop() {
	if k.cmd == nil {
		return
	}
	k.in.Close()
	if err := k.cmd.Wait(); err != nil {
		k.t.Errorf("the laptop's process: %v", err)
	}
	k.cmd = nil
}

// becomes waits for a status.
func (k *kithd) becomes(state State) Status {
	k.t.Helper()
	ended := time.AfterFunc(time.Minute, func() { k.cmd.Process.Kill() })
	defer ended.Stop()
	for {
		var s Status
		if err := k.out.Decode(&s); err != nil {
			k.t.Fatalf("it does not become %s: %v", state, err)
		}
		if s.State == state {
			return s
		}
	}
}

// reaches reports whether somebody outside has an answer from there.
func (h *home) reaches(at netip.AddrPort) bool {
	h.t.Helper()
	var conn net.Conn
	var err error
	inside(h.t, h.outside, func() { conn, err = net.Dial("udp4", at.String()) })
	must(h.t, err)
	defer conn.Close()
	buf := make([]byte, 64)
	for range 3 {
		_, _ = conn.Write([]byte("hello"))
		conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := conn.Read(buf); err == nil && string(buf[:n]) == "hello" {
			return true
		}
	}
	return false
}

// TestARouterMapsThePorts by either protocol, and does not any more when kithd has ended.
func TestARouterMapsThePorts(t *testing.T) {
	for by, c := range map[string]struct{ natPMP, upnp string }{"NAT-PMP": {"yes", "no"}, "UPnP": {"no", "yes"}} {
		t.Run(by, func(t *testing.T) {
			h := newHome(t)
			h.speaks(c.natPMP, c.upnp)
			want := netip.MustParseAddrPort("11.0.0.1:6450")
			if h.reaches(want) {
				t.Fatal("the laptop is reached before anything is mapped")
			}
			k := h.kithd(11, 1)
			s := k.becomes(Mapped)
			if s.By != by || len(s.Mappings) != 2 || s.Mappings[0] != (Mapping{Port{UDP, 6450}, want}) || s.Mappings[1] != (Mapping{Port{TCP, 6450}, want}) {
				t.Errorf("%+v", s)
			}
			if !h.reaches(want) {
				t.Error("the laptop is not reached by the mapped port")
			}
			k.stop()
			if rules := h.run(h.router, "nft", "list", "chain", "inet", "home", "upnp_pre"); strings.Contains(rules, "6450") {
				t.Errorf("at the end there is still\n%s", rules)
			}
		})
	}
}

// TestAPortThatIsTakenIsLeft to whoever has it.
func TestAPortThatIsTakenIsLeft(t *testing.T) {
	for by, c := range map[string]struct{ natPMP, upnp string }{"NAT-PMP": {"yes", "no"}, "UPnP": {"no", "yes"}} {
		t.Run(by, func(t *testing.T) {
			h := newHome(t)
			h.speaks(c.natPMP, c.upnp)
			h.kithd(11, 1).becomes(Mapped)
			s := h.kithd(12, 1).becomes(Mapped)
			if got := s.Mappings[0].At; got.Port() == 6450 || !h.reaches(got) {
				t.Errorf("it is mapped to %s", got)
			}
		})
	}
}

// TestARouterThatMapsNothing is said so, and another one is asked as soon as the default route leads there.
func TestARouterThatMapsNothing(t *testing.T) {
	h := newHome(t)
	h.speaks("yes", "yes")
	k := h.kithd(11, 3)
	if s := k.becomes(NoRouter); s.Why == "" || len(s.Mappings) > 0 {
		t.Errorf("%+v", s)
	}
	must(t, k.nl.RouteReplace(&netlink.Route{Gw: net.IPv4(192, 168, 77, 1)}))
	if s := k.becomes(Mapped); s.Router != netip.MustParseAddr("192.168.77.1") {
		t.Errorf("%+v", s)
	}
}

type said struct {
	t  *testing.T
	by string
}

func (s *said) Write(b []byte) (int, error) { s.t.Logf("%s: %s", s.by, b); return len(b), nil }

func (h *home) run(ns netns.NsHandle, program string, args ...string) (out string) {
	h.t.Helper()
	inside(h.t, ns, func() {
		b, err := exec.Command(program, args...).CombinedOutput()
		if out = string(b); err != nil {
			h.t.Errorf("%s %s: %v: %s", program, strings.Join(args, " "), err, b)
		}
	})
	return out
}

// cable lays one from a link here to u0 there.
func cable(t *testing.T, here *netlink.Handle, name string, there *netlink.Handle, thereNS netns.NsHandle) {
	t.Helper()
	must(t, here.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "u0", PeerNamespace: netlink.NsFd(int(thereNS))}))
	must(t, here.LinkSetUp(link(t, here, name)))
	must(t, there.LinkSetUp(link(t, there, "u0")))
}

func address(t *testing.T, nl *netlink.Handle, dev, cidr string) {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, nl.AddrAdd(link(t, nl, dev), a))
	must(t, nl.LinkSetUp(link(t, nl, dev)))
}

func link(t *testing.T, nl *netlink.Handle, name string) netlink.Link {
	t.Helper()
	l, err := nl.LinkByName(name)
	must(t, err)
	return l
}

func newNS(t *testing.T) (ns netns.NsHandle, nl *netlink.Handle) {
	t.Helper()
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

// inside runs f with the thread inside a namespace: sockets made in f belong there for good.
func inside(t *testing.T, ns netns.NsHandle, f func()) {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
