package gateway

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"kith.dev/core/net/hostnet"
)

// BenchmarkTunnel compares ways between the same two namespaces, by turns, for a machine is never the same for two minutes: from a pod to a
// guest through the gateway, and through wireguard-go as it comes, with nothing of ours; from a guest to one at another provider, by way of
// their home, and to a pod at home, which is one tunnel. Run it as root with -benchtime 10x.
func BenchmarkTunnel(b *testing.B) {
	l := newLAN(b)
	alice, bob, carol := l.laptop("alice", 1), l.laptop("bob", 2), l.laptop("carol", 3)
	near, far := meet(alice, bob, "10.65.0.0/24", "10.66.0.0/24"), meet(alice, carol, "10.66.0.0/24", "10.65.0.0/24")
	plain(alice, bob, "10.46.0.0/16")
	plain(bob, alice, "10.47.0.0/16")
	secondAddress(alice.end, alice, "p0", "10.47.0.5")
	secondAddress(near, bob, "g65-0-5", "10.46.0.5")
	for _, p := range []*end{alice.end, near, far} {
		p.serveTCPAt("0.0.0.0:85", func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			fmt.Fprint(c, n)
		})
	}
	near.countDatagrams("10.65.0.5:86") // each by itself: an answer has the address that was asked
	near.countDatagrams("10.46.0.5:86")
	gateway, wireguard := way{"gateway", alice.end, "10.42.0.5", "10.65.0.5"}, way{"wireguard-go", alice.end, "10.47.0.5", "10.46.0.5"}
	home, direct := way{"by-home", near, "10.65.0.5", "10.66.0.5"}, way{"direct", near, "10.65.0.5", "10.42.0.5"}
	for _, one := range []struct {
		name  string
		ways  [2]way
		speed func(way) float64
	}{
		{"one-stream", [2]way{gateway, wireguard}, func(w way) float64 { return w.streams(1) }},
		{"eight-streams", [2]way{gateway, wireguard}, func(w way) float64 { return w.streams(8) }},
		{"UDP", [2]way{gateway, wireguard}, way.datagrams},
		{"guest-to-guest", [2]way{home, direct}, func(w way) float64 { return w.streams(1) }},
	} {
		b.Run(one.name, func(b *testing.B) {
			got := map[string][]float64{}
			for round := 0; b.Loop(); round++ {
				now := map[string]float64{}
				for i := range one.ways {
					w := one.ways[(round+i)%2]
					now[w.name] = one.speed(w)
					got[w.name] = append(got[w.name], now[w.name])
				}
				got["ratio"] = append(got["ratio"], now[one.ways[0].name]/now[one.ways[1].name])
			}
			for _, w := range one.ways {
				b.ReportMetric(median(got[w.name]), w.name+"-Mbit/s")
			}
			b.ReportMetric(median(got["ratio"]), "ratio")
		})
	}
}

// way is from one address of a pod to another's.
type way struct {
	name     string
	pod      *end
	from, to string
}

// streams sends 100 MB by TCP, on so many connections at once, and gives Mbit/s.
func (w way) streams(n int) float64 {
	size := 100 << 20 / n
	chunk := make([]byte, 1<<17)
	start := time.Now()
	errs := make(chan error, n)
	for range n {
		go func() {
			c, err := w.dial("tcp4", &net.TCPAddr{IP: net.ParseIP(w.from)}, 85)
			if err != nil {
				errs <- err
				return
			}
			defer c.Close()
			for sent := 0; sent < size && err == nil; sent += len(chunk) {
				_, err = c.Write(chunk[:min(len(chunk), size-sent)])
			}
			err = errors.Join(err, c.(*net.TCPConn).CloseWrite())
			if got, _ := io.ReadAll(c); err == nil && string(got) != fmt.Sprint(size) {
				err = fmt.Errorf("%s of %d bytes arrived", got, size)
			}
			errs <- err
		}()
	}
	for range n {
		must(w.pod.t, <-errs)
	}
	return float64(size*n) * 8 / 1e6 / time.Since(start).Seconds()
}

// datagrams sends for a second by UDP, with at most so many on the way that nobody has to drop them, and gives Mbit/s of those that arrived.
func (w way) datagrams() float64 {
	const onTheWay, size, lasts = 256, gatewayPayload, time.Second
	c, err := w.dial("udp4", &net.UDPAddr{IP: net.ParseIP(w.from)}, 86)
	must(w.pod.t, err)
	defer c.Close()
	var arrived atomic.Int64
	news := make(chan struct{}, 1)
	go func() {
		for b := make([]byte, 8); ; {
			if n, err := c.Read(b); err != nil || n != len(b) {
				return
			}
			arrived.Store(int64(binary.BigEndian.Uint64(b)))
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}()
	b, sent, lost := make([]byte, size), int64(0), int64(0)
	start := time.Now()
	for time.Since(start) < lasts {
		if sent-lost-arrived.Load() < onTheWay {
			_, err := c.Write(b)
			must(w.pod.t, err)
			sent++
			continue
		}
		select {
		case <-news:
		case <-time.After(20 * time.Millisecond):
			lost = sent - arrived.Load()
		}
	}
	return float64(arrived.Load()*size) * 8 / 1e6 / time.Since(start).Seconds()
}

// gatewayPayload is that of the largest UDP packet that passes whole.
const gatewayPayload = DefaultMTU - 28

func (w way) dial(network string, from net.Addr, port int) (c net.Conn, err error) {
	w.pod.in(func() {
		d := net.Dialer{Timeout: patience, LocalAddr: from}
		c, err = d.Dial(network, net.JoinHostPort(w.to, fmt.Sprint(port)))
	})
	return c, err
}

// countDatagrams tells each sender, every sixteen packets, how many of its arrived.
func (p *end) countDatagrams(at string) {
	p.t.Helper()
	var c *net.UDPConn
	var err error
	p.in(func() { c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at))) })
	must(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	go func() {
		seen := map[netip.AddrPort]uint64{}
		for b := make([]byte, 1<<16); ; {
			_, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if seen[from]++; seen[from]%16 == 0 {
				c.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, seen[from]), from)
			}
		}
	}()
}

// plain runs wireguard-go beside p's gateway, to q's; theirs is the range of the pods there.
func plain(p, q *laptop, theirs string) {
	t := p.t
	t.Helper()
	settings := fmt.Sprintf("private_key=%s\nlisten_port=%d\nreplace_peers=true\npublic_key=%s\nendpoint=%s\nallowed_ip=%s\n",
		p.key.hex(), plainPort, q.key.Public().hex(), netip.AddrPortFrom(q.address(), plainPort), theirs)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "KITH_TEST_WIREGUARD="+settings)
	cmd.Stderr = &lineLog{t: t, prefix: p.name + "'s wireguard-go"}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	inside(t, p.host, func() { err = cmd.Start() })
	must(t, err)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("%s: wireguard-go did not come up: %q %v", p.name, line, err)
	}
	device := link(t, p.hostNL, "wg0")
	must(t, p.hostNL.LinkSetUp(device))
	must(t, p.hostNL.RouteAdd(&netlink.Route{Dst: hostnet.IPNet(netip.MustParsePrefix(theirs)), LinkIndex: device.Attrs().Index, Scope: netlink.SCOPE_LINK}))
}

const plainPort = 6451

// servePlain is the process of plain; it ends with its standard input.
func servePlain(settings string) {
	native, err := tun.CreateTUN("wg0", 1420)
	if err == nil {
		dev := device.NewDevice(native, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "wireguard-go: "))
		defer dev.Close()
		if err = dev.IpcSet(settings); err == nil {
			err = dev.Up()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println("up")
	io.Copy(io.Discard, os.Stdin)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// secondAddress gives a pod of a laptop's, behind that device, an address of another range.
func secondAddress(pod *end, at *laptop, device, a string) {
	pod.t.Helper()
	address(pod.t, pod.nl, "eth0", a+"/32")
	to := hostnet.IPNet(netip.PrefixFrom(netip.MustParseAddr(a), 32))
	must(pod.t, at.hostNL.RouteAdd(&netlink.Route{Dst: to, LinkIndex: link(pod.t, at.hostNL, device).Attrs().Index, Scope: netlink.SCOPE_LINK}))
}
