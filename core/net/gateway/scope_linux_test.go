package gateway

import (
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
)

func TestALinkLocalEndpointNamesItsInterface(t *testing.T) {
	var known interfaces
	for at, want := range map[string]int32{
		"[fe80::7%lo]:6450":   1, // the loopback is the first of every network namespace
		"[2001:db8::7]:6450":  0,
		"192.0.2.7:6450":      0,
		"[fe80::7%none]:6450": -1,
	} {
		e := &conn.StdNetEndpoint{AddrPort: netip.MustParseAddrPort(at)}
		to, err := known.scoped(e)
		if err != nil {
			if want >= 0 {
				t.Errorf("%s: %v", at, err)
			}
			continue
		}
		got := to.(*conn.StdNetEndpoint)
		if got.SrcIfidx() != want || got.AddrPort != e.AddrPort || want > 0 && got.SrcIP() != netip.IPv6Unspecified() {
			t.Errorf("%s leaves by %d, from %s, to %s; want %d", at, got.SrcIfidx(), got.SrcIP(), got.AddrPort, want)
		}
		if e.SrcIfidx() != 0 {
			t.Errorf("%s: WireGuard's own endpoint was changed", at)
		}
		if want > 0 { // what the kernel said is known already, and stays
			if again, err := known.scoped(got); err != nil || again != to {
				t.Errorf("%s: %v, %v", at, again, err)
			}
			got.ClearSrc() // when a peer does not answer
			if again, err := known.scoped(got); err != nil || again.(*conn.StdNetEndpoint).SrcIfidx() != want {
				t.Errorf("%s, cleared: %v, %v", at, again, err)
			}
		}
	}
	known.forget()
	if len(known.indexes) != 0 {
		t.Error("interfaces are remembered")
	}
}
