package discovery

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/hostnet"
)

// listInterfaces reads all interfaces. Addresses that are not usable yet (duplicate address detection) are
// left out; when they become usable, there is another netlink event.
func listInterfaces() (list []lanInterface, err error) {
	err = hostnet.Whole(func() (err error) {
		list, err = listInterfacesOnce()
		return err
	})
	return list, err
}

func listInterfacesOnce() ([]lanInterface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	prefixes := map[int][]netip.Prefix{}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED) != 0 {
			continue
		}
		bits, _ := a.Mask.Size()
		prefixes[a.LinkIndex] = append(prefixes[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits))
	}
	var out []lanInterface
	for _, l := range links {
		at := l.Attrs()
		i := lanInterface{index: at.Index, name: at.Name, flags: at.Flags, prefixes: prefixes[at.Index]}
		if kind := l.Type(); kind != "device" {
			i.kind = kind
		}
		if at.RawFlags&unix.IFF_RUNNING == 0 {
			i.flags &^= net.FlagRunning
		}
		sortPrefixes(i.prefixes)
		out = append(out, i)
	}
	return out, nil
}
