package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"kith.dev/core/net/netplan"
)

// number is what spans are made of: addresses (netip.Addr) and ports.
type number[T any] interface {
	comparable
	fmt.Stringer
	Compare(T) int
	Next() T
	Prev() T
}

// port is a number of a port.
type port uint32

func (p port) Compare(q port) int { return cmp.Compare(p, q) }
func (p port) Next() port         { return p + 1 }
func (p port) Prev() port         { return p - 1 }
func (p port) String() string     { return fmt.Sprint(uint32(p)) }

// span is from its first number to its last. Those that are compared are of one kind.
type span[T number[T]] struct{ first, last T }

// join sorts spans, and makes one of those that overlap or touch: the kernel refuses such.
func join[T number[T]](list []span[T]) (out []span[T]) {
	slices.SortFunc(list, func(a, b span[T]) int { return a.first.Compare(b.first) })
	for _, s := range list {
		if n := len(out) - 1; n >= 0 && (s.first.Compare(out[n].last) <= 0 || s.first == out[n].last.Next()) {
			if s.last.Compare(out[n].last) > 0 {
				out[n].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// without cuts spans out of one.
func without[T number[T]](s span[T], cut []span[T]) (out []span[T]) {
	next := s.first
	for _, c := range join(cut) {
		if c.last.Compare(next) < 0 || c.first.Compare(s.last) > 0 {
			continue
		}
		if c.first.Compare(next) > 0 {
			out = append(out, span[T]{next, c.first.Prev()})
		}
		if c.last.Compare(s.last) >= 0 {
			return out
		}
		next = c.last.Next()
	}
	return append(out, span[T]{next, s.last})
}

// contains reports whether a number is in a span.
func (s span[T]) contains(n T) bool { return s.first.Compare(n) <= 0 && n.Compare(s.last) <= 0 }

// String writes a span as nft reads it.
func (s span[T]) String() string {
	if s.first == s.last {
		return s.first.String()
	}
	return fmt.Sprintf("%s-%s", s.first, s.last)
}

// spanOf a range of addresses of this family.
func (f family) spanOf(cidr string) (span[netip.Addr], bool) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || !f.has(p.Addr()) {
		return span[netip.Addr]{}, false
	}
	return span[netip.Addr]{p.Masked().Addr(), netplan.Last(p)}, true
}

// blockSpans are the addresses of this family of an ipBlock.
func (f family) blockSpans(b *networkingv1.IPBlock) []span[netip.Addr] {
	s, ok := f.spanOf(b.CIDR)
	if !ok {
		return nil
	}
	var cut []span[netip.Addr]
	for _, e := range b.Except {
		if c, ok := f.spanOf(e); ok {
			cut = append(cut, c)
		}
	}
	return without(s, cut)
}
