package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

func (m Machine) addresses(_ context.Context, report func(api.Finding)) {
	others, err := networks()
	if err != nil {
		report(about{area: api.AreaAddresses}.warn("routes", "the networks of this machine are not known", err.Error(), "look again as root: sudo kith doctor"))
		return
	}
	for _, c := range m.overlaps(others) {
		report(c)
	}
}

// ownDevices are the network devices that Kith makes.
var ownDevices = []string{netplan.Tunnel, netplan.Node, netplan.Bridge}

// networks lists what is routed here in all tables but the local one, VPNs' too, and the addresses that are vital.
func networks() ([]taken, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	names, pods := map[int]string{}, map[int]bool{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		pods[l.Attrs().Index] = l.Type() == "veth"
	}
	routes, err := hostnet.RoutesOf(unix.RT_TABLE_UNSPEC)
	if err != nil {
		return nil, err
	}
	var all []taken
	for _, r := range routes {
		device := names[r.LinkIndex]
		if r.Protocol == hostnet.Protocol || r.Table == unix.RT_TABLE_LOCAL || slices.Contains(ownDevices, device) {
			continue
		}
		to, isDefault := hostnet.Prefix(r.Dst), false
		if to.IsSingleIP() && pods[r.LinkIndex] { // guests, and pods of network plugins that route to each
			continue
		}
		if to.IsValid() && to.Bits() > 0 {
			all = append(all, taken{prefix: to, by: "routed to " + device})
		} else {
			isDefault = true
		}
		if gw, ok := netip.AddrFromSlice(r.Gw); ok && isDefault {
			gw = gw.Unmap()
			all = append(all, taken{prefix: netip.PrefixFrom(gw, gw.BitLen()), by: "the default gateway", vital: true})
		}
	}
	for _, n := range hostnet.Nameservers() {
		if n.Addr.Is4() {
			all = append(all, taken{prefix: netip.PrefixFrom(n.Addr, 32), by: "a DNS server of " + n.File, vital: true})
		}
	}
	return all, nil
}
