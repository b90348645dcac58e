//go:build linux

package fence

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// guestLink is the host's end of a guest's link, and the address that the guest has.
type guestLink struct {
	name string
	addr netip.Addr
	mac  net.HardwareAddr // on a bridge, where others are beside it; else nil
}

// heard is an entry of the kernel's neighbour table, or of a bridge's forwarding table, which has no IP addresses.
type heard struct {
	link int // the port, of a bridge
	mac  net.HardwareAddr
	addr netip.Addr
}

// linksOf gives the links of a group that lead to one IPv4 address each.
func linksOf(group uint32, links []netlink.Link, routes []netlink.Route) (list []guestLink) {
	if group == 0 {
		return nil
	}
	marked := map[int]string{}
	for _, l := range links {
		if l.Attrs().Group == group {
			marked[l.Attrs().Index] = l.Attrs().Name
		}
	}
	for _, r := range routes {
		if to, name := leadsTo(r), marked[r.LinkIndex]; to.IsValid() && to.Is4() && name != "" {
			list = append(list, guestLink{name: name, addr: to})
		}
	}
	return sortedLinks(list)
}

// leadsTo is the one address that a route leads to; the zero value of others.
func leadsTo(r netlink.Route) (a netip.Addr) {
	if to := hostnet.Prefix(r.Dst); r.Type == unix.RTN_UNICAST && r.Dst != nil && to.IsSingleIP() && r.Gw == nil {
		return to.Addr()
	}
	return a
}

func sortedLinks(list []guestLink) []guestLink {
	slices.SortFunc(list, func(a, b guestLink) int {
		if byName := strings.Compare(a.name, b.name); byName != 0 {
			return byName
		}
		return a.addr.Compare(b.addr)
	})
	return slices.CompactFunc(list, func(a, b guestLink) bool { return a.name == b.name && a.addr == b.addr })
}

// wires is how the cluster's network plugin has connected pods to this host.
type wires struct {
	links  map[int]netlink.Link
	routes []netlink.Route
	found  []heard // by address
	ports  []heard // by link-layer address, behind which port of a bridge
}

// readWires asks the kernel what it knows of its neighbours; it knows of links and routes.
func readWires(h *netlink.Handle, links []netlink.Link, routes []netlink.Route) (w wires, err error) {
	w = wires{links: map[int]netlink.Link{}, routes: routes}
	for _, l := range links {
		w.links[l.Attrs().Index] = l
	}
	found, err := h.NeighList(0, unix.AF_INET)
	if err != nil {
		return w, err
	}
	ports, err := h.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return w, err
	}
	for _, n := range found {
		if a, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) == 6 {
			w.found = append(w.found, heard{link: n.LinkIndex, mac: n.HardwareAddr, addr: a.Unmap()})
		}
	}
	for _, n := range ports {
		if len(n.HardwareAddr) == 6 && n.State&netlink.NUD_PERMANENT == 0 { // those are the ports' own
			w.ports = append(w.ports, heard{link: n.LinkIndex, mac: n.HardwareAddr})
		}
	}
	return w, nil
}

// to finds the link by which an address is reached: that of a route to it alone or, on a bridge, the port behind which it was heard.
func (w wires) to(a netip.Addr) (guestLink, bool) {
	for _, r := range w.routes {
		if l := w.links[r.LinkIndex]; l != nil && leadsTo(r) == a && l.Type() != "bridge" {
			return guestLink{name: l.Attrs().Name, addr: a}, true
		}
	}
	for _, n := range w.found {
		if n.addr != a {
			continue
		}
		for _, p := range w.ports {
			if l := w.links[p.link]; l != nil && l.Attrs().MasterIndex == n.link && slices.Equal(p.mac, n.mac) {
				return guestLink{name: l.Attrs().Name, addr: a, mac: n.mac}, true
			}
		}
	}
	return guestLink{}, false
}

// bridgeOf is the bridge whose network an address is of; 0 for none.
func (w wires) bridgeOf(a netip.Addr) int {
	for _, r := range w.routes {
		to := hostnet.Prefix(r.Dst)
		if l := w.links[r.LinkIndex]; r.Dst != nil && r.Type == unix.RTN_UNICAST && to.Bits() > 0 && to.Contains(a) && r.Gw == nil && l != nil && l.Type() == "bridge" {
			return r.LinkIndex
		}
	}
	return 0
}

// has reports whether a link is there.
func (w wires) has(name string) bool {
	for _, l := range w.links {
		if l.Attrs().Name == name {
			return true
		}
	}
	return false
}

// seek has the kernel ask who has an address, of which it tells its bridges' ports then.
func (w wires) seek(h *netlink.Handle, a netip.Addr) {
	if bridge := w.bridgeOf(a); bridge != 0 {
		_ = h.NeighSet(&netlink.Neigh{LinkIndex: bridge, Family: unix.AF_INET, IP: a.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
	}
}

// outer are the links by which no pod of this node is reached. Of a veth, or a bridge, it is not sure unless a default route or a network that is not of
// pods lies behind it. A node that is a container itself has a veth to the world, and ways to other nodes' pods there.
func (w wires) outer(pods []netip.Prefix) (names, bridges, pairs []string) {
	of := func(p netip.Prefix) bool {
		return slices.ContainsFunc(pods, func(q netip.Prefix) bool { return q.Overlaps(p) })
	}
	world, inner := map[int]bool{}, map[int]bool{}
	for _, r := range w.routes {
		to := hostnet.Prefix(r.Dst)
		switch {
		case is6(r) || r.Type != unix.RTN_UNICAST:
		case isDefault(r):
			world[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				world[hop.LinkIndex] = true
			}
		case of(to) && (r.Gw != nil || r.Via != nil): // pods of another node, by that node
		case of(to):
			inner[r.LinkIndex] = true
		case !to.IsSingleIP():
			world[r.LinkIndex] = true
		}
	}
	for index, l := range w.links {
		name := l.Attrs().Name
		switch l.Type() {
		case "veth":
			master := l.Attrs().MasterIndex
			if master == 0 && world[index] && !inner[index] || master != 0 && !inner[master] {
				names = append(names, name)
			} else {
				pairs = append(pairs, name)
			}
		case "bridge":
			if inner[index] {
				bridges = append(bridges, name)
			} else {
				names = append(names, name)
			}
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Sort(bridges)
	slices.Sort(pairs)
	return names, bridges, pairs
}
