package datapath

import (
	"bytes"
	"net/netip"
	"testing"
)

func FuzzEgress(f *testing.F) {
	alice, _ := testTables()
	seeds(f, "10.42.0.5", "10.65.0.7")
	f.Fuzz(func(t *testing.T, p []byte) { fuzzOne(t, p, alice.Egress, 12) })
}

func FuzzIngress(f *testing.F) {
	_, bob := testTables()
	seeds(f, "10.70.0.5", "10.65.0.7")
	f.Fuzz(func(t *testing.T, p []byte) { fuzzOne(t, p, bob.Ingress, 16) })
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

// fuzzOne gives the packet as it is and again with right checksums: those must stay right.
func fuzzOne(t *testing.T, p []byte, f func([]byte) Verdict, moved int) {
	raw := bytes.Clone(p)
	v := f(raw)
	if len(raw) != len(p) {
		t.Fatal("length changed")
	}
	if v != Pass && !bytes.Equal(raw, p) {
		t.Fatal("a dropped packet was changed")
	}
	if len(p) < 20 || len(p) > 65535 || int(p[0]&15) < 5 || int(p[0]&15)*4 > len(p) || p[0]>>4 != 4 {
		return
	}
	good := bytes.Clone(p)
	seal(good)
	before := bytes.Clone(good)
	if f(good) == Pass {
		if bad := sealed(good); bad != "" {
			t.Fatalf("wrong %s after the translation", bad)
		}
		if !bytes.Equal(good[:10], before[:10]) || !bytes.Equal(good[28-moved:32-moved], before[28-moved:32-moved]) {
			t.Fatal("more of the header changed than it should")
		}
	}
}

func TestTheDataPathAllocatesNothing(t *testing.T) {
	alice, bob := testTables()
	inner := ipv4Packet("10.42.0.7", "10.65.0.5", protoTCP, tcpSegment(16, nil, make([]byte, 20)))
	for name, p := range map[string][]byte{
		"tcp":  ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcpSegment(2, []byte{2, 4, 5, 220}, make([]byte, 1300))),
		"icmp": ipv4Packet("10.42.0.5", "10.65.0.7", protoICMP, icmpMessage(3, inner)),
		"drop": ipv4Packet("10.42.0.5", "10.64.0.7", protoUDP, udpSegment(1, 2, nil)),
	} {
		if n := testing.AllocsPerRun(1000, func() {
			copy(p[12:20], []byte{10, 42, 0, 5})
			alice.Egress(p)
			bob.Ingress(p)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func benchmark(b *testing.B, p []byte, peers int, f func(*Table) func([]byte) Verdict) {
	all := []Peer{testPeer(1420, testMapping("10.42.0.0/16", "10.65.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"))}
	for i := 1; i < peers; i++ {
		q := testPeer(1420, testMapping("10.42.0.0/16", "10.42.0.0/16"), testMapping("10.42.0.0/16", "10.70.0.0/16"))
		q.Theirs[0].Alias = netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i), 0, 0}), 16)
		all = append(all, q)
	}
	run := f(New(Host{Self: podGateway, Port: 6450}, all))
	work := bytes.Clone(p)
	if v := run(work); v != Pass {
		b.Fatal(verdictNames[v])
	}
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		copy(work[10:20], p[10:20])
		run(work)
	}
}

func BenchmarkTranslate(b *testing.B) {
	tcp, udp := tcpSegment(16, nil, make([]byte, 1380)), udpSegment(1, 2, make([]byte, 1390))
	egress := func(t *Table) func([]byte) Verdict { return t.Egress }
	ingress := func(t *Table) func([]byte) Verdict { return t.Ingress }
	b.Run("egress/tcp/1", func(b *testing.B) { benchmark(b, ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcp), 1, egress) })
	b.Run("egress/tcp/100", func(b *testing.B) { benchmark(b, ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcp), 100, egress) })
	b.Run("egress/udp/1", func(b *testing.B) { benchmark(b, ipv4Packet("10.42.0.5", "10.65.0.7", protoUDP, udp), 1, egress) })
	b.Run("ingress/tcp/1", func(b *testing.B) { benchmark(b, ipv4Packet("10.65.0.5", "10.70.0.7", protoTCP, tcp), 1, ingress) })
	b.Run("ingress/tcp/100", func(b *testing.B) { benchmark(b, ipv4Packet("10.65.0.5", "10.70.0.7", protoTCP, tcp), 100, ingress) })
}
