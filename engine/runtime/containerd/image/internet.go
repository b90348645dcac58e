package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// guard decides about each connection of a pull, to the registry itself as to where it redirects or has tokens fetched. It
// looks at the address that is dialed and not at names, which may mean something else the next time they are asked.
type guard struct {
	open     []string // host:port of what the owner lists
	internet bool
	plain    net.Dialer
	careful  net.Dialer
}

// newGuard is for an image of a registry. If that one is listed it may send on to the internet also where that is denied:
// most keep their layers elsewhere.
func newGuard(domain string, registries []string) *guard {
	g := &guard{plain: net.Dialer{Timeout: 30 * time.Second}}
	g.careful = g.plain
	g.careful.Control = func(_, address string, _ syscall.RawConn) error { return onInternet(address) }
	for _, r := range registries {
		host, insecure := strings.CutPrefix(r, "http://")
		if r == "*" || strings.EqualFold(host, domain) {
			g.internet = true
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(host, map[bool]string{false: "443", true: "80"}[insecure])
		}
		g.open = append(g.open, strings.ToLower(host))
	}
	return g
}

var errNear = errors.New("is in the provider's own network, where guests' images come only from registries that its owner lists in spec.images.registries of the SharingPolicy")

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if slices.Contains(g.open, strings.ToLower(address)) {
		return g.plain.DialContext(ctx, network, address)
	}
	if !g.internet {
		return nil, fmt.Errorf("%s: this provider lets guests pull from the registries that its owner lists, and this is none (spec.images.registries of the SharingPolicy)", address)
	}
	conn, err := g.careful.DialContext(ctx, network, address)
	if errors.Is(err, errNear) {
		return nil, fmt.Errorf("%s %w", address, errNear) // without the address it leads to, which is nobody's business
	}
	return conn, err
}

// closed are the blocks that do not belong to the internet (RFC 6890), the same as for guests themselves in
// kith.dev/core/provide/fence; of IPv6 only what is global unicast, less the ways back to IPv4 (RFC 4380, 3056).
var closed = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2002::/16"),
}

var global = netip.MustParsePrefix("2000::/3")

func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || a.Is6() && !global.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// onInternet is nil for an address that lies behind a default route, and nowhere nearer: LANs, VPNs and laptops may have
// public addresses too.
func onInternet(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !public(at.Addr()) {
		return errNear
	}
	routes, err := netlink.RouteGetWithOptions(at.Addr().Unmap().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(routes) == 0 {
		return nil // no way there: the kernel says so better
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if bits, _ := r.Dst.Mask.Size(); bits > 1 { // VPNs take the default route in two halves
			return errNear
		}
	}
	return nil
}
