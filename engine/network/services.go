package network

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/hostnet"
)

// wayToServices lets programs of the laptop reach services while there is no default route of IPv4: off all networks, and on a LAN of IPv6
// alone. kube-proxy changes the address only of packets that have some way to go. The table is the one that is asked last, so where
// there is another way all is as it was.
func wayToServices(name string, o Options) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	want := &netlink.Route{
		Dst: hostnet.IPNet(o.ServiceCIDR), LinkIndex: link.Attrs().Index, Src: o.NodeIP.AsSlice(), Scope: netlink.SCOPE_LINK,
		Table: unix.RT_TABLE_DEFAULT, Protocol: unix.RTPROT_STATIC,
	}
	have, err := netlink.RouteListFiltered(unix.AF_INET, want, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	if err != nil {
		return err
	}
	for _, r := range have {
		if hostnet.Prefix(r.Dst) != o.ServiceCIDR { // of another configuration
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return netlink.RouteReplace(want)
}
