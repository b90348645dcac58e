package datapath

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// sum is the plain one's complement sum of RFC 1071, written for clarity and used only to check the data path.
func sum(b []byte, start uint32) uint16 {
	s := uint64(start)
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func pseudo(p []byte, length int) uint32 {
	return uint32(sum(p[12:20], 0)) + uint32(p[9]) + uint32(length)
}

// transportAt is where a packet's transport checksum lies and whether the addresses are part of it.
func transportAt(p []byte, ihl int) (at int, addresses, ok bool) {
	if binary.BigEndian.Uint16(p[6:])&0x3fff != 0 { // a fragment has no checksum of its own
		return 0, false, false
	}
	switch p[9] {
	case protoTCP:
		at, addresses = ihl+16, true
		ok = len(p) >= ihl+20
	case protoUDP, protoDCCP, protoUDPLite:
		at, addresses = ihl+6, true
		ok = len(p) >= ihl+8
	case protoICMP:
		at = ihl + 2
		ok = len(p) >= ihl+4
	}
	return at, addresses, ok
}

func transportSumOf(p []byte, ihl int, addresses bool) uint16 {
	if addresses {
		return sum(p[ihl:], pseudo(p, len(p)-ihl))
	}
	return sum(p[ihl:], 0)
}

// seal makes length and checksums of a packet right.
func seal(p []byte) {
	ihl := int(p[0]&15) * 4
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], ^sum(p[:ihl], 0))
	at, addresses, ok := transportAt(p, ihl)
	if !ok {
		return
	}
	p[at], p[at+1] = 0, 0
	c := ^transportSumOf(p, ihl, addresses)
	if c == 0 && p[9] == protoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(p[at:], c)
}

// sealed says what is wrong with the checksums of a packet, or nothing.
func sealed(p []byte) string {
	ihl := int(p[0]&15) * 4
	if sum(p[:ihl], 0) != 0xffff {
		return "IP header checksum"
	}
	at, addresses, ok := transportAt(p, ihl)
	if !ok || p[9] == protoUDP && p[at] == 0 && p[at+1] == 0 {
		return ""
	}
	if transportSumOf(p, ihl, addresses) != 0xffff {
		return "transport checksum"
	}
	return ""
}

// ipv4Packet builds a packet with all checksums right.
func ipv4Packet(src, dst string, proto byte, payload []byte) []byte {
	p := make([]byte, 20, 20+len(payload))
	p[0], p[8], p[9] = 0x45, 64, proto
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(p[12:], s[:])
	copy(p[16:], d[:])
	p = append(p, payload...)
	seal(p)
	return p
}

func udpSegment(from, to int, data []byte) []byte {
	b := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(b, uint16(from))
	binary.BigEndian.PutUint16(b[2:], uint16(to))
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
	return append(b, data...)
}

var podGateway = netip.MustParseAddr("10.42.255.2")

// up is that of a tunnel that works.
func up() *atomic.Bool {
	b := new(atomic.Bool)
	b.Store(true)
	return b
}
