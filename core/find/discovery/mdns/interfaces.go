package mdns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"

	"kith.dev/core/find/discovery"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// errSilent is why who looks at the interfaces begins again.
var errSilent = errors.New("the kernel tells of interfaces no more")

// WatchLAN calls changed whenever this machine's addresses on real LANs are others than before, link-local ones too, which some LANs have
// alone, until ctx ends. Between two changes nothing is asked.
func WatchLAN(ctx context.Context, kernel *hostnet.Changes, patterns []string, changed func()) error {
	news, stop, err := kernel.Listen(hostnet.Links | hostnet.Addresses)
	if err != nil {
		return err
	}
	defer stop()
	before, err := addressesOnLANs(patterns)
	if err != nil {
		return err
	}
	for {
		select {
		case _, ok := <-news:
			if !ok {
				return errSilent
			}
			now, err := addressesOnLANs(patterns)
			if err != nil {
				return err
			}
			if !slices.Equal(before, now) {
				before = now
				changed()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// LANAddresses are this machine's addresses on real LANs, the likeliest to be reached first; patterns as in
// Config.Interfaces. Link-local ones are left out: they mean nothing to others.
func LANAddresses(patterns []string) ([]netip.Addr, error) {
	all, err := addressesOnLANs(patterns)
	return slices.DeleteFunc(all, netip.Addr.IsLinkLocalUnicast), err
}

// ToldAddresses are LANAddresses, or, on LANs that have none but link-local ones, those, without a zone: which interface of its own an
// address is behind, is for each machine to know (RFC 4007, section 6). Who is told one knows by it at least the port.
func ToldAddresses(patterns []string) ([]netip.Addr, error) {
	all, err := addressesOnLANs(patterns)
	told := slices.DeleteFunc(slices.Clone(all), netip.Addr.IsLinkLocalUnicast)
	if len(told) > 0 {
		return told, err
	}
	for _, a := range all {
		if a = a.WithZone(""); !slices.Contains(told, a) {
			told = append(told, a)
		}
	}
	return told, err
}

// addressesOnLANs gives link-local ones of IPv6 with their zone, and last.
func addressesOnLANs(patterns []string) ([]netip.Addr, error) {
	interfaces, err := listInterfaces()
	if err != nil {
		return nil, err
	}
	var list, linkLocal []netip.Addr
	for _, i := range interfaces {
		if !i.isLAN(patterns) {
			continue
		}
		for _, a := range i.addresses() {
			switch {
			case a.Is6() && a.IsLinkLocalUnicast():
				linkLocal = append(linkLocal, a.WithZone(i.name))
			case !slices.Contains(list, a):
				list = append(list, a)
			}
		}
	}
	return append(list, linkLocal...), nil
}

// LANDevices are the names of the interfaces that are a LAN's; patterns as in Config.Interfaces.
func LANDevices(patterns []string) (names []string, err error) {
	interfaces, err := listInterfaces()
	for _, i := range interfaces {
		if i.isLAN(patterns) {
			names = append(names, i.name)
		}
	}
	return names, err
}

// lanInterface is a network interface with its addresses, as the system shows it now.
type lanInterface struct {
	index    int
	name     string
	kind     string // what made it, as rtnetlink names it ("wireguard"); empty for hardware or not known
	flags    net.Flags
	prefixes []netip.Prefix // usable addresses with their prefix lengths, sorted
}

// notLAN names the interfaces that lead to containers, virtual machines or tunnels. What is announced there
// reaches nobody, or the wrong one: every laptop has the same addresses behind its docker0.
var notLAN = regexp.MustCompile(`^(lo|docker|podman|cni|veth|vnet|kith|flannel|cilium|lxc|lxd|incus|cali|weave|kube|nodelocaldns|` +
	`virbr|vmnet|vbox|tun|tap|utun|wg|tailscale|zt|ppp|dummy|ifb|sit|gre|ip6tnl|vxlan|geneve|awdl|llw|bridge1\d\d)|^br-[0-9a-f]{12}$`)

var notLANKinds = []string{"wireguard", "tun", "tuntap", "dummy", "vxlan", "geneve", "ifb", "ipip", "sit", "gre", "gretap", "ip6tnl", "xfrm", "vti", "nlmon"}

// isLAN decides whether to announce on an interface. Patterns (path.Match), when there are any, decide by
// name alone; flags and addresses count always.
func (i lanInterface) isLAN(patterns []string) bool {
	const need = net.FlagUp | net.FlagMulticast
	if i.flags&need != need || i.flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 || len(i.prefixes) == 0 {
		return false
	}
	if len(patterns) == 0 {
		return !notLAN.MatchString(i.name) && !slices.Contains(notLANKinds, i.kind)
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, i.name)
		return ok && err == nil
	})
}

// speaks says whether there is an address to send from in a family. In IPv6 the group is on the link, so
// only a link-local one will do.
func (i lanInterface) speaks(v6 bool) bool {
	return slices.ContainsFunc(i.prefixes, func(p netip.Prefix) bool {
		if v6 {
			return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
		}
		return p.Addr().Is4()
	})
}

// addresses to announce: IPv4, then global IPv6, then link-local.
func (i lanInterface) addresses() []netip.Addr {
	rank := func(a netip.Addr) int {
		switch {
		case a.Is4():
			return 0
		case !a.IsLinkLocalUnicast():
			return 1
		}
		return 2
	}
	var out []netip.Addr
	for _, p := range i.prefixes {
		out = append(out, p.Addr())
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	return out
}

// lastingFirst gives the addresses of an interface that others should know. A temporary address (RFC 8981) is there so that servers far
// away do not know this machine again, and is another every day: where its network has a lasting one, neighbours are told that.
func lastingFirst(lasting, temporary []netip.Prefix) []netip.Prefix {
	out := slices.Clone(lasting)
	for _, t := range temporary {
		if !slices.ContainsFunc(lasting, func(l netip.Prefix) bool { return l.Masked() == t.Masked() }) {
			out = append(out, t)
		}
	}
	return out
}

func (i lanInterface) has(a netip.Addr) bool {
	return slices.ContainsFunc(i.prefixes, func(p netip.Prefix) bool { return p.Addr() == a.WithZone("") })
}

func (i lanInterface) equal(j lanInterface) bool {
	return i.index == j.index && i.name == j.name && i.flags == j.flags && slices.Equal(i.prefixes, j.prefixes)
}

func sortPrefixes(p []netip.Prefix) {
	slices.SortFunc(p, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
}

// onLink gives those of the announced addresses that are neighbours on the interface the announcement came in on. Anybody on
// the LAN can announce anything, and what is announced is dialled: an address elsewhere would have this laptop knock at doors
// that only it can reach, its own services, a VPN, the office next door. A laptop of the same LAN has an address of the LAN.
func (i lanInterface) onLink(announced []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range announced {
		if slices.ContainsFunc(i.prefixes, func(p netip.Prefix) bool { return neighbour(a.Addr(), p) }) && !i.has(a.Addr()) {
			out = append(out, a)
		}
	}
	return out
}

// neighbour reports whether an address can be another machine's in the network of a prefix, which is one of this machine's own
// addresses with its length.
func neighbour(a netip.Addr, own netip.Prefix) bool {
	if !discovery.Dialable(a) || a.Is4In6() || a.Zone() != "" || !own.Contains(a) {
		return false
	}
	if a.Is4() && own.Bits() < 31 { // neither the network's name nor its broadcast address (RFC 3021: shorter ones have none)
		return a != own.Masked().Addr() && a != netplan.Last(own)
	}
	return true
}
