package dns

import (
	"context"
	"net"
	"net/netip"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"kith.dev/engine/network"
)

// isGuest reports whether answers to an address leave by a guest's link. The ranges of guests come and go, and may be those of a
// network that the laptop moves into; the link is what makes a guest. Addresses of which nothing is known here are a guest's.
func (o Options) isGuest(from netip.Addr) bool {
	switch {
	case !from.IsValid():
		return true
	case o.Pods.Contains(from), from.IsLoopback():
		return false
	}
	ways, err := netlink.RouteGet(from.AsSlice())
	if err != nil || len(ways) != 1 {
		return true
	}
	link, err := netlink.LinkByIndex(ways[0].LinkIndex)
	return err != nil || link.Attrs().Group == network.GuestGroup
}

// asker is the key under which a question's context has the address of the guest that asks.
type asker struct{}

func asks(ctx context.Context, guest netip.Addr) context.Context {
	return context.WithValue(ctx, asker{}, guest)
}

func guestOf(ctx context.Context) (netip.Addr, bool) {
	guest, ok := ctx.Value(asker{}).(netip.Addr)
	return guest, ok
}

// sender is where a question comes from.
func sender(w dns.ResponseWriter) netip.Addr {
	host, _, err := net.SplitHostPort(w.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	from, _ := netip.ParseAddr(host) // an error gives the zero value
	return from.Unmap()
}

// reverseOf is the address that a reverse name is of.
func reverseOf(name string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(dnsutil.ExtractAddressFromReverse(name))
	return a.Unmap(), err == nil
}
