package hostnet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks the routes and rules that are Kith's (rtm_protocol; 4 and up are for users).
const Protocol = 107

// NodesProtocol marks those that lead to other nodes of the same cluster (core/net/overlay): another process keeps them.
const NodesProtocol = 109

// InUse lists the ranges of both families in use on this host: addresses, routes in every table but the default ones (which VPNs
// like to take in two halves), gateways, and DNS servers, which are often reached by the default route only. What belongs to
// device (ours), to the links of a group (guests'; 0 is none) and our own routes are left out; so are IPv6's addresses of a link, which
// every one has.
func InUse(device string, group uint32) ([]netip.Prefix, error) {
	var out []netip.Prefix
	add := func(p netip.Prefix) {
		p = p.Masked() // without a zone
		if !p.IsValid() || p.Bits() <= wholes(p.Addr()) || p.Addr().Is6() && (p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast()) || slices.Contains(out, p) {
			return
		}
		out = append(out, p)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	ours := map[int]bool{}
	for _, l := range links {
		if a := l.Attrs(); a.Name == device || group != 0 && a.Group == group {
			ours[a.Index] = true
		}
	}
	addrs, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if !ours[a.LinkIndex] {
			add(Prefix(a.IPNet))
			add(Prefix(a.Peer))
		}
	}
	routes, err := RoutesOf(unix.RT_TABLE_UNSPEC)
	if err != nil {
		return nil, err
	}
	routes6, err := Routes6Of(unix.RT_TABLE_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, r := range append(routes, routes6...) {
		if ours[r.LinkIndex] || r.Protocol == Protocol || r.Protocol == NodesProtocol {
			continue
		}
		add(Prefix(r.Dst))
		if gw, ok := netip.AddrFromSlice(r.Gw); ok {
			add(netip.PrefixFrom(gw.Unmap(), gw.Unmap().BitLen()))
		}
	}
	for _, n := range Nameservers() {
		add(netip.PrefixFrom(n.Addr, n.Addr.BitLen()))
	}
	return out, nil
}

// wholes is the length of the longest prefix of a family that stands for the default route, or a part of it: those of IPv6 often lead to 2000::/3.
func wholes(of netip.Addr) int {
	if of.Is4() {
		return 1
	}
	return 3
}

// Nameserver is a DNS server of this host, on another one.
type Nameserver struct {
	Addr netip.Addr
	File string // that names it
}

// Nameservers lists those that programs here ask, and those that systemd-resolved asks for them.
func Nameservers() (out []Nameserver) {
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		if text, err := os.ReadFile(path); err == nil {
			for _, a := range nameservers(text) {
				out = append(out, Nameserver{a, path})
			}
		}
	}
	return out
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

// Own lists the addresses of both families the kernel delivers to this host (local, broadcast and anycast), and the networks it is attached
// to by an interface that leads outside. device is the index of the tunnel's.
func Own(device int) (host, lan []netip.Prefix, err error) {
	for _, routes := range []func(int) ([]netlink.Route, error){RoutesOf, Routes6Of} {
		local, err := routes(unix.RT_TABLE_LOCAL)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range local {
			if p := Prefix(r.Dst); p.IsValid() && slices.Contains([]int{unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST}, r.Type) {
				host = append(host, p)
			}
		}
		main, err := routes(unix.RT_TABLE_MAIN)
		if err != nil {
			return nil, nil, err
		}
		lan = append(lan, attached(others(main, device))...)
	}
	return host, lan, nil
}

// attached are the networks of links that a default route leads to.
func attached(main []netlink.Route) (lan []netip.Prefix) {
	outside := map[int]bool{}
	for _, r := range main {
		if p := Prefix(r.Dst); r.Gw != nil && p.Bits() <= 0 {
			outside[r.LinkIndex] = true
		}
	}
	for _, r := range main {
		if p := Prefix(r.Dst); p.Bits() > 0 && r.Gw == nil && outside[r.LinkIndex] {
			lan = append(lan, p)
		}
	}
	return lan
}

// MainRoutes are the IPv4 routes of the main table without Kith's and those of device.
func MainRoutes(device int) ([]netlink.Route, error) {
	all, err := RoutesOf(unix.RT_TABLE_MAIN)
	return others(all, device), err
}

func others(all []netlink.Route, device int) []netlink.Route {
	return slices.DeleteFunc(all, func(r netlink.Route) bool {
		return r.LinkIndex == device || r.Protocol == Protocol
	})
}

// RoutesOf lists the IPv4 routes of a table (RT_TABLE_UNSPEC: of all).
func RoutesOf(table int) ([]netlink.Route, error) { return routesOf(unix.AF_INET, table) }

// Routes6Of lists the IPv6 routes of a table.
func Routes6Of(table int) ([]netlink.Route, error) { return routesOf(unix.AF_INET6, table) }

func routesOf(family, table int) ([]netlink.Route, error) {
	list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

// Prefix is a range as the kernel tells it; the zero value of none, which is how it tells a default route.
func Prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, size := n.Mask.Size()
	if a = a.Unmap(); !ok || size == 0 || a.BitLen() != size {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, ones)
}

// IPNet is a range as netlink takes it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Whole calls read again while the kernel breaks a list off because something changes under it, which is just when one looks.
func Whole(read func() error) (err error) {
	for try := range 5 {
		time.Sleep(time.Duration(try) * 2 * time.Millisecond)
		if err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
