package daemon

import (
	"net"
	"net/netip"
	"testing"
)

func TestCallsToAnAddressThatThisMachineDoesNotHaveComeInAtItsLoopback(t *testing.T) {
	own := []net.Addr{
		&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}, &net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)},
		&net.IPNet{IP: net.IPv4(192, 0, 2, 12), Mask: net.CIDRMask(24, 32)}, // 16 bytes, as the system gives them
	}
	for ip, want := range map[string]string{
		"192.0.2.12":   "192.0.2.12", // the node is this machine, or a bridge leads to the virtual one
		"192.168.5.2":  "127.0.0.1",  // what stands for this machine in a virtual one
		"192.168.5.15": "127.0.0.1",  // the virtual machine
	} {
		if got := comesInAt(netip.MustParseAddr(ip), own); got.String() != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
}
