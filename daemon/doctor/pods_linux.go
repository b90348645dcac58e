package doctor

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"kith.dev/core/net/hostnet"
)

// wayTo asks the kernel for the route that it would take, rules and all tables considered; nothing is sent.
func wayTo(a netip.Addr) way {
	match, err := netlink.RouteGetWithOptions(net.IP(a.AsSlice()), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(match) == 0 {
		return way{} // unreachable, prohibited, or no route at all
	}
	w := way{device: "a device that is gone"}
	if link, err := netlink.LinkByIndex(match[0].LinkIndex); err == nil {
		w.device = link.Attrs().Name
	}
	to := hostnet.Prefix(match[0].Dst)
	w.general = !to.IsValid() || to.Bits() == 0
	return w
}
