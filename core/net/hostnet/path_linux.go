package hostnet

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PathMTU is the kernel's idea of the MTU towards an address: that of the interface, or less once a router on the
// way has said so. Nothing is sent.
func PathMTU(to netip.AddrPort) (int, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return 0, fmt.Errorf("path to %s: %w", to.Addr(), err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	mtu := 0
	ctlErr := raw.Control(func(fd uintptr) {
		if to.Addr().Unmap().Is4() {
			mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		} else {
			mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		}
	})
	if ctlErr != nil {
		return 0, ctlErr
	}
	return mtu, err
}

// Way describes how an address is reached now: interface, source address, next hop. A link-local one is behind the interface that its zone
// names: of the route there is one on each.
func Way(to netip.Addr) string {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: to.Zone()})
	if err != nil || len(routes) == 0 {
		return "unreachable"
	}
	return fmt.Sprintf("%d %s %s", routes[0].LinkIndex, routes[0].Src, routes[0].Gw)
}
