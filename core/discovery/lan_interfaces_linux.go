package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// listInterfaces reads all interfaces. Addresses that are not usable yet (duplicate address detection) are
// left out; when they become usable, there is another netlink event.
func listInterfaces() (list []lanInterface, err error) {
	for range 5 { // the kernel breaks a list off when something changes under it, which is just when we look
		if list, err = listInterfacesOnce(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
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

// watchInterfaces signals on changed whenever a link or an address may have changed, until ctx ends or
// netlink fails.
func watchInterfaces(ctx context.Context, changed chan<- struct{}) error {
	failed := make(chan error, 2)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	links, addrs := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("watch interfaces: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	for {
		var ok bool
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("watch interfaces: %w", err)
		case _, ok = <-links:
		case _, ok = <-addrs:
		}
		if !ok {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch interfaces: netlink closed")
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
