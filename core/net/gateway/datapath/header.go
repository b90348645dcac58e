package datapath

import (
	"encoding/binary"
	"net/netip"

	"kith.dev/core/net/netplan"
)

// Header is how many bytes a packet of a pod has in front of it inside WireGuard: an IPv4 header (IP in IP, RFC 2003; before one of IPv6,
// with the protocol of RFC 4213).
//
// WireGuard tells peers by the addresses of what it carries, and two homes have the same ones. So the outer addresses are names of
// peers, handles: each side calls each of its peers by the range that they agreed on (netplan.Pair.Handle), and knows how it is called
// itself. A packet goes to the handle that its sender has for the receiver, and comes from the one that the receiver has for the
// sender; so each side's WireGuard finds the peer by what it knows itself.
//
// No kernel sees this header, and what WireGuard opens was sealed by the peer: there is no checksum in it.
const Header = 20

const (
	protoIPIP = 4
	protoIPv6 = 41
)

// headerOf is what is in front of packets to whom we call handle, and who calls us by the other name.
func headerOf(called, handle netip.Addr) (h [Header]byte) {
	h[0], h[8], h[9] = 0x45, 64, protoIPIP
	binary.BigEndian.PutUint32(h[atSource:], netplan.Number(called))
	binary.BigEndian.PutUint32(h[atDestination:], netplan.Number(handle))
	return h
}

// wrap writes the outer header into the first bytes of b.
func (tn *tunnel) wrap(b []byte) {
	copy(b, tn.header[:])
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
}

// unwrap gives the peer that sent b and what is inside; nil when it is nothing of ours. WireGuard has checked that the handle is
// the sender's.
func (t *Table) unwrap(b []byte) (*tunnel, []byte) {
	if len(b) < Header || b[0] != 0x45 || b[9] != protoIPIP && b[9] != protoIPv6 && b[9] != protoQuestion || fragmentOffset(b) != 0 {
		return nil, nil
	}
	return t.handles[binary.BigEndian.Uint32(b[atSource:])], b[Header:]
}
