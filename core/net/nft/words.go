//go:build linux

package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/netplan"
)

// The functions here are the words of which rules are made; the comment is what `nft` calls it. Each match loads into
// register 1 and ends the rule if it does not hold.

// Rule is what its words say, one after the other.
func Rule(words ...[]expr.Any) []expr.Any { return slices.Concat(words...) }

// Load puts a field into register 1, for what is to be done with it then.
func Load(field expr.Any, then ...expr.Any) []expr.Any { return append([]expr.Any{field}, then...) }

// Equal compares register 1.
func Equal(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// Not has a match end the rule if it does hold.
func Not(match []expr.Any) []expr.Any {
	last := len(match) - 1
	cmp := *match[last].(*expr.Cmp)
	cmp.Op = expr.CmpOpNeq
	return append(slices.Clone(match[:last]), &cmp)
}

// FromGroup is iifgroup N. What this host itself sends has none.
func FromGroup(n uint32) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1}, Equal(binaryutil.NativeEndian.PutUint32(n)))
}

// FromIn is iifname @SET.
func FromIn(set string) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: set})
}

// FromNotIn is iifname != @SET.
func FromNotIn(set string) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: set, Invert: true})
}

// FromWithNotIn is iifname . FIELD != @SET, of a field that is loaded into register 2.
func FromWithNotIn(field expr.Any, set string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, field, &expr.Lookup{SourceRegister: 1, SetName: set, Invert: true}}
}

// ToGroup is oifgroup N.
func ToGroup(n uint32) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyOIFGROUP, Register: 1}, Equal(binaryutil.NativeEndian.PutUint32(n)))
}

// From is iifname NAME.
func From(name string) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, Equal(Ifname(name)))
}

// Ifname is the form in which the kernel compares names: all of IFNAMSIZ.
func Ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b[:unix.IFNAMSIZ-1], name)
	return b
}

// Where the addresses are in the IPv4 header (RFC 791), and in that of IPv6 (RFC 8200).
const (
	SourceAt      = 12
	DestinationAt = 16

	SourceAt6      = 8
	DestinationAt6 = 24
)

// Source is ip saddr.
func Source() expr.Any { return address(SourceAt) }

// Destination is ip daddr.
func Destination() expr.Any { return address(DestinationAt) }

func address(at uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: 4}
}

// Source6 is ip6 saddr.
func Source6() expr.Any { return address6(SourceAt6) }

// Destination6 is ip6 daddr.
func Destination6() expr.Any { return address6(DestinationAt6) }

func address6(at uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: 16}
}

// SourceWithin is ip saddr PREFIX, or ip6 saddr PREFIX.
func SourceWithin(p netip.Prefix) []expr.Any {
	if p.Addr().Is6() {
		return Load(Source6(), Within(p)...)
	}
	return Load(Source(), Within(p)...)
}

// DestinationWithin is ip daddr PREFIX, or ip6 daddr PREFIX.
func DestinationWithin(p netip.Prefix) []expr.Any {
	if p.Addr().Is6() {
		return Load(Destination6(), Within(p)...)
	}
	return Load(Destination(), Within(p)...)
}

// Within compares an address in register 1 with PREFIX.
func Within(p netip.Prefix) []expr.Any {
	return []expr.Any{Masked(net.CIDRMask(p.Bits(), p.Addr().BitLen()), nil), Equal(p.Masked().Addr().AsSlice())}
}

// Masked leaves of the bytes in register 1, as many as the mask has, those of the mask, and sets some.
func Masked(mask, set []byte) expr.Any {
	if set == nil {
		set = make([]byte, len(mask))
	}
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(mask)), Mask: mask, Xor: set}
}

// Protocol is meta l4proto N.
func Protocol(n byte) []expr.Any {
	return Load(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, Equal([]byte{n}))
}

// ToPorts is th dport FIRST-LAST.
func ToPorts(first, last uint16) []expr.Any {
	return Load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Range{
			Op: expr.CmpOpEq, Register: 1,
			FromData: binary.BigEndian.AppendUint16(nil, first), ToData: binary.BigEndian.AppendUint16(nil, last),
		})
}

// ICMP is icmp type N (RFC 792).
func ICMP(kind byte) []expr.Any { return icmp(unix.IPPROTO_ICMP, kind) }

// ICMP6 is icmpv6 type N (RFC 4443).
func ICMP6(kind byte) []expr.Any { return icmp(unix.IPPROTO_ICMPV6, kind) }

func icmp(protocol, kind byte) []expr.Any {
	return Rule(Protocol(protocol),
		Load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1}, Equal([]byte{kind})))
}

// The directions of a connection (IP_CT_DIR_ORIGINAL, IP_CT_DIR_REPLY).
const (
	Original = 0
	Reply    = 1
)

// MostOf is update @SET { FIELD WHAT }, of a set that rules fill: WHAT, a limit or a count, is for each value of the field.
func MostOf(field expr.Any, set string, what expr.Any) []expr.Any {
	return Load(field, &expr.Dynset{SrcRegKey: 1, SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{what}})
}

// Direction is ct direction DIRECTION.
func Direction(d byte) []expr.Any {
	return Load(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, Equal([]byte{d}))
}

// Accept is accept.
func Accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// Drop is counter drop.
func Drop() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// Spans are IPv4 ranges as the elements of a set: beginning and, as an element of its own, the first address behind. The kernel refuses what
// overlaps or touches.
func Spans(list []netip.Prefix) []nftables.SetElement { return elements(netplan.Spans(list)) }

// Spans6 is Spans of IPv6.
func Spans6(list []netip.Prefix) []nftables.SetElement { return elements(netplan.Spans6(list)) }

func elements(spans []netplan.Span) (out []nftables.SetElement) {
	for _, s := range spans {
		out = append(out, nftables.SetElement{Key: s.From.AsSlice()})
		if s.Behind.IsValid() {
			out = append(out, nftables.SetElement{Key: s.Behind.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}
