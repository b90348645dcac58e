//go:build linux

package fence

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/hostnet"
)

// readHost reads the host's links and routes, again when the kernel broke a list off because something changed under it,
// as it does while many pods start.
func readHost(h *netlink.Handle) (s hostState, err error) {
	err = hostnet.Whole(func() error {
		links, err := h.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		routes, err := h.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		s = hostStateOf(links, routes)
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
	slices.Sort(s.uplinks)
	s.uplinks = slices.Compact(s.uplinks)
	return s
}

// isDefault: VPNs like to take the default route in two halves, which beat the real one.
func isDefault(r netlink.Route) bool { return hostnet.Prefix(r.Dst).Bits() <= 1 }

func (s *hostState) addUplink(r netlink.Route, names map[int]string) {
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
	}
	for _, h := range hops {
		if a, ok := netip.AddrFromSlice(h.Gw); ok && a.Unmap().Is4() {
			s.routers = append(s.routers, a.Unmap())
		} else if name := names[h.LinkIndex]; h.Gw == nil && name != "" {
			s.uplinks = append(s.uplinks, name)
		}
	}
}
