package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"kith.dev/core/hostnet"
)

// BenchmarkTunnel compares two ways between the same laptops, by turns, for a machine is never the same for two minutes: one through the
// gateway, to a guest, and one through wireguard-go as it comes, with nothing of ours. Run it as root with -benchtime 10x.
func BenchmarkTunnel(b *testing.B) {
	l := newLAN(b)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	guest := meet(alice, bob, "10.65.0.0/24")
	plain(alice, bob, "10.46.0.0/16")
	plain(bob, alice, "10.47.0.0/16")
	alice.secondAddress("10.47.0.5")
	bob.secondAddress("10.46.0.5")
	const size = 100 << 20
	sink := func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprint(c, n)
	}
	bob.serveTCPAt("0.0.0.0:85", sink)
	guest.serveTCP(85, sink)
	chunk := make([]byte, 1<<20)
	speed := func(from, to string) float64 {
		var c net.Conn
		var err error
		alice.in(func() {
			d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err = d.Dial("tcp4", to)
		})
		must(b, err)
		defer c.Close()
		start := time.Now()
		for range size / len(chunk) {
			_, err = c.Write(chunk)
			must(b, err)
		}
		must(b, c.(*net.TCPConn).CloseWrite())
		if got, err := io.ReadAll(c); string(got) != fmt.Sprint(size) {
			b.Fatalf("%s bytes arrived, %v", got, err)
		}
		return float64(size) * 8 / 1e6 / time.Since(start).Seconds()
	}
	ways := []struct{ name, from, to string }{
		{"gateway", "10.42.0.5", "10.65.0.5:85"}, {"wireguard-go", "10.47.0.5", "10.46.0.5:85"},
	}
	got := map[string][]float64{}
	for round := 0; b.Loop(); round++ {
		now := map[string]float64{}
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			now[w.name] = speed(w.from, w.to)
			got[w.name] = append(got[w.name], now[w.name])
		}
		got["ratio"] = append(got["ratio"], now["gateway"]/now["wireguard-go"])
	}
	for _, w := range ways {
		b.ReportMetric(median(got[w.name]), w.name+"-Mbit/s")
	}
	b.ReportMetric(median(got["ratio"]), "ratio")
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

// secondAddress gives the pod an address of another range.
func (p *laptop) secondAddress(a string) {
	p.t.Helper()
	address(p.t, p.nl, "eth0", a+"/32")
	to := hostnet.IPNet(netip.PrefixFrom(netip.MustParseAddr(a), 32))
	must(p.t, p.hostNL.RouteAdd(&netlink.Route{Dst: to, LinkIndex: link(p.t, p.hostNL, "p0").Attrs().Index, Scope: netlink.SCOPE_LINK}))
}
