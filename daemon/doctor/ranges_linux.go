package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
)

// ownRoutes is the rtm_protocol of the gateway's routes (core/gateway).
const ownRoutes = 107

func (m Machine) addresses(_ context.Context, report func(api.Finding)) {
	others, err := networks()
	if err != nil {
		report(about{area: api.AreaAddresses}.warn("routes", "the networks of this machine are not known", err.Error(), ""))
		return
	}
	for _, c := range m.overlaps(others) {
		report(c)
	}
}

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
	routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var all []taken
	for _, r := range routes {
		device := names[r.LinkIndex]
		if r.Protocol == ownRoutes || r.Table == unix.RT_TABLE_LOCAL || slices.Contains(ownDevices, device) {
			continue
		}
		to, isDefault := prefixOf(r.Dst), false
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
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		if text, err := os.ReadFile(path); err == nil {
			for _, a := range nameservers(text) {
				all = append(all, taken{prefix: netip.PrefixFrom(a, a.BitLen()), by: "a DNS server of " + path, vital: true})
			}
		}
	}
	return all, nil
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a.Unmap(), ones)
}

func nameservers(resolvConf []byte) (out []netip.Addr) {
	for s := bufio.NewScanner(bytes.NewReader(resolvConf)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && !a.IsLoopback() && a.Unmap().Is4() {
			out = append(out, a.Unmap())
		}
	}
	return out
}
