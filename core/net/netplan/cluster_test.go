package netplan

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesOfACluster(t *testing.T) {
	for _, tt := range []struct{ pods, services, node, gateway, nodePods, dns string }{
		{"10.42.0.0/16", "10.43.0.0/16", "10.42.255.1", "10.42.255.2", "10.42.0.0/24", "10.43.0.10"},
		{"10.0.0.0/8", "172.16.0.0/24", "10.255.255.1", "10.255.255.2", "10.0.0.0/24", "172.16.0.10"},
		{"192.168.4.0/22", "10.96.0.0/12", "192.168.7.1", "192.168.7.2", "192.168.4.0/24", "10.96.0.10"},
		{"172.20.6.9/23", "10.43.1.2/16", "172.20.7.1", "172.20.7.2", "172.20.6.0/24", "10.43.0.10"},
	} {
		c := Cluster{Pods: netip.MustParsePrefix(tt.pods), Services: netip.MustParsePrefix(tt.services)}
		got := []string{c.Node().String(), c.Gateway().String(), c.NodePods().String(), c.DNS().String()}
		if want := []string{tt.node, tt.gateway, tt.nodePods, tt.dns}; strings.Join(got, " ") != strings.Join(want, " ") || c.Validate() != nil {
			t.Errorf("%s: %v, want %v", tt.pods, got, want)
		}
	}
	if c := (Cluster{}); c.Node().IsValid() || c.Gateway().IsValid() || c.DNS().IsValid() || c.NodePods().IsValid() {
		t.Error("a cluster of which nothing is known has addresses")
	}
}

// FuzzCluster: nothing that a cluster gives an address to gets that of something else, or one outside of the pods' range.
func FuzzCluster(f *testing.F) {
	f.Add(uint32(0x0a2a0000), uint8(16))
	f.Add(uint32(0xfffffe00), uint8(23))
	f.Fuzz(func(t *testing.T, n uint32, bits uint8) {
		c := Cluster{Pods: netip.PrefixFrom(addrOf(n), int(bits)%24), Services: Usual().Services}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{c.Node(), c.Gateway()} {
			if !c.Pods.Contains(a) || c.NodePods().Contains(a) {
				t.Errorf("%s: a pod may get %s", c.Pods, a)
			}
		}
		if p := c.NodePods(); p != p.Masked() || !c.Pods.Contains(p.Addr()) || !c.Pods.Contains(Last(p)) {
			t.Errorf("%s: %s is not in it", c.Pods, p)
		}
		if c.Node() == c.Gateway() {
			t.Errorf("%s: node and gateway are both %s", c.Pods, c.Node())
		}
	})
}

// FuzzSpans: an address is in a span if it is in a range; spans are sorted and apart.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{10, 76, 0, 0, 16, 10, 77, 0, 0, 16, 224, 0, 0, 0, 3, 0, 0, 0, 0, 8}, uint32(0x0a4cffff))
	f.Add([]byte{0, 0, 0, 0, 0, 255, 255, 255, 255, 32}, uint32(0xffffffff))
	f.Fuzz(func(t *testing.T, b []byte, n uint32) {
		b = b[:min(len(b), 500)]
		var ranges []netip.Prefix
		for ; len(b) >= 5; b = b[5:] {
			ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), int(b[4])%34)) // 33: none
		}
		a, want, got := addrOf(n), false, false
		for _, p := range ranges {
			want = want || p.Contains(a)
		}
		var before Span
		for i, s := range Spans(ranges) {
			if i > 0 && (!before.Behind.IsValid() || !before.Behind.Less(s.From)) {
				t.Fatalf("%v before %v", before, s)
			}
			got = got || !a.Less(s.From) && (!s.Behind.IsValid() || a.Less(s.Behind))
			before = s
		}
		if got != want {
			t.Fatalf("%s is in a span: %v, in a range: %v", a, got, want)
		}
	})
}
