package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ensureLAN makes the LAN unless it is there: a process that does nothing but hold the namespace, and the bridge in it.
func (l *Lab) ensureLAN(ctx context.Context) error {
	lan := l.Laptop(lanName)
	if lan.booted() {
		return nil
	}
	return lan.switchOn(ctx, lan.spec(), func(pid int) error {
		h, err := netlinkIn(pid)
		if err != nil {
			return err
		}
		defer h.Close()
		return makeBridge(h, l.family)
	})
}

func makeBridge(h *netlink.Handle, lan Family) error {
	if err := upLoopback(h); err != nil {
		return err
	}
	// With snooping a bridge drops multicast to ports that no querier heard of, and with it mDNS.
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = bridgeName, defaultMTU
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := h.LinkAdd(br); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	if err := errors.Join(justGiven(h, br, lan), addAddresses(h, br, lan, router), h.LinkSetUp(br)); err != nil {
		return fmt.Errorf("make bridge: %w", err)
	}
	return nil
}

// justGiven keeps the kernel from giving an interface that is down a link-local address where it gets one from us.
func justGiven(h *netlink.Handle, dev netlink.Link, lan Family) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE, linux/if_link.h
	if lan != LinkLocal {
		return nil
	}
	return h.LinkSetIP6AddrGenMode(dev, none)
}

// addAddresses gives an interface those that a host has on the LAN.
func addAddresses(h *netlink.Handle, dev netlink.Link, lan Family, host byte) error {
	for _, network := range lan.networks() {
		a := hostIn(network, host)
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(network.Bits(), a.BitLen())}}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD // nobody else has it
		}
		if err := h.AddrAdd(dev, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	return nil
}

// plug connects the namespaces of process pid to the LAN as laptop p: a cable from port <name> to its eth0, an address
// and a default route. A cable left from before is replaced.
func (p *Laptop) plug(pid int, r record) error {
	lan := p.lab.Laptop(lanName).group.Init()
	if lan == 0 {
		return errors.New("the LAN is gone: run kith-lab up to make it again")
	}
	port, err := netlinkIn(lan)
	if err != nil {
		return err
	}
	defer port.Close()
	in, err := netlinkIn(pid)
	if err != nil {
		return err
	}
	defer in.Close()

	if old, err := port.LinkByName(p.name); err == nil {
		_ = port.LinkDel(old)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = p.name, r.Link.mtu()
	if err := port.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: device, PeerMTU: uint32(r.Link.mtu()),
		PeerHardwareAddr: hardwareAddress(r.Index), PeerNamespace: netlink.NsPid(pid),
	}); err != nil {
		return fmt.Errorf("connect to the LAN: %w", err)
	}
	cable, err := port.LinkByName(p.name)
	if err != nil {
		return fmt.Errorf("connect to the LAN: %w", err)
	}
	br, err := port.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("connect to the LAN: %w", err)
	}
	if err := errors.Join(port.LinkSetMaster(cable, br), port.LinkSetUp(cable)); err != nil {
		return fmt.Errorf("connect to the LAN: %w", err)
	}
	if err := upLoopback(in); err != nil {
		return err
	}
	if err := setAddress(in, p.lab.family, r.Address); err != nil {
		return err
	}
	return shape(port, in, p.name, r.Link)
}

// setAddress gives eth0 this address, on a dual-stack LAN the other of this host, too, and no others, by way of link down and up, as when
// changing Wi-Fi.
func setAddress(in *netlink.Handle, lan Family, a netip.Addr) error {
	eth, err := in.LinkByName(device)
	if err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	if err := in.LinkSetDown(eth); err != nil { // which takes those of IPv6
		return fmt.Errorf("set address: %w", err)
	}
	old, err := in.AddrList(eth, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	for _, o := range old {
		if err := in.AddrDel(eth, &o); err != nil {
			return fmt.Errorf("set address: remove %s: %w", o.IPNet, err)
		}
	}
	// Up first: one of IPv6 that comes before its link is waited for, whatever its flags say.
	if err := errors.Join(justGiven(in, eth, lan), in.LinkSetUp(eth), addAddresses(in, eth, lan, hostOf(a))); err != nil {
		return fmt.Errorf("set address %s: %w", a, err)
	}
	for _, network := range lan.networks() {
		if network == linkLocal {
			continue // it leads no further
		}
		if err := in.RouteReplace(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: hostIn(network, router).AsSlice()}); err != nil {
			return fmt.Errorf("set default route: %w", err)
		}
	}
	return nil
}

func upLoopback(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// netlinkIn talks to the kernel about the network namespace of a process.
func netlinkIn(pid int) (*netlink.Handle, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("open network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in the namespace of process %d: %w", pid, err)
	}
	return h, nil
}

// inNetwork runs a function in the network namespace of a process. What it opens stays there; it must not start
// goroutines that open more, as they would be outside.
func inNetwork(pid int, do func() error) error {
	return onOwnThread(func() error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return do()
	})
}
