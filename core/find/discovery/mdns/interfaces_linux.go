package mdns

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// listInterfaces reads all interfaces. Addresses that are not usable yet (duplicate address detection) are
// left out; when they become usable, there is another netlink event. Left out are also those on their way out (RFC 4862, deprecated),
// and temporary ones that have a lasting one beside them.
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
	lasting, temporary := map[int][]netip.Prefix{}, map[int][]netip.Prefix{}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_DEPRECATED) != 0 {
			continue
		}
		bits, _ := a.Mask.Size()
		list := lasting
		if ip.Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 { // the same bit says of IPv4 that there is an older one of its network
			list = temporary
		}
		list[a.LinkIndex] = append(list[a.LinkIndex], netip.PrefixFrom(ip, bits))
	}
	var out []lanInterface
	for _, l := range links {
		at := l.Attrs()
		i := lanInterface{index: at.Index, name: at.Name, flags: at.Flags, prefixes: lastingFirst(lasting[at.Index], temporary[at.Index])}
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
