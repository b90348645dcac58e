package discovery

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"kith.dev/core/hostnet"
)

// errSilent is why who looks at the interfaces begins again.
var errSilent = errors.New("the kernel tells of interfaces no more")

// WatchLAN calls changed whenever LANAddresses gives others than before, until ctx ends. Between two changes nothing
// is asked.
func WatchLAN(ctx context.Context, kernel *hostnet.Changes, patterns []string, changed func()) error {
	news, stop, err := kernel.Listen(hostnet.Links | hostnet.Addresses)
	if err != nil {
		return err
	}
	defer stop()
	before, err := LANAddresses(patterns)
	if err != nil {
		return err
	}
	for {
		select {
		case _, ok := <-news:
			if !ok {
				return errSilent
			}
			now, err := LANAddresses(patterns)
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
	interfaces, err := listInterfaces()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, i := range interfaces {
		if !i.isLAN(patterns) {
			continue
		}
		for _, a := range i.addresses() {
			if !a.IsLinkLocalUnicast() && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list, nil
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
