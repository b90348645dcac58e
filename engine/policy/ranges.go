package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"kith.dev/core/netplan"
)

// span is from its first number to its last.
type span struct{ first, last uint32 }

// join sorts spans, and makes one of those that overlap or touch: the kernel refuses such.
func join(list []span) (out []span) {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for _, s := range list {
		if n := len(out); n > 0 && uint64(s.first) <= uint64(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, s.last)
			continue
		}
		out = append(out, s)
	}
	return out
}

// without cuts spans, joined, out of one.
func without(s span, cut []span) (out []span) {
	next := uint64(s.first)
	for _, c := range join(cut) {
		if c.last < s.first || c.first > s.last {
			continue
		}
		if uint64(c.first) > next {
			out = append(out, span{uint32(next), c.first - 1})
		}
		next = max(next, uint64(c.last)+1)
	}
	if next <= uint64(s.last) {
		out = append(out, span{uint32(next), s.last})
	}
	return out
}

// spanOf a range of addresses. Of IPv6 this cluster has none.
func spanOf(cidr string) (span, bool) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || !p.Addr().Is4() {
		return span{}, false
	}
	return span{netplan.Number(p.Masked().Addr()), netplan.Number(netplan.Last(p))}, true
}

// blockSpans are the addresses of an ipBlock.
func blockSpans(b *networkingv1.IPBlock) []span {
	s, ok := spanOf(b.CIDR)
	if !ok {
		return nil
	}
	var cut []span
	for _, e := range b.Except {
		if c, ok := spanOf(e); ok {
			cut = append(cut, c)
		}
	}
	return without(s, cut)
}

func (s span) contains(a netip.Addr) bool {
	return a.Is4() && s.first <= netplan.Number(a) && netplan.Number(a) <= s.last
}

// addresses writes a span as nft reads it.
func (s span) addresses() string {
	a := func(n uint32) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	if s.first == s.last {
		return a(s.first).String()
	}
	return fmt.Sprintf("%s-%s", a(s.first), a(s.last))
}

// ports writes a span as nft reads it.
func (s span) ports() string {
	if s.first == s.last {
		return fmt.Sprint(s.first)
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}
