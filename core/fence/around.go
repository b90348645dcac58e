//go:build linux

package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lookAround reads the host's links and routes, again when the kernel broke a list off because something changed under it,
// as it does while many guests start.
func lookAround(h *netlink.Handle, group uint32) (s surroundings, err error) {
	for range 5 {
		if s, err = look(h, group); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return s, err
}

func look(h *netlink.Handle, group uint32) (surroundings, error) {
	links, err := h.LinkList()
	if err != nil {
		return surroundings{}, fmt.Errorf("list links: %w", err)
	}
	routes, err := h.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return surroundings{}, fmt.Errorf("list routes: %w", err)
	}
	return surroundingsOf(group, links, routes), nil
}

func surroundingsOf(group uint32, links []netlink.Link, routes []netlink.Route) surroundings {
	s := surroundings{links: map[string][]netip.Addr{}}
	names := map[int]string{}
	guests := map[int]string{}
	for _, l := range links {
		at := l.Attrs()
		names[at.Index] = at.Name
		if group != 0 && at.Group == group && at.Alias != "" {
			guests[at.Index] = at.Alias
		}
	}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST {
			continue
		}
		if uid := guests[r.LinkIndex]; uid != "" {
			if a, ok := single(r); ok && !slices.Contains(s.links[uid], a) {
				s.links[uid] = append(s.links[uid], a)
			}
			continue
		}
		if isDefault(r) {
			s.addUplink(r, names)
		}
	}
	for _, list := range s.links {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	slices.SortFunc(s.routers, netip.Addr.Compare)
	s.routers = slices.Compact(s.routers)
	slices.Sort(s.uplinks)
	s.uplinks = slices.Compact(s.uplinks)
	return s
}

// single gives the address of a route to one host.
func single(r netlink.Route) (netip.Addr, bool) {
	if r.Dst == nil {
		return netip.Addr{}, false
	}
	ones, bits := r.Dst.Mask.Size()
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	return a.Unmap(), ok && ones == 32 && bits == 32
}

// isDefault: VPNs like to take the default route in two halves, which beat the real one.
func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones <= 1
}

func (s *surroundings) addUplink(r netlink.Route, names map[int]string) {
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
