package translate

import (
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
)

// A world is a node with two guests of alice and one of dora, a pod of its owner, and the two homes by the names that their ranges have here. All are
// on a bridge of the network plugin's, but the homes, which stand for what is behind the tunnel.
type world struct {
	t      *testing.T
	place  map[string]netns.NsHandle
	kernel *kernel
}

const (
	web  = "10.42.0.2" // guests of alice
	db   = "10.42.0.3"
	dora = "10.42.0.4"
	own  = "10.42.0.9"
	node = "10.42.0.1"

	atAlice     = "10.71.0.5"   // a pod of alice's, which is 10.99.0.5 at home
	nodeAtAlice = "10.73.255.1" // her node, 10.42.255.1

	atDora = "10.72.0.5" // one of dora's, of the same address at home
)

// kubeProxy is what kube-proxy does with twins, and with a service of the owner's.
const kubeProxy = `table ip proxy {
  chain services {
    ip daddr 10.43.7.7 meta l4proto { tcp, udp } th dport 80 dnat to 10.71.0.5:8080
    ip daddr 10.43.7.7 udp dport 81 dnat to 10.71.0.5:9
    ip daddr 10.43.7.8 tcp dport 80 dnat to 10.42.0.3:8080
    ip daddr 10.43.7.9 tcp dport 80 dnat to 10.42.0.2:8080
    ip daddr 10.43.7.1 tcp dport 80 dnat to 10.42.0.3:8080
    ip daddr 10.43.6.6 tcp dport 80 dnat to 10.72.0.5:8080
    ip daddr 10.43.0.10 meta l4proto { tcp, udp } th dport 53 dnat to 10.42.0.9:8080
    ip daddr 10.43.9.9 tcp dport 80 dnat to 10.42.0.9:8080
  }
  chain in { type nat hook prerouting priority dstnat; jump services; }
  chain out { type nat hook output priority -100; jump services; }
  chain hairpin { type nat hook postrouting priority srcnat; ct status dnat ip saddr . ip daddr { 10.42.0.2 . 10.42.0.2 } masquerade; }
}`

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft here")
	}
	runtime.LockOSThread() // for good: the thread, and its namespace, end with the test
	w := &world{t: t, place: map[string]netns.NsHandle{}}
	for _, name := range []string{"alice", "dora's", "own", "web", "db", "dora", "host"} { // the thread is in the last
		ns, err := netns.New()
		w.must(err)
		t.Cleanup(func() { ns.Close() })
		w.place[name] = ns
		w.up("lo")
	}
	for key, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/icmp_ratelimit": "0", "ipv4/conf/all/rp_filter": "1"} {
		w.must(os.WriteFile("/proc/sys/net/"+key, []byte(value), 0))
	}
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0) // as kubeadm asks for
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	w.must(netlink.LinkAdd(bridge))
	w.address("cni0", node+"/24")
	w.must(netlink.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix("10.43.0.0/16")), LinkIndex: bridge.Attrs().Index, Scope: netlink.SCOPE_LINK})) // as a default route is there
	for name, a := range map[string]string{"web": web, "db": db, "dora": dora, "own": own} {
		port := w.wire("v"+name, name, a+"/24", node)
		w.must(netlink.LinkSetMaster(port, bridge))
		w.must(netlink.LinkSetHairpin(port, true))
	}
	for name, list := range map[string][]string{"alice": {atAlice, nodeAtAlice}, "dora's": {atDora}} {
		link := w.wire("v"+name, name, list[0]+"/32", "169.254.1.1")
		w.address("v"+name, "169.254.1.1/32")
		w.must(w.in(name, func() error {
			lo, err := netlink.LinkByName("lo")
			for _, a := range list[1:] {
				err = errors.Join(err, netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostnet.IPNet(netip.MustParsePrefix(a + "/32"))}))
			}
			return err
		}))
		for _, a := range list {
			w.must(netlink.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix(a + "/32")), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}))
		}
	}
	for name := range w.place {
		w.serve(name)
	}
	w.nft(kubeProxy)
	w.kernel = newKernel(addr("10.43.0.10"), slog.New(slog.DiscardHandler))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// in does something in a place; the test itself is at the host.
func (w *world) in(name string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(w.place[name]); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

func (w *world) up(name string) {
	w.t.Helper()
	link, err := netlink.LinkByName(name)
	w.must(err)
	w.must(netlink.LinkSetUp(link))
}

func (w *world) address(link, a string) {
	w.t.Helper()
	w.up(link)
	at, err := netlink.LinkByName(link)
	w.must(err)
	w.must(netlink.AddrAdd(at, &netlink.Addr{IPNet: hostnet.IPNet(netip.MustParsePrefix(a))}))
}

// wire leads from a link of the host to eth0 of a place, which has this address and the other one as its router.
func (w *world) wire(link, to, a, router string) netlink.Link {
	w.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = link
	w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(w.place[to])}))
	w.up(link)
	w.must(w.in(to, func() error {
		_ = os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0)
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(eth0), netlink.AddrAdd(eth0, &netlink.Addr{IPNet: hostnet.IPNet(netip.MustParsePrefix(a))}),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(router), LinkIndex: eth0.Attrs().Index, Flags: int(netlink.FLAG_ONLINK)}))
	}))
	at, err := netlink.LinkByName(link)
	w.must(err)
	return at
}

// serve tells whoever asks at port 8080, by TCP or UDP, where he is and who he is seen as; and echoes what he sends by TCP.
func (w *world) serve(name string) {
	w.must(w.in(name, func() error {
		l, err := net.Listen("tcp4", ":8080")
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
				go func() {
					defer c.Close()
					host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
					fmt.Fprintf(c, "%s %s\n", name, host)
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		u, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 8080})
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { u.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				_, from, err := u.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				_, _ = u.WriteToUDPAddrPort([]byte(name+" "+from.Addr().Unmap().String()), from)
			}
		}()
		return nil
	}))
}

// ask gives what a server says by TCP; "" when nobody answers.
func (w *world) ask(from, to string) (said string) {
	w.t.Helper()
	_ = w.in(from, func() error {
		c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp4", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		said = strings.TrimSpace(string(buf[:n]))
		return err
	})
	return said
}

// askUDP is ask by UDP, on a socket that hears anybody; it says who answered.
func (w *world) askUDP(from, to string) (said string) {
	w.t.Helper()
	_ = w.in(from, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{})
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.WriteToUDPAddrPort([]byte("hello"), netip.MustParseAddrPort(to)); err != nil {
			return err
		}
		buf := make([]byte, 100)
		n, by, err := c.ReadFromUDPAddrPort(buf)
		if err == nil {
			said = string(buf[:n]) + " from " + by.String()
		}
		return err
	})
	return said
}

// nft runs the program at the host.
func (w *world) nft(script string) string {
	w.t.Helper()
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(script)
	out, err := c.CombinedOutput()
	if err != nil {
		w.t.Fatalf("nft: %v: %s", err, out)
	}
	return string(out)
}
