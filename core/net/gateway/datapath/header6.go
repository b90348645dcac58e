package datapath

import "encoding/binary"

// Offsets in the IPv6 header (RFC 8200).
const (
	atSource6      = 8
	atDestination6 = 24
	header6Len     = 40
)

// Headers between that of IPv6 and what it carries.
const (
	extHopByHop    = 0
	extRouting     = 43
	extFragment    = 44
	extDestination = 60
)

// maxExtensions bounds how many of them are looked behind. Hosts send two at most.
const maxExtensions = 4

// head6 is what is known of an IPv6 packet behind its addresses.
type head6 struct {
	at       int    // where what it carries begins
	proto    byte   // and what that is; of a later fragment: of the first header in the fragments
	fragment bool   // of a packet, in whatever number
	offset   uint16 // of a fragment, in units of 8 bytes; 0 for whole packets and first fragments
}

// readHeader6 checks what all else relies on. Refused are headers that lead a packet elsewhere or give it another source (routing headers,
// the home address option), and what each router on the way has to look at, which none is meant to here: a hop-by-hop header; so is a first
// fragment in which the headers do not end (RFC 7112).
func readHeader6(p []byte) (h head6, v Verdict) {
	if len(p) < header6Len || p[0]>>4 != 6 || int(binary.BigEndian.Uint16(p[4:])) != len(p)-header6Len {
		return h, Malformed
	}
	h.at, h.proto = header6Len, p[6]
	for range maxExtensions {
		rest := p[h.at:]
		switch h.proto {
		case extHopByHop, extRouting:
			return h, Malformed
		case extFragment:
			if len(rest) < 8 || h.fragment {
				return h, Malformed
			}
			h.at, h.proto, h.fragment, h.offset = h.at+8, rest[0], true, binary.BigEndian.Uint16(rest[2:])>>3
			if h.offset != 0 {
				return h, Pass // what follows is no header, whatever it looks like
			}
		case extDestination:
			if len(rest) < 8 {
				return h, Malformed
			}
			size := (int(rest[1]) + 1) * 8
			if size > len(rest) || !plainOptions(rest[2:size]) {
				return h, Malformed
			}
			h.at, h.proto = h.at+size, rest[0]
		case protoICMPv6:
			if len(rest) < 8 {
				return h, Malformed
			}
			return h, Pass
		default:
			return h, Pass
		}
	}
	return h, Malformed
}

// plainOptions reports whether options hold together, and none of them gives the packet another source (Mobile IPv6, RFC 6275).
func plainOptions(options []byte) bool {
	const pad1, homeAddress = 0, 201
	for len(options) > 0 {
		switch {
		case options[0] == pad1:
			options = options[1:]
			continue
		case options[0] == homeAddress || len(options) < 2 || int(options[1])+2 > len(options):
			return false
		}
		options = options[2+int(options[1]):]
	}
	return true
}

const protoICMPv6 = 58

// icmp6Kind sorts ICMPv6 messages (RFC 4443). Those that are not for a path but for the hosts of one link, or for multicast, are icmpRedirect:
// neighbour discovery among them, which a kernel believes when its hop limit says that no router was between, and the tunnel is none.
func icmp6Kind(p []byte, h head6) int {
	if h.proto != protoICMPv6 || h.offset != 0 {
		return icmpNone
	}
	switch p[h.at] {
	case 1, 2, 3, 4:
		return icmpError
	case 128, 129:
		return icmpQuery
	}
	return icmpRedirect
}
