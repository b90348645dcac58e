package mdns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/time/rate"
)

const mdnsPort = 5353

var (
	group4 = &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: mdnsPort}
	group6 = &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: mdnsPort}
)

// incoming is a packet that came to the group.
type incoming struct {
	link   linkKey // without zone
	sender netip.Addr
	packet []byte
}

// socket is the mDNS port in one address family. Given a group address, package net sets what lets it
// live beside avahi and systemd-resolved on the same port.
type socket struct {
	multicast
	group *net.UDPAddr
	v4    *ipv4.PacketConn // one of the two is multicast
	v6    *ipv6.PacketConn
	// most drops a flood before it costs more than reading it.
	most *rate.Limiter
}

type multicast interface {
	JoinGroup(at *net.Interface, group net.Addr) error
	LeaveGroup(at *net.Interface, group net.Addr) error
	Close() error
}

func openSocket(v6 bool) (*socket, error) {
	s := &socket{group: group4, most: rate.NewLimiter(1000, 2000)}
	network := "udp4"
	if v6 {
		s.group, network = group6, "udp6"
	}
	conn, err := net.ListenPacket(network, s.group.String())
	if err != nil {
		return nil, fmt.Errorf("open the mDNS port: %w", err)
	}
	// When fifty laptops answer at once, the usual buffer is just too small. Best effort.
	conn.(*net.UDPConn).SetReadBuffer(1 << 20)
	if v6 {
		s.v6 = ipv6.NewPacketConn(conn)
		s.multicast = s.v6
		err = errors.Join(s.v6.SetControlMessage(ipv6.FlagInterface|ipv6.FlagDst, true), s.v6.SetMulticastHopLimit(255))
	} else {
		s.v4 = ipv4.NewPacketConn(conn)
		s.multicast = s.v4
		err = errors.Join(s.v4.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true), s.v4.SetMulticastTTL(255))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("set up the mDNS port: %w", err)
	}
	return s, nil
}

func (s *socket) send(index int, packet []byte) (err error) {
	if s.v6 != nil {
		_, err = s.v6.WriteTo(packet, &ipv6.ControlMessage{IfIndex: index}, group6)
	} else {
		_, err = s.v4.WriteTo(packet, &ipv4.ControlMessage{IfIndex: index}, group4)
	}
	return err
}

// read passes on what was sent to the group from the mDNS port, until the socket is closed. What came by
// unicast may come from beyond the LAN; we never ask for such answers.
func (s *socket) read(packets chan<- incoming) error {
	buf := make([]byte, maxPacket+1)
	for failures := 0; ; {
		n, from, index, toGroup, err := s.readOne(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// An ICMP error may surface here once; a broken socket does so for ever.
			if failures++; failures == 10 {
				return fmt.Errorf("read the mDNS port: %w", err)
			}
			time.Sleep(100 * time.Millisecond)
			continue
		}
		failures = 0
		addr, ok := from.(*net.UDPAddr)
		if !ok || addr.Port != mdnsPort || !toGroup || n > maxPacket || !s.most.Allow() {
			continue
		}
		sender, _ := netip.AddrFromSlice(addr.IP)
		in := incoming{linkKey{index: index, v6: s.v6 != nil}, sender.Unmap(), append([]byte(nil), buf[:n]...)}
		select {
		case packets <- in:
		default: // we cannot keep up; who matters will say it again
		}
	}
}

func (s *socket) readOne(buf []byte) (n int, from net.Addr, index int, toGroup bool, err error) {
	if s.v6 != nil {
		n, cm, from, err := s.v6.ReadFrom(buf)
		if err != nil || cm == nil {
			return 0, nil, 0, false, err
		}
		return n, from, cm.IfIndex, cm.Dst.Equal(group6.IP), nil
	}
	n, cm, from, err := s.v4.ReadFrom(buf)
	if err != nil || cm == nil {
		return 0, nil, 0, false, err
	}
	return n, from, cm.IfIndex, cm.Dst.Equal(group4.IP), nil
}
