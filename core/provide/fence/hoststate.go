//go:build linux

package fence

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// readHost reads the host's links and routes. It repeats when the kernel interrupts a dump because of a change (NLM_F_DUMP_INTR), which is common
// while many pods start.
func readHost(h *netlink.Handle, group uint32, wires bool) (s hostState, err error) {
	err = hostnet.Whole(func() error {
		links, err := h.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		routes, err := h.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		routes6, err := h.RouteListFiltered(unix.AF_INET6, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes of IPv6: %w", err)
		}
		s = hostStateOf(links, append(routes, routes6...))
		s.guests = linksOf(group, links, routes)
		for _, l := range links {
			if group != 0 && l.Attrs().Group == group {
				s.marked = append(s.marked, l.Attrs().Index)
			}
		}
		if wires {
			if s.wires, err = readWires(h, links, routes); err != nil {
				return fmt.Errorf("list neighbours: %w", err)
			}
			b, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables") // without the module it is not there
			s.bridged = err == nil && strings.TrimSpace(string(b)) == "1"
		}
		return nil
	})
	return s, err
}

func hostStateOf(links []netlink.Link, routes []netlink.Route) (s hostState) {
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, r := range routes {
		if r.Type == unix.RTN_UNICAST && isDefault(r) {
			s.addUplink(r, names)
		}
	}
	slices.SortFunc(s.routers, netip.Addr.Compare)
	s.routers = slices.Compact(s.routers)
	for _, names := range []*[]string{&s.uplinks, &s.uplinks6, &s.links6} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return s
}

// isDefault: VPNs like to take the default route in two halves, which beat the real one; that of IPv6 may be 2000::/3.
func isDefault(r netlink.Route) bool {
	if is6(r) {
		return hostnet.Prefix(r.Dst).Bits() <= 3
	}
	return hostnet.Prefix(r.Dst).Bits() <= 1
}

func is6(r netlink.Route) bool { return r.Family == unix.AF_INET6 }

func (s *hostState) addUplink(r netlink.Route, names map[int]string) {
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
	}
	for _, h := range hops {
		a, ok := netip.AddrFromSlice(h.Gw)
		switch a, name := a.Unmap(), names[h.LinkIndex]; {
		case ok && a.Is6() && !is6(r): // an IPv4 route by a router of IPv6 (RFC 5549): it has no next hop that could be asked for
		case ok:
			s.routers = append(s.routers, a)
			if is6(r) && name != "" {
				s.links6 = append(s.links6, name)
			}
		case h.Gw == nil && name != "" && is6(r):
			s.uplinks6 = append(s.uplinks6, name)
		case h.Gw == nil && name != "":
			s.uplinks = append(s.uplinks, name)
		}
	}
}
