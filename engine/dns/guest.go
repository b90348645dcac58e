package dns

import (
	"context"
	"net/netip"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"kith.dev/engine/network"
)

// isGuest reports whether answers to an address leave by a guest's link, or nobody knows where. The ranges of guests come and go, and may
// be those of a network that the laptop moves into; the link is what makes a guest.
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

// sender is where a question comes from; the zero value of none that has an address.
func sender(w dns.ResponseWriter) netip.Addr {
	from, ok := w.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return from.AddrPort().Addr().Unmap()
}

// reverseOf is the address that a reverse name is of.
func reverseOf(name string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(dnsutil.ExtractAddressFromReverse(strings.ToLower(name)))
	return a.Unmap(), err == nil
}
