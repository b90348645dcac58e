package wol

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Arming is whether a device wakes its machine by a magic packet.
type Arming string

// The armings.
const (
	Armed    Arming = "armed"
	NotArmed Arming = "not armed" // it could be
	Cannot   Arming = "cannot"    // its driver knows no Wake on LAN by a magic packet
	Unknown  Arming = "unknown"   // of Wi-Fi, and where the system does not say
)

// Device is a network device of this machine.
type Device struct {
	Name     string
	MAC      net.HardwareAddr
	Networks []netip.Prefix // of IPv4, masked
	Arming   Arming
	WiFi     bool
	addrs    []netip.Addr   // its own, one for each network
	six      []netip.Prefix // networks of IPv6
}

// Reaches reports whether an address is on the link of the device, by what its own addresses say.
func (d Device) Reaches(a netip.Addr) bool {
	if a = a.Unmap(); a.IsLinkLocalUnicast() && a.Is6() {
		return a.Zone() == d.Name
	}
	on := func(n netip.Prefix) bool { return n.Contains(a) }
	return slices.ContainsFunc(d.Networks, on) || slices.ContainsFunc(d.six, on)
}

// Devices are those of these names that are up and have a network of IPv4 with a broadcast address.
func Devices(names []string) (list []Device, err error) {
	for _, name := range names {
		n, err := net.InterfaceByName(name)
		if err != nil {
			continue // gone meanwhile
		}
		addrs, err := n.Addrs()
		if err != nil || len(n.HardwareAddr) != 6 || n.Flags&net.FlagUp == 0 || n.Flags&net.FlagBroadcast == 0 {
			continue
		}
		d := Device{Name: name, MAC: n.HardwareAddr}
		for _, a := range addrs {
			ipNet, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, _ := netip.AddrFromSlice(ipNet.IP)
			ip = ip.Unmap()
			bits, _ := ipNet.Mask.Size()
			if ip.Is6() && bits > 0 && !ip.IsLinkLocalUnicast() {
				d.six = append(d.six, netip.PrefixFrom(ip, bits).Masked())
			}
			if p := netip.PrefixFrom(ip, bits).Masked(); ip.Is4() && bits >= 8 && bits <= 30 && !slices.Contains(d.Networks, p) {
				d.Networks, d.addrs = append(d.Networks, p), append(d.addrs, ip)
			}
		}
		if len(d.Networks) > 0 {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, arming(list)
}

// Port is where magic packets go by UDP: "discard", at which nobody answers.
const Port = 9

// Packet is the magic packet for a device: six bytes of ones, and sixteen times its address.
func Packet(mac net.HardwareAddr) []byte {
	return append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16)...)
}

// A series is so many packets, with such a pause between two: one may be lost.
const (
	series = 3
	pause  = time.Second
)

// ErrElsewhere says that this machine is on none of the networks.
var ErrElsewhere = errors.New("this machine is not on the network of the one that is to be woken")

// Here reports whether one of the devices is on one of the networks.
func Here(devices []Device, networks []netip.Prefix) bool {
	return slices.ContainsFunc(devices, func(d Device) bool {
		return slices.ContainsFunc(d.Networks, func(n netip.Prefix) bool { return slices.Contains(networks, n) })
	})
}

// Send sends a series to a device of another machine, from those devices of this one that are on one of the networks, to no other network. An error says
// that no packet was sent: ErrElsewhere when none of the devices is on one.
func Send(ctx context.Context, from []Device, mac net.HardwareAddr, networks []netip.Prefix) error {
	if !Here(from, networks) {
		return ErrElsewhere
	}
	sent, failed := false, error(nil)
	for i := range series {
		if i > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				if sent {
					return nil
				}
				return ctx.Err()
			}
		}
		for _, d := range from {
			for k, n := range d.Networks {
				if !slices.Contains(networks, n) {
					continue
				}
				if err := broadcast(ctx, d, d.addrs[k], n, Packet(mac)); err != nil {
					failed = fmt.Errorf("send a magic packet by %s: %w", d.Name, err)
				} else {
					sent = true
				}
			}
		}
	}
	if sent {
		return nil
	}
	return failed
}

func broadcast(ctx context.Context, by Device, from netip.Addr, to netip.Prefix, packet []byte) error {
	dialer := net.Dialer{Control: byDevice(by.Name), LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	conn, err := dialer.DialContext(ctx, "udp4", netip.AddrPortFrom(Broadcast(to), Port).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(packet)
	return err
}

// Broadcast is the address of all on a network of IPv4.
func Broadcast(n netip.Prefix) netip.Addr {
	last := n.Masked().Addr().As4()
	for bit := n.Bits(); bit < 32; bit++ {
		last[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(last)
}
