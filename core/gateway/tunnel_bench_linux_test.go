package gateway

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// BenchmarkTunnel compares pods whose addresses are translated with pods that need no translation, in the same
// tunnel and by turns, for a machine is never the same for two minutes. Run it as root with -benchtime 10x.
func BenchmarkTunnel(b *testing.B) {
	l := newLAN(b)
	alice, bob := l.laptop("alice", 1), l.laptop("bob", 2)
	atAlice, atBob := bob.asPeer("10.65.0.0/16", "10.70.0.0/16"), alice.asPeer("10.70.0.0/16", "10.65.0.0/16")
	own, theirs := testMapping("10.45.0.0/16", "10.45.0.0/16"), testMapping("10.44.0.0/16", "10.44.0.0/16")
	atAlice.Ours, atAlice.Theirs = append(atAlice.Ours, own), append(atAlice.Theirs, theirs)
	atBob.Ours, atBob.Theirs = append(atBob.Ours, theirs), append(atBob.Theirs, own)
	alice.secondAddress("10.45.0.5")
	bob.secondAddress("10.44.0.5")
	bob.do(order{Do: "set", Peer: atBob})
	alice.do(order{Do: "set", Peer: atAlice})
	alice.do(order{Do: "rtt", ID: "bob"})

	const size = 100 << 20
	sink := func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprint(c, n)
	}
	bob.serveTCPAt("0.0.0.0:85", sink)
	chunk := make([]byte, 1<<20)
	speed := func(from, to string) float64 {
		var c net.Conn
		var err error
		alice.inPod(func() {
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
	var with, without, ratio []float64
	for b.Loop() {
		t, p := speed("10.42.0.5", "10.65.0.5:85"), speed("10.45.0.5", "10.44.0.5:85")
		with, without, ratio = append(with, t), append(without, p), append(ratio, t/p)
	}
	b.ReportMetric(median(with), "translated-Mbit/s")
	b.ReportMetric(median(without), "plain-Mbit/s")
	b.ReportMetric(median(ratio), "ratio")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// secondAddress gives the pod an address of another range.
func (p *laptop) secondAddress(a string) {
	p.t.Helper()
	address(p.t, p.podNL, "eth0", a+"/32")
	to := ipnet(netip.PrefixFrom(netip.MustParseAddr(a), 32))
	must(p.t, p.hostNL.RouteAdd(&netlink.Route{Dst: to, LinkIndex: link(p.t, p.hostNL, "p0").Attrs().Index, Scope: netlink.SCOPE_LINK}))
}
