package netplan

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Number is an IPv4 address as the data path has it.
func Number(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

// Mask has a one for each bit of an IPv4 address that is the range's.
func Mask(p netip.Prefix) uint32 { return ^uint32(0) << (32 - p.Bits()) } // a shift by 32 gives 0 in Go

func addrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// nth address of a range; the zero value of what is none.
func nth(p netip.Prefix, n uint32) netip.Addr {
	switch {
	case !p.IsValid():
		return netip.Addr{}
	case p.Addr().Is4():
		return addrOf(Number(p.Masked().Addr()) + n)
	}
	b := p.Masked().Addr().As16()
	low := b[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+uint64(n))
	return netip.AddrFrom16(b)
}

// Last address of a range, of IPv4 the broadcast address of a network; the zero value of what is none.
func Last(p netip.Prefix) netip.Addr {
	switch {
	case !p.IsValid():
		return netip.Addr{}
	case p.Addr().Is4():
		return addrOf(Number(p.Addr()) | ^Mask(p))
	}
	b := p.Addr().As16()
	for i := p.Bits(); i < 128; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(b)
}

// Span is all addresses from one up to the one before another, which is the zero value where the space ends.
type Span struct{ From, Behind netip.Addr }

// Spans are the addresses of IPv4 ranges, sorted; what overlaps or touches is one. Others are left out.
func Spans(ranges []netip.Prefix) []Span { return spans(ranges, netip.Addr.Is4) }

// Spans6 is Spans of IPv6.
func Spans6(ranges []netip.Prefix) []Span { return spans(ranges, netip.Addr.Is6) }

func spans(ranges []netip.Prefix, of func(netip.Addr) bool) (out []Span) {
	ranges = slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return !p.IsValid() || !of(p.Addr()) })
	slices.SortFunc(ranges, func(a, b netip.Prefix) int { return a.Masked().Addr().Compare(b.Masked().Addr()) })
	for _, p := range ranges {
		is := Span{p.Masked().Addr(), Last(p).Next()}
		if len(out) == 0 {
			out = append(out, is)
			continue
		}
		switch last := &out[len(out)-1]; {
		case !last.Behind.IsValid():
		case last.Behind.Less(is.From):
			out = append(out, is)
		case !is.Behind.IsValid() || last.Behind.Less(is.Behind):
			last.Behind = is.Behind
		}
	}
	return out
}
