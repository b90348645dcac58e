package hostnet

import (
	"fmt"
	"net/netip"
	"testing"

	"kith.dev/core/net/netplan"
)

func TestNameservers(t *testing.T) {
	got := nameservers([]byte("# x\nnameserver 10.1.1.1\nnameserver 127.0.0.53\nsearch a b\nnameserver\nnameserver fd00::1 # y\nnameserver nonsense\n"))
	if fmt.Sprint(got) != "[10.1.1.1 fd00::1]" {
		t.Error(got)
	}
	got = nameservers([]byte("# local\nnameserver 127.0.0.53\nnameserver 10.43.0.53 # work\nsearch example.org\nnameserver fe80::1%eth0\nnameserver nonsense\n"))
	if fmt.Sprint(got) != "[10.43.0.53 fe80::1%eth0]" {
		t.Error(got)
	}
}

func TestRangesInUseHoldLoopback(t *testing.T) {
	got, err := InUse("kith-none", 0)
	if err != nil {
		t.Fatal(err)
	}
	if netplan.Free(netip.MustParsePrefix("127.0.0.1/32"), got) {
		t.Errorf("127.0.0.1 is missing in %v", got)
	}
	for _, p := range got {
		if p.Bits() == 0 {
			t.Error("the default route takes everything")
		}
	}
}
