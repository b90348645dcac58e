//go:build linux

package nft

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Words for rules that write into packets and marks; the comment is what `nft` calls it.

// ChecksumAt is where the IPv4 header has its checksum (RFC 791).
const ChecksumAt = 10

const icmpHeader = 8 // bytes of its own before the quote, of ICMP and ICMPv6 (RFC 792, RFC 4443)

// Header is an address in the packet's own header, to be taken or put. TCP, UDP and ICMPv6 have it in their checksums
// (NFT_PAYLOAD_L4CSUM_PSEUDOHDR).
func Header(at, length, checksum uint32) *expr.Payload {
	return &expr.Payload{
		Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: length, CsumType: expr.CsumTypeInet, CsumOffset: checksum,
		CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
}

// Header4 is Header of IPv4.
func Header4(at uint32) *expr.Payload { return Header(at, 4, ChecksumAt) }

// Quoted4 is an address in the packet that an ICMP error quotes. The quote's own checksum changes with it, and so ICMP's, over both, does not.
func Quoted4(at uint32) *expr.Payload {
	return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: icmpHeader + at, Len: 4, CsumType: expr.CsumTypeInet, CsumOffset: icmpHeader + ChecksumAt}
}

// Quoted6 is that of an ICMPv6 error. The quote has no checksum, so ICMP's changes.
func Quoted6(at uint32) *expr.Payload {
	const checksumAt = 2 // in the header of ICMPv6
	return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: icmpHeader + at, Len: 16, CsumType: expr.CsumTypeInet, CsumOffset: checksumAt}
}

// Errors4 match the ICMP errors that quote a packet: destination unreachable, time exceeded, parameter problem.
func Errors4() [][]expr.Any { return [][]expr.Any{ICMP(3), ICMP(11), ICMP(12)} }

// Take loads an address into a register.
func Take(p *expr.Payload, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: p.Base, Offset: p.Offset, Len: p.Len}
}

// Put writes register 1 into the packet.
func Put(p *expr.Payload) []expr.Any {
	write := *p
	write.OperationType, write.SourceRegister = expr.PayloadWrite, 1
	return []expr.Any{&write}
}

// PacketMark is meta mark.
func PacketMark(write bool) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: write}
}

// ConnectionMark is ct mark.
func ConnectionMark(write bool) expr.Any {
	return &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: write}
}

// Marked is MARK & BIT == BIT.
func Marked(mark func(write bool) expr.Any, bit uint32) []expr.Any {
	is := binaryutil.NativeEndian.PutUint32(bit)
	return []expr.Any{mark(false), Masked(is, nil), Equal(is)}
}

// Mark is MARK set MARK | BIT: the other bits are others'.
func Mark(mark func(write bool) expr.Any, bit uint32) []expr.Any {
	return []expr.Any{mark(false), Masked(binaryutil.NativeEndian.PutUint32(^bit), binaryutil.NativeEndian.PutUint32(bit)), mark(true)}
}

// Unmark is MARK set MARK & ~BIT.
func Unmark(mark func(write bool) expr.Any, bit uint32) []expr.Any {
	return []expr.Any{mark(false), Masked(binaryutil.NativeEndian.PutUint32(^bit), nil), mark(true)}
}
