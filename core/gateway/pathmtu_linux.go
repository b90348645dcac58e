package gateway

import (
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// pathMTU is the kernel's idea of the MTU towards an address: that of the interface, or less once a router on the
// way has said so. Nothing is sent.
func pathMTU(to netip.AddrPort) (int, error) {
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

// tunnelMTU is how large an inner packet may be so that the outer one fits the path.
func tunnelMTU(path int, outer netip.Addr, device int) int {
	overhead := 20 + 8 + 32 // IPv4, UDP, WireGuard
	if outer.Unmap().Is6() {
		overhead += 20
	}
	room := path - overhead
	if room >= device {
		return device
	}
	return max(room&^15, minMTU) // WireGuard pads to 16 bytes below the device's MTU
}
