package datapath

import "encoding/binary"

// Offsets in the IPv4 header (RFC 791).
const (
	atSource      = 12
	atDestination = 16
)

// Egress prepares a packet that leaves for a peer. b is one whole IP packet with complete checksums behind Header free bytes, which
// the header that WireGuard reads is written into. What is dropped is not changed. up reports whether WireGuard sends it on at once: for a
// peer without a session it keeps some until there is one, and drops what is too much.
//
// A guest's packets go to its home, whatever they ask for: its addresses are read as home would. Only to home's guests at a provider to which home
// introduced this one they may go directly. All others go to who has the
// destination among its guests.
func (t *Table) Egress(b []byte) (v Verdict, up bool) {
	p := b[min(Header, len(b)):]
	if len(p) > 0 && p[0]>>4 == 6 {
		return t.egress6(b, p)
	}
	ihl, v := header(p)
	if v != Pass {
		return v, false
	}
	src, dst := binary.BigEndian.Uint32(p[atSource:]), binary.BigEndian.Uint32(p[atDestination:])
	if src == t.self && t.ownDatagram(p, ihl) {
		return dropLoop, false
	}
	if icmpKind(p, ihl) == icmpRedirect {
		return dropRedirect, false
	}
	tn, whose, v := t.leaving(p, ihl, src, dst)
	if v != Pass {
		return v, false
	}
	clampMSS(p, ihl, tn.mss)
	if up = tn.up.Load(); up { // most of what waits for a session is never sent
		tn.count(whose, p)
	}
	tn.wrap(b)
	return Pass, up
}

// leaving finds the peer a packet goes to, and gives the packet the addresses it has there. whose are the guests that it is of or for: those of that
// peer here, or ours there.
func (t *Table) leaving(p []byte, ihl int, src, dst uint32) (to *tunnel, whose kind, v Verdict) {
	if from := t.find(src); from != nil && from.kind == here && from.to.guests == nil {
		if from.to.relays { // to one that went on, of the same home
			if to := t.find(dst); to != nil && to.kind == relayed && to.home == from.to && to.to != nil {
				return to.to, there, Pass
			}
		}
		if !within(from.to.space, dst) {
			return nil, here, dropPeer
		}
		return from.to.towards(dst, len(p)), here, Pass
	}
	at := t.find(dst)
	if at == nil || at.kind == here || at.kind == relayed {
		return nil, there, dropPeer
	}
	if !within(t.pods, src) && !(at.kind == there && t.guestAt(src) != nil) {
		if !t.speakAsGateway(p, ihl, src) {
			return nil, there, dropSource
		}
		src = t.self
	}
	if at.kind == alias {
		guests, home := &at.to.backward, match(at.to.real, dst)
		if at.to.guests == nil {
			guests = at.to.sharers[src]
		}
		if guests == nil || home == nil || !guests.has(src) {
			return nil, there, dropSource
		}
		move(p, ihl, guests, home)
		return at.to, here, Pass
	}
	return at.to, there, Pass
}

// guestAt gives the peer at which an address is one of our guests', or nil.
func (t *Table) guestAt(a uint32) *tunnel {
	if s := t.find(a); s != nil && s.kind == there {
		return s.to
	}
	return nil
}

// Ingress checks a packet that arrived from a peer, as WireGuard has it. What is for the kernel is behind Header. onward: it is for one of our
// guests at another peer, and is ready to leave for it, as after Egress; or it is an answer to a question of the gateway's.
func (t *Table) Ingress(b []byte) (v Verdict, onward bool) {
	tn, p := t.unwrap(b)
	if tn == nil {
		return dropSender, false
	}
	switch b[9] {
	case protoQuestion:
		return tn.question(b)
	case protoIPv6:
		return t.ingress6(tn, b, p)
	}
	ihl, v := header(p)
	if v != Pass {
		return v, false
	}
	if icmpKind(p, ihl) == icmpRedirect {
		return dropRedirect, false
	}
	src, dst := binary.BigEndian.Uint32(p[atSource:]), binary.BigEndian.Uint32(p[atDestination:])
	if next, home, v, is := t.relaying(tn, p, ihl, src, dst); is {
		if v != Pass {
			return v, false
		}
		if next == nil { // to a guest here of the same home, which sees nothing of it
			tn.count(there, p)
			return Pass, false
		}
		clampMSS(p, ihl, tn.mss)
		if !next.onward(b, p, ihl) { // the kernel would read its addresses as ours
			return dropPeer, false
		}
		for _, side := range [...]*tunnel{tn, next} {
			side.count(sideOf(side, home), p)
		}
		return Pass, true
	}
	next, v := t.arriving(tn, p, ihl, src, dst)
	if v != Pass {
		return v, false
	}
	clampMSS(p, ihl, tn.mss)
	if next == nil || !next.onward(b, p, ihl) {
		return Pass, false
	}
	next.count(there, p)
	return Pass, true
}

// sideOf says whose guests are meant at a side of what is relayed: here those of the home, there our own.
func sideOf(side, home *tunnel) kind {
	if side == home {
		return here
	}
	return there
}

// relaying decides about packets of and for guests that went on from here, in both directions, and reports whether it is one: they have their home's
// addresses, which mean something else here, so but for those to and from other guests of that home here the kernel never sees them. next is where
// it goes on to; nil: to such a guest. home is whose guests they are. Those at another provider may have sent it past home: it is no news to home, and
// counts at next alone.
func (t *Table) relaying(tn *tunnel, p []byte, ihl int, src, dst uint32) (next, home *tunnel, v Verdict, is bool) {
	if !t.relays {
		return nil, nil, Pass, false
	}
	if d := tn.direct; d != nil {
		if to := t.find(dst); d.guests.has(src) && to != nil && to.kind == relayed && to.home == d.home && to.to != nil {
			return to.to, d.home, Pass, true
		}
		return nil, nil, Pass, false
	}
	if tn.relays {
		if to := t.find(dst); to != nil && to.kind == relayed && to.home == tn {
			switch {
			case !within(tn.space, src):
				return nil, tn, dropSender, true
			case to.to == nil:
				return nil, tn, dropPeer, true
			}
			return to.to, tn, Pass, true
		}
	}
	from := t.find(src)
	if from == nil || from.kind != relayed || from.to != tn || within(tn.space, src) {
		return nil, nil, Pass, false
	}
	switch to := t.find(dst); {
	case to != nil && to.kind == here && to.to == from.home:
		return nil, from.home, t.fence(p, ihl, dst, false), true
	case to != nil && to.kind == relayed && to.home == from.home:
		if to.to == nil || to.to == tn {
			return nil, from.home, dropPeer, true
		}
		return to.to, from.home, Pass, true
	case within(from.home.space, dst):
		return from.home, from.home, Pass, true
	}
	return nil, from.home, dropDestination, true
}

// arriving decides whether a packet of a peer may come in: a home speaks to its guests here, for all that is in its address space; our own
// guests at the peer speak to our pods, to this host as far as it is open, and to our guests elsewhere, at the peer that is given then. By a direct
// way come packets from that home's guests there to those here, and nothing else.
func (t *Table) arriving(tn *tunnel, p []byte, ihl int, src, dst uint32) (onward *tunnel, v Verdict) {
	to := t.find(dst)
	if d := tn.direct; d != nil {
		if !d.guests.has(src) {
			return nil, dropSender
		}
		if to == nil || to.kind != here || to.to != d.home {
			return nil, dropDestination
		}
		return nil, t.fence(p, ihl, dst, false)
	}
	if to != nil {
		switch {
		case to.kind == here && (to.to == tn || to.to.by == tn):
			v := t.toGuest(to.to, p, ihl, src, dst)
			if v == Pass {
				to.to.count(here, p)
			}
			return nil, v
		case to.kind == there && t.guestAt(src) == tn:
			tn.count(there, p)
			return to.to, Pass
		case to.kind == there:
			return nil, dropSender
		}
		return nil, dropDestination
	}
	switch {
	case t.guestAt(src) != tn:
		return nil, dropSender
	case !within(t.pods, dst):
		return nil, dropDestination
	}
	if v = t.fence(p, ihl, dst, true); v == Pass {
		tn.count(there, p)
	}
	return nil, v
}

// onward does what a router does with a packet for the next peer, and what Egress does. It reports whether it could: what the path does not
// fit, or has come too far, is for the kernel, which says so to the sender.
func (tn *tunnel) onward(b, p []byte, ihl int) bool {
	const atTTL = 8
	if len(p) > tn.mtu || p[atTTL] <= 1 || !tn.up.Load() {
		return false
	}
	was := binary.BigEndian.Uint16(p[atTTL:])
	p[atTTL]--
	adjust(p, 10, deltaAt(atTTL, was, binary.BigEndian.Uint16(p[atTTL:])))
	clampMSS(p, ihl, tn.mss)
	tn.wrap(b)
	return true
}

// toGuest: what home sends to its guests here. Of the range, some addresses are this host's, as far as guests see it, and some those of pods that
// are shared with home.
func (t *Table) toGuest(tn *tunnel, p []byte, ihl int, src, dst uint32) Verdict {
	if !within(tn.space, src) {
		return dropSender
	}
	to := tn.guests
	if shared := tn.shared[dst]; shared != nil {
		to = shared
	}
	if to == nil {
		return t.fence(p, ihl, dst, false)
	}
	home := match(tn.aliases, src)
	if home == nil {
		return dropSender
	}
	if v := t.fence(p, ihl, to.apply(dst), false); v != Pass {
		return v
	}
	move(p, ihl, home, to)
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

// ownDatagram recognises the tunnel's own outer packets, which a route may lead back into the tunnel.
func (t *Table) ownDatagram(p []byte, ihl int) bool {
	return p[9] == protoUDP && fragmentOffset(p) == 0 && len(p) >= ihl+8 && binary.BigEndian.Uint16(p[ihl:]) == t.port
}
