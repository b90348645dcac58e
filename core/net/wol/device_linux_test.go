package wol

import (
	"context"
	"net/netip"
	"strings"
	"testing"
)

// Packets leave by the device that is meant, though another one has a network of the same addresses, and the route that the kernel would take.
func TestPacketsLeaveByTheirDevice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), pause/2)
	defer cancel()
	lo := netip.MustParsePrefix("127.0.0.0/8")
	if err := broadcast(ctx, Device{Name: "lo"}, netip.MustParseAddr("127.0.0.1"), lo, []byte("x")); err != nil {
		t.Errorf("by the device of the network: %v", err)
	}
	if err := broadcast(ctx, Device{Name: "none-such"}, netip.MustParseAddr("127.0.0.1"), lo, []byte("x")); err == nil || !strings.Contains(err.Error(), "none-such") {
		t.Errorf("by a device that is gone, where the kernel would take another: %v", err)
	}
}
