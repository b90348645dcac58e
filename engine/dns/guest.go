package dns

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"kith.dev/engine/network"
)

// links tells guests by their links. The ranges of guests come and go, and may be those of a network that the laptop moves into; the
// link is what makes a guest.
type links struct {
	pods netip.Prefix // of this cluster

	mu     sync.Mutex
	guests map[netip.Addr]time.Time // until when each is believed to be one: the kernel is not asked about each question
}

// believed is how long a guest is one without another look. The mistake that is left is to take the laptop itself for one, that long.
const believed = time.Second

// isGuest reports whether answers to an address leave by a guest's link, or nobody knows where.
func (l *links) isGuest(from netip.Addr) bool {
	switch {
	case !from.IsValid():
		return true
	case l.pods.Contains(from), from.IsLoopback():
		return false
	}
	l.mu.Lock()
	until := l.guests[from]
	l.mu.Unlock()
	if time.Now().Before(until) {
		return true
	}
	if !leadsToGuest(from) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.guests) >= guestsRemembered {
		l.guests = nil
	}
	if l.guests == nil {
		l.guests = map[netip.Addr]time.Time{}
	}
	l.guests[from] = time.Now().Add(believed)
	return true
}

func leadsToGuest(a netip.Addr) bool {
	ways, err := netlink.RouteGet(a.AsSlice())
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
