package datapath

import (
	"encoding/binary"
	"slices"

	"kith.dev/core/net/netplan"
)

// egress6 is Egress for a packet of IPv6.
func (t *Table) egress6(b, p []byte) (v Verdict, up bool) {
	if len(t.six.spans) == 0 {
		return dropIPv6, false
	}
	h, v := readHeader6(p)
	if v != Pass {
		return v, false
	}
	src, dst := addr6At(p, atSource6), addr6At(p, atDestination6)
	if src == t.six.self && t.ownDatagram6(p, h) {
		return dropLoop, false
	}
	if icmp6Kind(p, h) == icmpRedirect {
		return dropNeighbour, false
	}
	tn, whose, v := t.leaving6(p, h, src, dst)
	if v != Pass {
		return v, false
	}
	tn.clamp6(p, h)
	if up = tn.up.Load(); up {
		tn.count(whose, p)
	}
	tn.wrap6(b)
	return Pass, up
}

// leaving6 finds the peer a packet goes to, and whose guests it is of or for, as leaving does.
func (t *Table) leaving6(p []byte, h head6, src, dst addr6) (to *tunnel, whose kind, v Verdict) {
	if from := t.six.find(src); from != nil && from.kind == here {
		if !within6(from.to.six.space, dst) {
			return nil, here, dropPeer
		}
		return from.to.towards6(dst, len(p)), here, Pass
	}
	if to = t.six.guestAt(dst); to == nil {
		return nil, there, dropPeer
	}
	if !within6(t.six.pods, src) && t.six.guestAt(src) == nil && !t.speakAsGateway6(p, h, src) {
		return nil, there, dropSource
	}
	return to, there, Pass
}

// ingress6 is Ingress for what is inside a header of protoIPv6.
func (t *Table) ingress6(tn *tunnel, b, p []byte) (v Verdict, onward bool) {
	if len(t.six.spans) == 0 {
		return dropIPv6, false
	}
	h, v := readHeader6(p)
	if v != Pass {
		return v, false
	}
	if icmp6Kind(p, h) == icmpRedirect {
		return dropNeighbour, false
	}
	next, v := t.arriving6(tn, p, h, addr6At(p, atSource6), addr6At(p, atDestination6))
	if v != Pass {
		return v, false
	}
	tn.clamp6(p, h)
	if next == nil || !next.onward6(b, p, h) {
		return Pass, false
	}
	next.count(there, p)
	return Pass, true
}

// arriving6 decides whether a packet of a peer may come in, as arriving does.
func (t *Table) arriving6(tn *tunnel, p []byte, h head6, src, dst addr6) (onward *tunnel, v Verdict) {
	to := t.six.find(dst)
	if d := tn.direct; d != nil {
		if !d.six || !d.guests6.has(src) {
			return nil, dropSender
		}
		if to == nil || to.kind != here || to.to != d.home {
			return nil, dropDestination
		}
		return nil, t.fence6(p, h, dst, false)
	}
	if to != nil {
		switch {
		case to.kind == here && to.to == tn:
			if !within6(tn.six.space, src) {
				return nil, dropSender
			}
			v := t.fence6(p, h, dst, false)
			if v == Pass {
				tn.count(here, p)
			}
			return nil, v
		case to.kind == there && t.six.guestAt(src) == tn:
			tn.count(there, p)
			return to.to, Pass
		case to.kind == there:
			return nil, dropSender
		}
		return nil, dropDestination
	}
	switch {
	case t.six.guestAt(src) != tn:
		return nil, dropSender
	case !within6(t.six.pods, dst):
		return nil, dropDestination
	}
	if v = t.fence6(p, h, dst, true); v == Pass {
		tn.count(there, p)
	}
	return nil, v
}

// fence6 is fence for IPv6.
func (t *Table) fence6(p []byte, h head6, real addr6, nodePorts bool) Verdict {
	host := within6(t.six.host, real)
	if !host && len(t.six.lan) != 0 && within6(t.six.lan, real) {
		return dropDestination
	}
	if !host {
		return Pass
	}
	switch {
	case h.offset > 1:
		return Pass // without a first fragment it becomes nothing
	case h.offset == 1:
		return dropHost
	}
	l4 := p[h.at:]
	switch {
	case h.proto == protoICMPv6:
		return Pass
	case h.proto == protoTCP && len(l4) >= 14:
		const syn, ack = 2, 16
		port := binary.BigEndian.Uint16(l4[2:])
		if l4[13]&(syn|ack) == syn && !slices.Contains(t.open, port) && !(nodePorts && port >= netplan.FirstNodePort && port <= netplan.LastNodePort) {
			return dropHost
		}
		return Pass
	case h.proto == protoUDP && len(l4) >= 8:
		if binary.BigEndian.Uint16(l4[2:]) >= firstUnprivileged {
			return Pass
		}
	}
	return dropHost
}

// onward6 is onward for IPv6, whose header has no checksum.
func (tn *tunnel) onward6(b, p []byte, h head6) bool {
	const atHopLimit = 7
	if len(p) > tn.six.mtu || p[atHopLimit] <= 1 || !tn.up.Load() {
		return false
	}
	p[atHopLimit]--
	tn.clamp6(p, h)
	tn.wrap6(b)
	return true
}

// clamp6 is clampMSS for IPv6.
func (tn *tunnel) clamp6(p []byte, h head6) {
	if h.proto == protoTCP && h.offset == 0 && len(p) >= h.at+24 {
		clampSegment(p[h.at:], tn.six.mss)
	}
}

// wrap6 is wrap for IPv6.
func (tn *tunnel) wrap6(b []byte) {
	tn.wrap(b)
	b[9] = protoIPv6
}

// speakAsGateway6 is speakAsGateway for IPv6, in which ICMP's checksum covers the addresses.
func (t *Table) speakAsGateway6(p []byte, h head6, src addr6) bool {
	if icmp6Kind(p, h) != icmpError || len(p) < h.at+8+header6Len {
		return false
	}
	q := p[h.at+8:]
	if q[0]>>4 != 6 || !within6(t.six.pods, addr6At(q, atDestination6)) {
		return false
	}
	binary.BigEndian.PutUint64(p[atSource6:], t.six.self.hi)
	binary.BigEndian.PutUint64(p[atSource6+8:], t.six.self.lo)
	adjust(p, h.at+2, delta6(src, t.six.self))
	return true
}

// ownDatagram6 is ownDatagram for IPv6.
func (t *Table) ownDatagram6(p []byte, h head6) bool {
	return h.proto == protoUDP && h.offset == 0 && len(p) >= h.at+8 && binary.BigEndian.Uint16(p[h.at:]) == t.port
}
