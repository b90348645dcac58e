package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LocalRanges lists the IPv4 ranges in use on this host: addresses, routes in every table but the default ones (which VPNs
// like to take in two halves), gateways, and DNS servers, which are often reached by the default route only. What belongs to
// device (ours) and our own routes are left out.
func LocalRanges(device string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	add := func(p netip.Prefix) {
		if p.IsValid() && p.Addr().Is4() && p.Bits() > 1 && !slices.Contains(out, p.Masked()) {
			out = append(out, p.Masked())
		}
	}
	ours := -1
	if link, err := netlink.LinkByName(device); err == nil {
		ours = link.Attrs().Index
	}
	addrs, err := netlink.AddrList(nil, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok && a.LinkIndex != ours {
			add(p)
		}
		if p, ok := prefixOf(a.Peer); ok && a.LinkIndex != ours {
			add(p)
		}
	}
	routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.LinkIndex == ours || r.Protocol == protocol {
			continue
		}
		if p, ok := prefixOf(r.Dst); ok {
			add(p)
		}
		if gw, ok := netip.AddrFromSlice(r.Gw); ok {
			add(netip.PrefixFrom(gw.Unmap(), gw.Unmap().BitLen()))
		}
	}
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		if text, err := os.ReadFile(path); err == nil {
			for _, a := range nameservers(text) {
				add(netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return out, nil
}

func nameservers(resolvConf []byte) (out []netip.Addr) {
	for s := bufio.NewScanner(bytes.NewReader(resolvConf)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil && !a.IsLoopback() {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// ownZones finds what the fence protects: addresses the kernel delivers to this host (local and broadcast), and
// networks it is attached to by an interface that leads outside. ours is the index of the tunnel device.
func ownZones(ours int) (host, lan []netip.Prefix, err error) {
	local, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, nil, fmt.Errorf("list local addresses: %w", err)
	}
	for _, r := range local {
		if p, ok := prefixOf(r.Dst); ok && (r.Type == unix.RTN_LOCAL || r.Type == unix.RTN_BROADCAST) {
			host = append(host, p)
		}
	}
	main, err := mainRoutes(ours)
	if err != nil {
		return nil, nil, err
	}
	outside := map[int]bool{}
	for _, r := range main {
		if p, ok := prefixOf(r.Dst); r.Gw != nil && (!ok || p.Bits() == 0) {
			outside[r.LinkIndex] = true
		}
	}
	for _, r := range main {
		if p, ok := prefixOf(r.Dst); ok && p.Bits() > 0 && r.Gw == nil && outside[r.LinkIndex] {
			lan = append(lan, p)
		}
	}
	return host, lan, nil
}

// mainRoutes are the IPv4 routes of the main table without ours.
func mainRoutes(ours int) ([]netlink.Route, error) {
	all, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r netlink.Route) bool {
		return r.LinkIndex == ours || r.Protocol == protocol
	}), nil
}
