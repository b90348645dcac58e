package gateway

import (
	"fmt"
	"net/netip"
	"testing"

	"kith.dev/core/netplan"
)

func TestNameservers(t *testing.T) {
	got := nameservers([]byte("# x\nnameserver 10.1.1.1\nnameserver 127.0.0.53\nsearch a b\nnameserver\nnameserver fd00::1 # y\nnameserver nonsense\n"))
	if fmt.Sprint(got) != "[10.1.1.1 fd00::1]" {
		t.Error(got)
	}
}

func TestLocalRangesHoldLoopback(t *testing.T) {
	got, err := LocalRanges("kith-none")
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
