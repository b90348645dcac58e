//go:build !linux

package mdns

import (
	"fmt"
	"net"
	"net/netip"
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
