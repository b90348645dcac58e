package nodedevice

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ensure puts addresses, and no others but link-local ones, on the device of that name, which it makes.
func Ensure(name string, addrs ...netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if err := addDevice(name); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		link, err = netlink.LinkByName(name)
	}
	if err != nil {
		return err
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range have {
		if is, ok := netip.AddrFromSlice(a.IP); ok && !is.IsLinkLocalUnicast() && !slices.Contains(addrs, is.Unmap()) {
			if err := netlink.AddrDel(link, &a); err != nil {
				return fmt.Errorf("remove old address %s: %w", a.IPNet, err)
			}
		}
	}
	for _, addr := range addrs {
		want := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
		if addr.Is6() {
			want.Flags = unix.IFA_F_NODAD // nobody else is on this device, and the address is needed now
		}
		if err := netlink.AddrReplace(link, want); err != nil {
			return fmt.Errorf("add address %s: %w", addr, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// addDevice makes a dummy device or, in a kernel built without them, a bridge that never gets a port: all
// that is asked of the device is to hold an address.
func addDevice(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}
