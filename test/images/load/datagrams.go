package main

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// A packet of load datagrams, of which onTheWay may be unanswered: so many that nobody has to drop any. It fits a tunnel's MTU.
const (
	datagram = 1372
	onTheWay = 256
	countOff = 16 // load serve says after so many how many it has of a sender
)

// datagrams sends UDP packets until ctx ends, no more at a time than the other end keeps up with, and counts those that arrived. Gap is the
// longest time in which none did.
func datagrams(ctx context.Context, addr string) (*Stream, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var arrived atomic.Int64
	news := make(chan struct{}, 1)
	go func() {
		for b := make([]byte, 8); ; {
			n, err := c.Read(b)
			if err != nil && ctx.Err() != nil {
				return
			}
			if err != nil || n != len(b) {
				time.Sleep(tickEvery) // nobody there, yet
				continue
			}
			arrived.Store(int64(binary.BigEndian.Uint64(b)))
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}()
	s, b := &Stream{Addr: addr}, make([]byte, datagram)
	begin := time.Now()
	last, sent, lost := begin, int64(0), int64(0)
	for ctx.Err() == nil {
		if sent-lost-arrived.Load() < onTheWay {
			if _, err := c.Write(b); err != nil {
				time.Sleep(tickEvery)
				continue
			}
			sent++
			continue
		}
		select {
		case <-news:
			s.note(begin, last, time.Now())
			last = time.Now()
		case <-time.After(2 * tickEvery):
			lost = sent - arrived.Load()
		case <-ctx.Done():
		}
	}
	s.note(begin, last, time.Now())
	s.Bytes = arrived.Load() * datagram
	return s.finish(begin), nil
}

// countDatagrams tells each sender how many of its packets came.
func countDatagrams(c *net.UDPConn) {
	seen := map[netip.AddrPort]uint64{}
	for b := make([]byte, 1<<16); ; {
		_, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if seen[from]++; seen[from]%countOff == 0 {
			_, _ = c.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, seen[from]), from)
		}
	}
}
