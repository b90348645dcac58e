package network

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// wayToServices lets programs of the laptop reach services while there is no default route of their family: off all networks, and on a LAN of IPv6
// alone. kube-proxy changes the address only of packets that have some way to go. The table is the one that is asked last, so where
// there is another way all is as it was.
func wayToServices(name string, services netip.Prefix, from netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	want := &netlink.Route{
		Dst: hostnet.IPNet(services), LinkIndex: link.Attrs().Index, Src: from.AsSlice(), Scope: netlink.SCOPE_LINK,
		Table: unix.RT_TABLE_DEFAULT, Protocol: unix.RTPROT_STATIC,
	}
	family := unix.AF_INET
	if services.Addr().Is6() { // which has no table that is asked last, and no scopes
		family, want.Table, want.Scope = unix.AF_INET6, unix.RT_TABLE_MAIN, netlink.SCOPE_UNIVERSE
	}
	have, err := netlink.RouteListFiltered(family, want, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return err
	}
	for _, r := range have {
		if hostnet.Prefix(r.Dst) != services { // of another configuration
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return netlink.RouteReplace(want)
}
