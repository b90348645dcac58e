//go:build linux

package fence

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The functions here are the words of which rules are made; the comment is what `nft` calls it. Each match loads into
// register 1 and ends the rule if it does not hold.

func rule(words ...[]expr.Any) (r []expr.Any) {
	for _, w := range words {
		r = append(r, w...)
	}
	return r
}

func load(e expr.Any, then ...expr.Any) []expr.Any { return append([]expr.Any{e}, then...) }

func equal(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}
}

// not has a match end the rule if it does hold.
func not(match []expr.Any) []expr.Any {
	match[len(match)-1].(*expr.Cmp).Op = expr.CmpOpNeq
	return match
}

// iifgroup N
func fromGroup(n uint32) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1}, equal(binaryutil.NativeEndian.PutUint32(n)))
}

// oifgroup N
func toGroup(n uint32) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyOIFGROUP, Register: 1}, equal(binaryutil.NativeEndian.PutUint32(n)))
}

// iifname NAME
func from(name string) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equal(ifname(name)))
}

// oifname NAME
func to(name string) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, equal(ifname(name)))
}

// oifname @SET
func toIn(set string) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, in(set))
}

func in(set string) expr.Any { return &expr.Lookup{SourceRegister: 1, SetName: set} }

func source() expr.Any      { return address(12) }
func destination() expr.Any { return address(16) }

// address at an offset of the IPv4 header (RFC 791).
func address(offset uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
}

// FIELD @SET
func is(field expr.Any, set string) []expr.Any { return load(field, in(set)) }

// ip daddr PREFIX
func destinationWithin(p netip.Prefix) []expr.Any { return load(destination(), within(p)...) }

// ip saddr PREFIX
func sourceWithin(p netip.Prefix) []expr.Any { return load(source(), within(p)...) }

func within(p netip.Prefix) []expr.Any {
	mask := net.CIDRMask(p.Bits(), 32)
	return []expr.Any{&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)}, equal(p.Masked().Addr().AsSlice())}
}

// FIELD vmap @MAP
func decides(field expr.Any, verdicts string) []expr.Any {
	return load(field, &expr.Lookup{SourceRegister: 1, SetName: verdicts, IsDestRegSet: true, DestRegister: 0})
}

// fib saddr . iif oif 0: the way back to the source is not the interface that the packet came by.
func sourceForged() []expr.Any {
	return load(&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}, equal(make([]byte, 4)))
}

// rt ip nexthop @SET
func nextHopIn(set string) []expr.Any {
	return load(&expr.Rt{Register: 1, Key: expr.RtNexthop4}, in(set))
}

// meta l4proto N
func protocol(n byte) []expr.Any {
	return load(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{n}))
}

// th dport FIRST-LAST
func toPorts(first, last uint16) []expr.Any {
	return load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: binary.BigEndian.AppendUint16(nil, first), ToData: binary.BigEndian.AppendUint16(nil, last)})
}

// icmp type echo-request
func echoRequest() []expr.Any {
	return rule(protocol(unix.IPPROTO_ICMP), load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1}, equal([]byte{8})))
}

// ct state STATE, ct status STATUS
func tracked(key expr.CtKey, bits uint32) []expr.Any { return trackedAs(key, bits, expr.CmpOpNeq) }

// trackedAs is tracked with another comparison of the bits with 0.
func trackedAs(key expr.CtKey, bits uint32, to0 expr.CmpOp) []expr.Any {
	return load(&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: to0, Register: 1, Data: make([]byte, 4)})
}

const (
	statusDNAT     = 1 << 5 // IPS_DST_NAT
	originalWay    = 0      // IP_CT_DIR_ORIGINAL
	replyWay       = 1      // IP_CT_DIR_REPLY
	adminForbidden = 13     // ICMP_PKT_FILTERED, RFC 1812 5.2.7.1
)

// ct state established ct direction reply accept
func acceptAnswers() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitESTABLISHED),
		load(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, equal([]byte{replyWay})), accept())
}

// ct state related meta l4proto icmp: errors about a connection, path MTU among them.
func anError() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitRELATED), protocol(unix.IPPROTO_ICMP))
}

// ct state invalid meta l4proto icmp: errors about no connection that is known. A socket would believe them all the same.
func anErrorOfNothing() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitINVALID), protocol(unix.IPPROTO_ICMP))
}

// quotes is the destination of the packet that an ICMP error quotes: of the IP header behind the eight bytes of ICMP's own (RFC 792).
func quotes() expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 8 + 16, Len: 4}
}

// ct status dnat: asked for as something else, a service or a port of this host.
func translated() []expr.Any { return tracked(expr.CtKeySTATUS, statusDNAT) }

// ct original ip daddr PREFIX
func askedWithin(p netip.Prefix) []expr.Any {
	return load(&expr.Ct{Key: expr.CtKeyDST, Register: 1, Direction: originalWay}, within(p)...)
}

// meta l4proto P ct status dnat ct original ip daddr ADDRESS ct original proto-dst PORT
func askedFor(p byte, a netip.Addr, port uint16) []expr.Any {
	return rule(protocol(p), translated(),
		load(&expr.Ct{Key: expr.CtKeyDST, Register: 1, Direction: originalWay}, equal(a.AsSlice())),
		load(&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1, Direction: originalWay}, equal(binary.BigEndian.AppendUint16(nil, port))))
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// counter drop
func drop() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

// counter reject with icmp admin-prohibited: whoever is known is told at once, instead of waiting in vain.
func reject() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: adminForbidden}}
}

// counter reject with tcp reset: whoever is not there is not waited for. In the name of the address that was asked for, it finds the way
// to a home; an ICMP error of this host to an address of a home would go to its own pod of that address.
func reset() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}
