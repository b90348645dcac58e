package datapath

import (
	"encoding/binary"
	"math/bits"
)

// Checksums are updated, never recomputed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3). Where several words
// change at once, "~m + m'" summed over them is one 16-bit delta, which for a prefix is the same for each packet.

// fold brings a sum of 16-bit words into 16 bits of one's complement arithmetic.
func fold(s uint32) uint16 {
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return uint16(s)
}

// deltaOf is the change of the sum when the address from becomes to.
func deltaOf(from, to uint32) uint16 {
	return fold(uint32(^uint16(from>>16)) + uint32(^uint16(from)) + to>>16 + to&0xffff)
}

// delta16 is the change of the sum when one aligned word changes.
func delta16(from, to uint16) uint16 { return fold(uint32(^from) + uint32(to)) }

// deltaAt is delta16 for a word that begins at offset at of the summed data: at an odd offset its bytes belong to
// two words, each in the other half.
func deltaAt(at int, from, to uint16) uint16 {
	d := delta16(from, to)
	if at&1 == 1 {
		d = bits.ReverseBytes16(d)
	}
	return d
}

// adjust applies a delta to the checksum at b[at:].
func adjust(b []byte, at int, delta uint16) {
	c := binary.BigEndian.Uint16(b[at:])
	binary.BigEndian.PutUint16(b[at:], ^fold(uint32(^c)+uint32(delta)))
}

// adjustUDP is adjust for UDP over IPv4, where 0 means "no checksum" and a sum of 0 is sent as 0xffff (RFC 768).
func adjustUDP(b []byte, at int, delta uint16) {
	c := binary.BigEndian.Uint16(b[at:])
	if c == 0 {
		return
	}
	if c = ^fold(uint32(^c) + uint32(delta)); c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], c)
}

// Transport protocols whose checksum covers the addresses. ICMP, SCTP, ESP and GRE have none of that kind.
const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoUDPLite = 136
)

// transportSum finds the transport checksum that an address change in header h touches. h starts at the IP
// header, which is ihl bytes long. False: none there, a later fragment, or cut off before it.
func transportSum(h []byte, ihl int) (at int, ok bool) {
	if fragmentOffset(h) != 0 {
		return 0, false
	}
	switch h[9] {
	case protoTCP:
		at = ihl + 16
	case protoUDP, protoUDPLite, protoDCCP:
		at = ihl + 6
	default:
		return 0, false
	}
	return at, at+2 <= len(h)
}

// adjustTransport applies delta to the checksum transportSum found.
func adjustTransport(h []byte, at int, delta uint16) {
	if h[9] == protoUDP {
		adjustUDP(h, at, delta)
	} else {
		adjust(h, at, delta)
	}
}

// fragmentOffset is in units of 8 bytes; 0 for whole packets and first fragments.
func fragmentOffset(h []byte) uint16 { return binary.BigEndian.Uint16(h[6:]) & 0x1fff }
