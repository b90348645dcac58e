package datapath

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"sort"

	"kith.dev/core/net/netplan"
)

// table6 is what the data path knows of IPv6, by the same rules. Ranges for guests are all as long as half an address
// (netplan.GuestBits6), so they are found by that; there are no aliases.
type table6 struct {
	spans []span6 // sorted
	pods  []zone6 // our own ranges
	self  addr6   // our own address on the tunnel device
	host  []zone6 // addresses of this host that a peer's packet can have
	lan   []zone6 // parts of our ranges that are really a network this host is attached to
}

// span6 is a range for guests.
type span6 struct {
	half uint64
	to   *tunnel
	kind kind // there or here
}

// tunnel6 is what of a peer is of IPv6.
type tunnel6 struct {
	space []zone6 // the addresses it may speak for towards its guests here, and that these may ask for
	mtu   int     // as of IPv4, but never less than any IPv6 host may send: then what is around it is fragmented, TCP aside (mss)
	mss   uint16
}

// LeastMTU6 is what each link must carry of IPv6 (RFC 8200, section 5).
const LeastMTU6 = 1280

// addr6 is an IPv6 address.
type addr6 struct{ hi, lo uint64 }

func addr6At(p []byte, at int) addr6 {
	return addr6{binary.BigEndian.Uint64(p[at:]), binary.BigEndian.Uint64(p[at+8:])}
}

func addr6Of(a netip.Addr) addr6 { b := a.As16(); return addr6At(b[:], 0) }

// zone6 is a range of addresses.
type zone6 struct{ net, mask addr6 }

func zone6Of(p netip.Prefix) zone6 {
	m := addr6{^uint64(0), ^uint64(0)}
	if p.Bits() <= 64 {
		m = addr6{m.hi << (64 - p.Bits()), 0}
	} else {
		m.lo <<= 128 - p.Bits()
	}
	return zone6{addr6Of(p.Masked().Addr()), m}
}

func (z *zone6) has(a addr6) bool { return a.hi&z.mask.hi == z.net.hi && a.lo&z.mask.lo == z.net.lo }

func within6(zs []zone6, a addr6) bool {
	for i := range zs {
		if zs[i].has(a) {
			return true
		}
	}
	return false
}

// fill makes it from what New was given, whose tunnels there are already.
func (t *table6) fill(h Host, peers []Peer, tunnels map[uint32]*tunnel) {
	if !h.Self6.IsValid() {
		return
	}
	t.self = addr6Of(h.Self6)
	reached := slices.Clone(h.Pods)
	for _, p := range peers {
		tn := tunnels[netplan.Number(p.Handle())]
		tn.six.mtu = max(p.MTU, LeastMTU6)
		tn.six.mss = uint16(p.MTU - 60) // IPv6 and TCP without options: a segment, unlike a packet, may be so small that nothing is fragmented
		t.add(p.IPv6.There, tn, there)
		t.add(p.IPv6.Here, tn, here)
		for _, r := range p.IPv6.Space {
			tn.six.space = append(tn.six.space, zone6Of(r))
		}
		if p.IPv6.Here.IsValid() {
			reached = append(reached, p.IPv6.Here)
		}
	}
	sort.Slice(t.spans, func(i, j int) bool { return t.spans[i].half < t.spans[j].half })
	t.pods, t.host, t.lan = zones6(h.Pods, h.Pods), zones6(h.Own, reached), zones6(h.LAN, h.Pods)
}

func (t *table6) add(p netip.Prefix, to *tunnel, k kind) {
	if p.IsValid() {
		t.spans = append(t.spans, span6{addr6Of(p.Addr()).hi, to, k})
	}
}

// zones6 keeps the prefixes that a peer's packet can reach at all.
func zones6(ps, reached []netip.Prefix) (out []zone6) {
	for _, p := range ps {
		if !p.Addr().Is6() || !slices.ContainsFunc(reached, p.Overlaps) {
			continue
		}
		if z := zone6Of(p); !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// find returns the range that an address is in, or nil.
func (t *table6) find(a addr6) *span6 {
	lo, hi := 0, len(t.spans)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); t.spans[mid].half < a.hi {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(t.spans) && t.spans[lo].half == a.hi {
		return &t.spans[lo]
	}
	return nil
}

// guestAt gives the peer at which an address is one of our guests', or nil.
func (t *table6) guestAt(a addr6) *tunnel {
	if s := t.find(a); s != nil && s.kind == there {
		return s.to
	}
	return nil
}

// delta6 is the change of the sum when the address from becomes to.
func delta6(from, to addr6) uint16 {
	var sum uint64
	for _, half := range [...]uint64{^from.hi, ^from.lo, to.hi, to.lo} {
		var carry uint64
		sum, carry = bits.Add64(sum, half, 0)
		sum += carry
	}
	sum = sum&0xffffffff + sum>>32
	sum = sum&0xffffffff + sum>>32
	return fold(uint32(sum))
}
