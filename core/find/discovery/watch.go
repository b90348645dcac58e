package discovery

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"kith.dev/core/net/hostnet"
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
// LANConfig.Interfaces. Link-local ones are left out: they mean nothing to others.
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

// LANDevices are the names of the interfaces that are a LAN's; patterns as in LANConfig.Interfaces.
func LANDevices(patterns []string) (names []string, err error) {
	interfaces, err := listInterfaces()
	for _, i := range interfaces {
		if i.isLAN(patterns) {
			names = append(names, i.name)
		}
	}
	return names, err
}
