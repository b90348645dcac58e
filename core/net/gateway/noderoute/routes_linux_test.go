package noderoute

import (
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/core/net/netplan"
)

// TestThousandsOfRoutesCostLittle: a peer may name as many ranges as a pair may have, and they are looked at whenever anything changes on the host.
func TestThousandsOfRoutesCostLittle(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // for good: the thread ends in a namespace of its own
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "kith0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other"}); err != nil {
		t.Fatal(err)
	}
	h, err := Up("kith0", netip.MustParseAddr("10.42.255.2"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var tenants []Tenant
	for i := range 64 {
		tenant := Tenant{From: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i), 0}), 24)}
		for n := range netplan.MaxSpace {
			tenant.To = append(tenant.To, Route{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16), MTU: h.mtu})
		}
		tenants = append(tenants, tenant)
	}
	for _, more := range [][]Tenant{tenants, tenants, nil} {
		start := time.Now()
		if err := h.Sync(nil, nil, more); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 5*time.Second { // it is less than a tenth of that
			t.Errorf("%d tenants took %s", len(more), took)
		}
		left, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: tenants[0].table()}, netlink.RT_FILTER_TABLE)
		if want := min(len(more), 1) * (netplan.MaxSpace + 1); err != nil || len(left) != want {
			t.Errorf("%d routes of the first tenant, %v; want %d", len(left), err, want)
		}
	}
}
