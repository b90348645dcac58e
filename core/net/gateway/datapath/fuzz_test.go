package datapath

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

// FuzzEgress: at bob, who has the guests' addresses, and at erin, who translates.
func FuzzEgress(f *testing.F) {
	all := parties()
	seeds(f, "10.127.0.130", "10.42.0.5")
	seeds(f, "10.42.3.7", "10.70.0.5")
	seeds(f, "10.42.0.7", "10.70.0.5")
	shares := sharing()
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, table := range []*Table{all.bob, all.erin, shares} {
			fuzzOne(t, p, func(p []byte) ([]byte, Verdict) {
				b, v := leave(table, p)
				return b[min(Header, len(b)):], v
			})
		}
	})
}

func FuzzIngress(f *testing.F) {
	all := parties()
	seeds(f, "10.42.0.5", "10.127.0.130")
	seeds(f, "10.42.0.5", "10.129.3.7")
	seeds(f, "10.42.0.5", "10.127.0.200")
	shares := sharing()
	f.Fuzz(func(t *testing.T, p []byte) {
		fuzzOne(t, p, func(p []byte) ([]byte, Verdict) { return arrive(shares, sentBy(aliceAndBob, p)) })
		for called, table := range map[string]*Table{aliceAndBob: all.bob, aliceAndErin: all.erin} {
			fuzzOne(t, p, func(p []byte) ([]byte, Verdict) { return arrive(table, sentBy(called, p)) })
			_, _ = arrive(table, bytes.Clone(p))
		}
	})
}

func seeds(f *testing.F, src, dst string) {
	inner := ipv4Packet(dst, src, protoTCP, tcpSegment(16, nil, []byte("abcdef")))
	udp := udpSegment(1000, 2000, []byte("hello, odd"))
	f.Add(ipv4Packet(src, dst, protoUDP, udp))
	f.Add(ipv4Packet(src, dst, protoTCP, tcpSegment(2, []byte{1, 2, 4, 5, 180, 0, 0, 0}, nil)))
	f.Add(ipv4Packet(src, dst, protoICMP, icmpMessage(8, []byte("x"))))
	f.Add(ipv4Packet(src, dst, protoICMP, icmpMessage(3, inner)))
	f.Add(ipv4Packet("192.168.1.1", dst, protoICMP, icmpMessage(11, inner[:28])))
	f.Add(withOptions(ipv4Packet(src, dst, protoDCCP, make([]byte, 16)), 1, 7, 3, 4))
	f.Add(with(ipv4Packet(src, dst, protoUDP, udp), fragment(3, true)))
}

// fuzzOne gives a packet with right checksums: those must stay right, and nothing but the addresses and what a SYN announces may change.
func fuzzOne(t *testing.T, p []byte, f func([]byte) ([]byte, Verdict)) {
	_, _ = f(bytes.Clone(p))
	if len(p) < 20 || len(p) > 65515 || int(p[0]&15) < 5 || int(p[0]&15)*4 > len(p) || p[0]>>4 != 4 {
		return
	}
	good := bytes.Clone(p)
	seal(good)
	out, v := f(bytes.Clone(good))
	if v != Pass {
		return
	}
	if len(out) != len(good) {
		t.Fatal("length changed")
	}
	if bad := sealed(out); bad != "" {
		t.Fatalf("wrong %s", bad)
	}
	if !bytes.Equal(out[:10], good[:10]) {
		t.Fatal("more of the header changed than it should")
	}
}

func TestTheDataPathAllocatesNothing(t *testing.T) {
	all := parties()
	inner := ipv4Packet("10.70.0.5", "10.42.3.7", protoTCP, tcpSegment(16, nil, make([]byte, 20)))
	for name, p := range map[string][]byte{
		"tcp":  ipv4Packet("10.42.3.7", "10.70.0.5", protoTCP, tcpSegment(2, []byte{2, 4, 5, 220}, make([]byte, 1300))),
		"icmp": ipv4Packet("10.42.3.7", "10.70.0.5", protoICMP, icmpMessage(3, inner)),
		"drop": ipv4Packet("10.42.3.7", "10.64.0.7", protoUDP, udpSegment(1, 2, nil)),
	} {
		b := make([]byte, Header+len(p))
		if n := testing.AllocsPerRun(1000, func() {
			copy(b[Header:], p)
			all.erin.Egress(b)
			all.alice.Ingress(b)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDataPath(b *testing.B) {
	tcp := tcpSegment(16, nil, make([]byte, 1340))
	peers := func(n int) (list []Peer) {
		for i := range n {
			list = append(list, Peer{Pair: netplan.Pair{There: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 127, byte(i), 0}), 24)}, MTU: 1400, Up: up()})
		}
		return list
	}
	for _, n := range []int{1, 100} {
		table := New(testHost(), peers(n))
		b.Run(fmt.Sprintf("egress/%d", n), func(b *testing.B) {
			p := append(make([]byte, Header), ipv4Packet("10.42.0.5", "10.127.0.130", protoTCP, tcp)...)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if v, _ := table.Egress(p); v != Pass {
					b.Fatal(verdictNames[v])
				}
			}
		})
		b.Run(fmt.Sprintf("ingress/%d", n), func(b *testing.B) {
			p := sentBy("10.127.0.0/24", ipv4Packet("10.127.0.130", "10.42.0.5", protoTCP, tcp))
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if v, _ := table.Ingress(p); v != Pass {
					b.Fatal(verdictNames[v])
				}
			}
		})
	}
}
