package datapath

import "encoding/binary"

// Offsets in the IPv4 header (RFC 791).
const (
	atSource      = 12
	atDestination = 16
)

// Egress prepares a packet that leaves for a peer: its source becomes what that peer calls us. p is one whole IP
// packet with complete checksums; it is changed in place and keeps its length.
func (t *Table) Egress(p []byte) Verdict {
	ihl, v := header(p)
	if v != Pass {
		return v
	}
	src, dst := binary.BigEndian.Uint32(p[atSource:]), binary.BigEndian.Uint32(p[atDestination:])
	tn := t.find(dst)
	if tn == nil {
		return dropPeer
	}
	if src == t.self && t.ownDatagram(p, ihl) {
		return dropLoop
	}
	kind := icmpKind(p, ihl)
	if kind == icmpRedirect {
		return dropRedirect
	}
	if r := match(tn.out, src); r != nil {
		r.rewrite(p, ihl, atSource)
	} else if kind != icmpError || !tn.speakAsGateway(p, ihl, src) {
		return dropSource
	}
	if kind == icmpError {
		rewriteInner(p, ihl, atDestination, tn.out)
	}
	clampMSS(p, ihl, tn.mss)
	return Pass
}

// Leaves reports whether WireGuard sends on at once what Egress passed. For a peer without a session it keeps some until there
// is one, and drops what is too much.
func (t *Table) Leaves(p []byte) bool {
	tn := t.find(binary.BigEndian.Uint32(p[atDestination:]))
	return tn != nil && tn.up.Load()
}

// Ingress prepares a packet that arrived from a peer: its destination becomes what we call ourselves.
func (t *Table) Ingress(p []byte) Verdict {
	ihl, v := header(p)
	if v != Pass {
		return v
	}
	src, dst := binary.BigEndian.Uint32(p[atSource:]), binary.BigEndian.Uint32(p[atDestination:])
	tn := t.find(src)
	if tn == nil {
		return dropSender
	}
	r := match(tn.in, dst)
	if r == nil {
		return dropDestination
	}
	kind := icmpKind(p, ihl)
	if kind == icmpRedirect {
		return dropRedirect
	}
	if v := t.fence(p, ihl, r.apply(dst)); v != Pass {
		return v
	}
	r.rewrite(p, ihl, atDestination)
	if kind == icmpError {
		rewriteInner(p, ihl, atSource, tn.in)
	}
	clampMSS(p, ihl, tn.mss)
	return Pass
}

// header checks what all else relies on and returns the length of the IP header.
func header(p []byte) (ihl int, v Verdict) {
	if len(p) >= 1 && p[0]>>4 == 6 {
		return 0, dropIPv6
	}
	if len(p) < 20 || p[0]>>4 != 4 {
		return 0, Malformed
	}
	ihl = int(p[0]&15) * 4
	if ihl < 20 || ihl > len(p) || int(binary.BigEndian.Uint16(p[2:])) != len(p) {
		return 0, Malformed
	}
	if ihl > 20 && sourceRouted(p[20:ihl]) {
		return 0, Malformed
	}
	return ihl, Pass
}

// sourceRouted finds the IP options that name further hops: behind the tunnel they would lead a packet from a
// mapped address on to any other.
func sourceRouted(options []byte) bool {
	const end, nop, loose, strict = 0, 1, 131, 137
	for i := 0; i < len(options); {
		switch options[i] {
		case end:
			return false
		case nop:
			i++
			continue
		case loose, strict:
			return true
		}
		if i+1 >= len(options) || options[i+1] < 2 {
			return false
		}
		i += int(options[i+1])
	}
	return false
}

// rewrite moves the address at offset at of the header and brings the checksums along.
func (r *rule) rewrite(p []byte, ihl, at int) {
	if r.from == r.to { // no overlap with the peer: alias and real are the same
		return
	}
	binary.BigEndian.PutUint32(p[at:], r.apply(binary.BigEndian.Uint32(p[at:])))
	adjust(p, 10, r.delta)
	if sum, ok := transportSum(p, ihl); ok {
		adjustTransport(p, sum, r.delta)
	}
}

// ownDatagram recognises the tunnel's own outer packets, which a route may lead back into the tunnel.
func (t *Table) ownDatagram(p []byte, ihl int) bool {
	return p[9] == protoUDP && fragmentOffset(p) == 0 && len(p) >= ihl+8 && binary.BigEndian.Uint16(p[ihl:]) == t.port
}
