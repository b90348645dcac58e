//go:build !linux

package hostnet

import (
	"fmt"
	"net"
	"net/netip"
)

// InUse lists the ranges of this host's addresses, except for those of device.
func InUse(device string, group uint32) (out []netip.Prefix, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network devices: %w", err)
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil || l.Name == device {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
				out = append(out, p.Masked())
			}
		}
	}
	return out, nil
}
