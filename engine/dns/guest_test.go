package dns

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"kith.dev/engine/network"
)

// TestTheLinkMakesAGuest: whatever its address is, and whatever addresses the laptop gets.
func TestTheLinkMakesAGuest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // for good: the thread, and its namespace, end with the test
	ns, err := netns.New()
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	link := func(name, address, to string, group int) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		l, err := netlink.LinkByName(name)
		must(t, err)
		a, err := netlink.ParseAddr(address)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		must(t, netlink.AddrAdd(l, a))
		must(t, netlink.LinkSetGroup(l, group))
		if to != "" {
			_, dst, err := net.ParseCIDR(to)
			must(t, err)
			must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst}))
		}
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	link("eth0", "10.127.0.77/24", "", 0) // a LAN with the range of guests
	link("v1", "10.127.0.1/32", "10.127.0.5/32", network.GuestGroup)
	o := Options{Pods: netip.MustParsePrefix("10.42.0.0/16")}
	for from, want := range map[string]bool{
		"10.127.0.5": true, "10.127.0.77": false, "10.127.0.6": false, "10.127.0.1": false, "127.0.0.1": false,
		"10.42.0.5": false, "10.42.255.1": false, "203.0.113.9": true, // no way there
	} {
		if got := o.isGuest(netip.MustParseAddr(from)); got != want {
			t.Errorf("%s: %t, want %t", from, got, want)
		}
	}
	if !o.isGuest(netip.Addr{}) {
		t.Error("nobody is the owner's")
	}
}
