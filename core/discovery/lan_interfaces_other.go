//go:build !linux

package discovery

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// listInterfaces reads all interfaces.
func listInterfaces() ([]lanInterface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []lanInterface
	for _, n := range interfaces {
		i := lanInterface{index: n.Index, name: n.Name, flags: n.Flags}
		addrs, err := n.Addrs()
		if err != nil {
			continue // gone meanwhile
		}
		for _, a := range addrs {
			if ipNet, ok := a.(*net.IPNet); ok {
				ip, _ := netip.AddrFromSlice(ipNet.IP)
				bits, _ := ipNet.Mask.Size()
				i.prefixes = append(i.prefixes, netip.PrefixFrom(ip.Unmap(), bits))
			}
		}
		sortPrefixes(i.prefixes)
		out = append(out, i)
	}
	return out, nil
}

// watchInterfaces signals every few seconds; reading the list is cheap, and the reader compares.
func watchInterfaces(ctx context.Context, changed chan<- struct{}) error {
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}
