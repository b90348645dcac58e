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
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/guestnet"
	"kith.dev/core/hostnet"
)

// A world is a laptop with guests and pods of its owner, on a LAN with public addresses, with the internet behind the
// router and two other clusters behind kith0. All of it are network namespaces without names, gone with the test.
type world struct {
	t     *testing.T
	place map[string]netns.NsHandle
	fence *Fence
}

const (
	hostLAN   = "203.0.113.5"
	router    = "203.0.113.1"
	neighbour = "203.0.113.50"
	internet  = "198.51.100.7"
	office    = "192.0.2.9" // public, but by a static route of the LAN: a VPN, or the next building
	nodeIP    = "10.42.255.1"
	ownPod    = "10.42.0.5"
	bridge    = "10.42.0.1"
	web1      = "10.42.255.130" // guests of alice
	web2      = "10.42.255.131"
	dora      = "10.42.255.132" // a guest of dora
	newcomer  = "10.42.255.133" // nobody knows whose yet
	aliceHome = "10.76.0.4"     // a pod at alice's, as seen here
	doraHome  = "10.77.0.4"
	provider  = "10.78.0.4" // a pod of ours at another laptop

	ownAtAlice = "10.76.255.130" // a pod of ours at alice's
	newcomerIP = "10.42.255.133"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	w := &world{t: t, place: map[string]netns.NsHandle{}}
	for _, name := range []string{"host", "router", "neighbour", "far", "own", "web1", "web2", "dora", "newcomer"} {
		w.make(name)
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
	w.bridge("host", "cni0", bridge+"/24", "vown")
	w.route("own", "0.0.0.0/0", bridge)
	w.wire("host", "kith0", "far", "eth0", "")
	w.address("host", "kith0", "10.42.255.2/32")
	for _, a := range []string{aliceHome, doraHome, provider} {
		w.address("far", "eth0", a+"/32")
		w.routeDev("host", a+"/16", "kith0", "10.42.255.2")
	}
	w.address("far", "eth0", ownAtAlice+"/32")
	w.routeDev("far", "10.42.255.2/32", "eth0", aliceHome)
	w.route("far", "10.42.0.0/16", "10.42.255.2")
	for name, a := range map[string]string{"web1": web1, "web2": web2, "dora": dora, "newcomer": newcomer} {
		w.guest(name, a)
	}
	for file, value := range map[string]string{"ip_forward": "1", "icmp_ratelimit": "0"} {
		w.in("host", func() error { return os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0) })
	}
	for name := range w.place {
		w.serve(name)
	}
	w.kubeProxy()
	w.raise()
	return w
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
}

func (w *world) route(place, dst, via string) {
	w.t.Helper()
	_, n, err := net.ParseCIDR(dst)
	w.must(err)
	w.must(w.net(place).RouteAdd(&netlink.Route{Dst: n, Gw: net.ParseIP(via)}))
}

func (w *world) routeDev(place, dst, dev, src string) {
	w.t.Helper()
	h := w.net(place)
	l, err := h.LinkByName(dev)
	w.must(err)
	_, n, err := net.ParseCIDR(dst)
	w.must(err)
	w.must(h.RouteReplace(&netlink.Route{Dst: n, LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Src: net.ParseIP(src)}))
}

// guest gives a place a link as the CNI plugins ptp and kith-mark do.
func (w *world) guest(name, addr string) {
	w.wire("host", "v"+name, name, "eth0", addr+"/32")
	w.address("host", "v"+name, "10.42.255.129/32")
	w.routeDev("host", addr+"/32", "v"+name, "10.42.255.129")
	w.routeDev(name, "10.42.255.129/32", "eth0", addr)
	w.route(name, "0.0.0.0/0", "10.42.255.129")
	h := w.net("host")
	l, err := h.LinkByName("v" + name)
	w.must(err)
	w.must(h.LinkSetGroup(l, guestnet.Group))
	w.must(h.LinkSetAlias(l, "uid-"+name))
}

// serve answers TCP on ports 80 and 10053, and UDP on 10053, by closing or echoing.
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
						for n := 0; err == nil; n, err = c.Read(buf) {
							_, err = c.Write(buf[:n])
						}
						c.Close()
					}()
				}
			}()
		}
		at := []string{""}
		if all := answering[place]; all != nil {
			at = all
		}
		for _, a := range at {
			p, err := net.ListenPacket("udp", a+":10053")
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { p.Close() })
			go echo(p)
		}
		return nil
	})
}

// answering are the addresses by which places with several answer to UDP: an answer must come from where the question went.
var answering = map[string][]string{"host": {nodeIP}, "router": {internet}, "far": {aliceHome, doraHome, provider}}

func echo(p net.PacketConn) {
	buf := make([]byte, 16)
	for {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = p.WriteTo(buf[:n], from)
		}
	}
}

// kubeProxy translates three services, DNS on the node, an own pod, and a guest of alice, and ports of the host that lead to the latter two.
func (w *world) kubeProxy() {
	w.nft(`table ip proxy {
  chain services {
    type nat hook prerouting priority dstnat;
    ip daddr 10.43.0.10 udp dport 53 dnat to ` + nodeIP + `:10053
    ip daddr 10.43.0.10 tcp dport 53 dnat to ` + nodeIP + `:10053
    ip daddr 10.43.5.5 tcp dport 80 dnat to ` + ownPod + `
    ip daddr 10.43.5.6 tcp dport 80 dnat to ` + web2 + `
    ip daddr ` + hostLAN + ` tcp dport 8080 dnat to ` + web2 + `:80
    ip daddr ` + hostLAN + ` tcp dport 8081 dnat to ` + ownPod + `:80
  }
  chain masq {
    type nat hook postrouting priority srcnat;
    ip saddr 10.42.0.0/16 oifname "eth0" masquerade
  }
}`)
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
	cfg.Log, cfg.Kernel = slog.New(slog.DiscardHandler), new(hostnet.Changes)
	f, err := New(cfg)
	w.must(err)
	h, host := w.net("host"), int(w.place["host"])
	f.kernel.open = func() (*nftables.Conn, error) { return nftables.New(nftables.WithNetNSFd(host)) }
	f.readHost = func() (hostState, error) { return readHost(h, cfg.Group) }
	w.fence = f
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

var testConfig = Config{
	Tunnel: "kith0", Group: guestnet.Group, Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"),
	Node: netip.MustParseAddr(nodeIP), DNS: netip.MustParseAddr("10.43.0.10"),
}
