package guestnet

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
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// A world is a laptop with guests of alice and of dora, a pod of its owner and a LAN. Both homes and the laptop have the same ranges. The
// gateway's device is a wire to a place that stands for the tunnel: it takes the home from a packet's source.
type world struct {
	t      *testing.T
	place  map[string]netns.NsHandle
	node   *noderoute.Node
	kernel *Kernel
}

const (
	web  = "10.127.0.2" // guests of alice
	db   = "10.127.0.3"
	dora = "10.127.4.2" // of dora

	pod       = "10.42.0.5" // at all three
	node      = "10.42.255.1"
	neighbour = "192.0.2.9" // in a range that alice has, too
	laptop    = "192.0.2.5"
)

var (
	ofAlice = netip.MustParsePrefix("10.127.0.0/24")
	ofDora  = netip.MustParsePrefix("10.127.4.0/24")
	addr    = netip.MustParseAddr

	laptops  = netplan.Usual()
	silent   = slog.New(slog.DiscardHandler)
	services = []Tenant{
		{Guests: ofAlice, Services: Services{addr("10.43.9.9"): addr("10.43.7.7"), addr("10.43.9.8"): addr("10.43.7.8"), addr("10.43.9.7"): addr("10.43.7.9"), addr("10.43.7.7"): addr("10.43.7.1")}},
		{Guests: ofDora, Services: Services{addr("10.43.9.9"): addr("10.43.6.6")}},
	}
)

// kubeProxy is what kube-proxy does with twin services, services of the owner, DNS and a node port.
const kubeProxy = `table ip proxy {
  chain services {
    ip daddr 10.43.7.7 meta l4proto { tcp, udp } th dport 80 dnat to 10.42.0.5:8080
    ip daddr 10.43.7.7 udp dport 81 dnat to 10.42.0.5:9
    ip daddr 10.43.7.8 tcp dport 80 dnat to 10.127.0.3:8080
    ip daddr 10.43.7.9 tcp dport 80 dnat to 10.127.0.2:8080
    ip daddr 10.43.7.1 tcp dport 80 dnat to 10.127.0.3:8080
    ip daddr 10.43.6.6 tcp dport 80 dnat to 10.42.0.5:8080
    ip daddr { 10.43.9.9, 10.43.9.50 } tcp dport 80 dnat to 10.42.0.5:8080
    ip daddr 10.43.0.10 meta l4proto { tcp, udp } th dport 53 dnat to 10.42.255.1:8080
    ip daddr 192.0.2.5 tcp dport 30080 dnat to 10.127.0.2:8080
  }
  chain in { type nat hook prerouting priority dstnat; jump services; }
  chain out { type nat hook output priority -100; jump services; }
  chain refused { type filter hook forward priority -110; ip daddr 10.43.0.0/16 reject; }
  chain hairpin { type nat hook postrouting priority srcnat; ct status dnat ip saddr . ip daddr { 10.127.0.2 . 10.127.0.2 } masquerade; }
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
	for _, name := range []string{"alice", "dora's", "tunnel", "own", "lan", "web", "db", "dora", "host"} { // the thread is in the last
		ns, err := netns.New()
		w.must(err)
		t.Cleanup(func() { ns.Close() })
		w.place[name] = ns
		for _, of := range []string{"all", "default"} { // nobody else is on these links
			w.set(name, "net/ipv6/conf/"+of+"/accept_dad", "0")
		}
		w.up(name, "lo")
	}
	for _, name := range []string{"host", "tunnel"} {
		w.set(name, "net/ipv4/ip_forward", "1")
		w.set(name, "net/ipv4/icmp_ratelimit", "0")
	}
	w.set("host", "net/ipv4/conf/all/rp_filter", "1") // as some distributions have it
	w.tube("host", "kith0", "tunnel", "host")
	for name, guests := range map[string]netip.Prefix{"alice": ofAlice, "dora's": ofDora} {
		w.tube("tunnel", name, name, "tunnel")
		w.set(name, "net/ipv4/icmp_ratelimit", "0")
		for _, a := range []string{pod, node} {
			w.address(name, "lo", a)
		}
		w.route(name, guests.String(), "tunnel", "", unix.RT_TABLE_MAIN)
		w.route("tunnel", guests.String(), "host", "", unix.RT_TABLE_MAIN)
		table := 1000 + len(name)
		w.route("tunnel", "0.0.0.0/0", name, "", table)
		r := netlink.NewRule()
		r.Family, r.Src, r.Table, r.Priority = unix.AF_INET, hostnet.IPNet(guests), table, 10
		w.must(w.net("tunnel").RuleAdd(r))
	}
	w.wire("host", "cni0", "own")
	w.set("host", "net/ipv4/conf/cni0/rp_filter", "2") // as kith-mark has it
	w.address("host", "cni0", "10.42.0.1")
	w.reach("own", pod, "10.42.0.1")
	w.route("host", pod+"/32", "cni0", "", unix.RT_TABLE_MAIN)
	w.address("host", "lo", node)
	w.wire("host", "lan0", "lan")
	w.set("host", "net/ipv4/conf/lan0/rp_filter", "2") // strict, it is not asked by those who have an address of alice's space
	w.address("host", "lan0", laptop)
	w.reach("lan", neighbour, laptop)
	w.route("host", neighbour+"/32", "lan0", "", unix.RT_TABLE_MAIN)
	w.route("host", "0.0.0.0/0", "lan0", neighbour, unix.RT_TABLE_MAIN)
	for name, a := range map[string]string{"web": web, "db": db, "dora": dora} {
		w.guest(name, a)
	}
	to := []noderoute.Route{{To: laptops.Pods, MTU: 1400}}
	var err error
	w.node, err = noderoute.Up("kith0", addr("10.42.255.2"), silent)
	w.must(err)
	w.must(w.node.Sync(nil, nil, []noderoute.Tenant{
		{From: ofAlice, To: append(to, noderoute.Route{To: netip.MustParsePrefix("192.0.2.0/24"), MTU: 1400})}, {From: ofDora, To: to},
	}))
	for name := range w.place {
		w.serve(name)
	}
	w.nft(kubeProxy)
	w.kernel = New(laptops, silent)
	w.must(w.kernel.Raise())
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

func (w *world) set(name, key, value string) {
	w.t.Helper()
	w.must(w.in(name, func() error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0) }))
}

func (w *world) net(name string) *netlink.Handle {
	w.t.Helper()
	h, err := netlink.NewHandleAt(w.place[name])
	w.must(err)
	w.t.Cleanup(h.Close)
	return h
}

func (w *world) up(name, link string) netlink.Link {
	w.t.Helper()
	h := w.net(name)
	l, err := h.LinkByName(link)
	w.must(err)
	w.must(h.LinkSetUp(l))
	return l
}

// wire leads from a link of the host to eth0 of a place.
func (w *world) wire(name, link, to string) {
	w.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = link
	w.must(w.net(name).LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(w.place[to])}))
	w.up(name, link)
	w.up(to, "eth0")
}

// tube is a wire without addresses of its own: what goes in comes out.
func (w *world) tube(a, aLink, b, bLink string) {
	w.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = aLink, net.HardwareAddr{2, 0, 0, 0, 0, 1}
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: bLink, PeerNamespace: netlink.NsFd(w.place[b]), PeerHardwareAddr: attrs.HardwareAddr}
	w.must(w.net(a).LinkAdd(veth))
	for _, end := range [][2]string{{a, aLink}, {b, bLink}} {
		w.must(w.net(end[0]).LinkSetARPOff(w.up(end[0], end[1])))
		w.set(end[0], "net/ipv4/conf/"+end[1]+"/rp_filter", "0")
	}
}

func (w *world) address(name, link, a string) {
	w.t.Helper()
	w.must(w.net(name).AddrAdd(w.up(name, link), &netlink.Addr{Flags: unix.IFA_F_NODAD, IPNet: hostnet.IPNet(netip.PrefixFrom(addr(a), addr(a).BitLen()))}))
}

func (w *world) route(name, to, link, via string, table int) {
	w.t.Helper()
	r := &netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix(to)), LinkIndex: w.up(name, link).Attrs().Index, Table: table, Scope: netlink.SCOPE_LINK}
	if via != "" {
		r.Gw, r.Scope = net.ParseIP(via), netlink.SCOPE_UNIVERSE
	}
	w.must(w.net(name).RouteAdd(r))
}

// reach gives a place an address at its eth0, and the way by the other end.
func (w *world) reach(name, a, by string) {
	w.t.Helper()
	w.address(name, "eth0", a)
	all := "0.0.0.0/0"
	if addr(by).Is6() {
		all = "::/0"
	}
	w.route(name, netip.PrefixFrom(addr(by), addr(by).BitLen()).String(), "eth0", "", unix.RT_TABLE_MAIN)
	w.route(name, all, "eth0", by, unix.RT_TABLE_MAIN)
}

// guest is connected as the CNI plugins ptp and kith-mark do it.
func (w *world) guest(name, a string) {
	w.t.Helper()
	gateway := netip.PrefixFrom(addr(a), 24).Masked().Addr().Next().String()
	w.wire("host", "v"+name, name)
	w.address("host", "v"+name, gateway)
	w.reach(name, a, gateway)
	l := w.up("host", "v"+name)
	w.must(w.net("host").RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.PrefixFrom(addr(a), 32)), LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_HOST}))
	w.must(w.net("host").LinkSetGroup(l, Group))
}

// serve tells whoever asks at port 8080, by TCP or UDP, where he is and who he is seen as; and echoes what he sends by TCP.
func (w *world) serve(name string) {
	w.must(w.in(name, func() error {
		l, err := net.Listen("tcp", ":8080")
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
		// An answer has to come from where the question went, also where a place has several addresses.
		return errors.Join(pktinfo(u), func() error { go answer(u, name); return nil }())
	}))
}

func pktinfo(u *net.UDPConn) error {
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1) }), err)
}

func answer(u *net.UDPConn, name string) {
	buf, oob := make([]byte, 2048), make([]byte, 128)
	for {
		_, n, _, from, err := u.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return
		}
		info := oob[:n]
		if n >= unix.CmsgLen(12) { // struct in_pktinfo: the interface is for the kernel to choose
			copy(info[unix.CmsgLen(0):], []byte{0, 0, 0, 0})
		}
		_, _, _ = u.WriteMsgUDPAddrPort([]byte(name+" "+from.Addr().Unmap().String()), info, from)
	}
}

// ask gives what a server says by TCP; "" when nobody answers.
func (w *world) ask(from, to string) (said string) {
	w.t.Helper()
	_ = w.in(from, func() error {
		c, err := (&net.Dialer{Timeout: 500 * time.Millisecond}).Dial("tcp", to)
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
	w.must(w.in(from, func() error {
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		said = string(buf[:n]) + " from " + by.String()
		return err
	}))
	return said
}

// there reports whether the host has the table.
func (w *world) there() bool {
	return exec.Command("nft", "list", "table", "ip", Table).Run() == nil
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
