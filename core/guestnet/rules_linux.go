package guestnet

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/gateway/noderoute"
	"kith.dev/core/netplan"
)

const (
	thereMap = "there" // what a guest asks for → its twin here
	backMap  = "back"  // and from there again

	dnsPort = 53
)

type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// chains of the table, in the order in which a packet meets them.
func (c Config) chains() []chain {
	filter, nat := nftables.ChainTypeFilter, nftables.ChainTypeNAT
	base := func(name string, t nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority, rules ...[]expr.Any) chain {
		return chain{&nftables.Chain{Name: name, Type: t, Hooknum: hook, Priority: &priority}, rules}
	}
	guest, toGuest := iifgroup(c.Group), oifgroup(c.Group)
	begunHere := [][]expr.Any{ // at none of those who live in the address space of a home
		rule(not(toGuest), accept()), rule(iifname(c.Tunnel), accept()), rule(guest, accept()),
	}
	return []chain{
		// What a guest asks for is read as home reads it, before connections are tracked. An address of a service that home does not
		// have here would be this cluster's own.
		base("there", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, slices.Concat([][]expr.Any{
			rule(not(guest), accept()),
			rule(c.asksDNS(unix.IPPROTO_UDP), accept()), rule(c.asksDNS(unix.IPPROTO_TCP), accept()),
		}, quoted(source, source, thereMap), [][]expr.Any{
			rule(lookup(source, header(destination), thereMap), set(header(destination)), accept()),
			rule(within(destination, c.Services), counter(), drop()),
		})...),
		// Answers of guests to those here who asked them, and what they ask of the cluster's DNS, are for here.
		base("here", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityMangle,
			rule(not(guest), accept()),
			rule(c.asksDNS(unix.IPPROTO_UDP), mark(metaMark(false), metaMark(true)), accept()),
			rule(c.asksDNS(unix.IPPROTO_TCP), mark(metaMark(false), metaMark(true)), accept()),
			rule(direction(reply), marked(ctMark(false)), mark(metaMark(false), metaMark(true))),
		),
		base("begun", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-1,
			append(begunHere, rule(direction(original), mark(ctMark(false), ctMark(true))))...),
		// A guest takes the addresses of this cluster for those of its home, so it sees the one of its link.
		base("hide", nat, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource,
			append(begunHere, rule(within(source, c.Pods), []expr.Any{&expr.Masq{}}))...),
		base("back", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource+50, slices.Concat([][]expr.Any{
			rule(not(toGuest), accept()),
		}, quoted(destination, destination, backMap), [][]expr.Any{
			rule(lookup(destination, header(source), backMap), set(header(source))),
		})...),
	}
}

// asksDNS: ip daddr DNS meta l4proto P th dport 53
func (c Config) asksDNS(p byte) []expr.Any {
	return rule(within(destination, netip.PrefixFrom(c.DNS, 32)), protocol(p),
		[]expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equal([]byte{0, dnsPort})})
}

// quoted changes an address in the packet that an ICMP error quotes as well: whoever gets the error finds the connection by it. The quote
// is the IP header behind the eight bytes of ICMP's own (RFC 792). Its own checksum changes with it, and so ICMP's, over both, does not.
func quoted(guest, service offset, in string) (rules [][]expr.Any) {
	const quote = 8
	at := &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: quote + uint32(service), CsumType: expr.CsumTypeInet, CsumOffset: quote + checksum}
	for _, kind := range []byte{3, 11, 12} { // destination unreachable, time exceeded, parameter problem
		rules = append(rules, rule(protocol(unix.IPPROTO_ICMP),
			[]expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1}, equal([]byte{kind})},
			lookup(guest, at, in), set(at)))
	}
	return rules
}

// The functions here are the words of which rules are made; the comment is what `nft` calls it. Each match loads into register 1
// and ends the rule if it does not hold.

func rule(words ...[]expr.Any) []expr.Any { return slices.Concat(words...) }

func equal(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// not turns the comparison at the end of a match.
func not(match []expr.Any) []expr.Any {
	last := len(match) - 1
	cmp := *match[last].(*expr.Cmp)
	cmp.Op = expr.CmpOpNeq
	return append(slices.Clone(match[:last]), &cmp)
}

// iifgroup N; what this host itself sends has none, and no match.
func iifgroup(n uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1}, equal(binaryutil.NativeEndian.PutUint32(n))}
}

// oifgroup N
func oifgroup(n uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFGROUP, Register: 1}, equal(binaryutil.NativeEndian.PutUint32(n))}
}

// iifname NAME
func iifname(name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equal(append([]byte(name), bytes.Repeat([]byte{0}, unix.IFNAMSIZ-len(name))...))}
}

// meta l4proto N
func protocol(n byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{n})}
}

// offset in the IPv4 header (RFC 791).
type offset uint32

const (
	checksum    = 10
	source      = offset(12)
	destination = offset(16)
)

// header is an address in the packet's own header. TCP and UDP have it in their checksums (NFT_PAYLOAD_L4CSUM_PSEUDOHDR).
func header(o offset) *expr.Payload {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: uint32(o), CsumType: expr.CsumTypeInet, CsumOffset: checksum, CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR}
}

func load(p *expr.Payload, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: p.Base, Offset: p.Offset, Len: 4}
}

// set is what follows a lookup: register 1 goes into the packet.
func set(p *expr.Payload) []expr.Any {
	write := *p
	write.OperationType, write.SourceRegister, write.Len = expr.PayloadWrite, 1, 4
	return []expr.Any{&write}
}

// ip saddr PREFIX, ip daddr PREFIX
func within(o offset, p netip.Prefix) []expr.Any {
	return []expr.Any{load(header(o), 1), masked(p.Bits()), equal(p.Masked().Addr().AsSlice())}
}

func masked(bits int) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(bits, 32), Xor: make([]byte, 4)}
}

// lookup: ip saddr & 255.255.255.0 . SERVICE map @MAP, the result in register 1. The second part of a key is in the next four bytes of
// the sixteen that are register 1 (NFT_REG32_01).
func lookup(guest offset, service *expr.Payload, in string) []expr.Any {
	return []expr.Any{
		load(header(guest), 1), masked(netplan.GuestBits), load(service, unix.NFT_REG32_01),
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: in},
	}
}

// The directions of a connection (IP_CT_DIR_ORIGINAL, IP_CT_DIR_REPLY).
const (
	original = 0
	reply    = 1
)

// ct direction DIRECTION
func direction(d byte) []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, equal([]byte{d})}
}

func metaMark(write bool) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: write}
}

func ctMark(write bool) expr.Any {
	return &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: write}
}

// marked: MARK & noderoute.MarkMask == noderoute.Mark. The other bits are others'.
func marked(read expr.Any) []expr.Any {
	return []expr.Any{
		read, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(noderoute.MarkMask), Xor: make([]byte, 4)},
		equal(binaryutil.NativeEndian.PutUint32(noderoute.Mark)),
	}
}

// mark: MARK set MARK & ~noderoute.MarkMask | noderoute.Mark
func mark(read, write expr.Any) []expr.Any {
	return []expr.Any{
		read, &expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^uint32(noderoute.MarkMask)), Xor: binaryutil.NativeEndian.PutUint32(noderoute.Mark),
		}, write,
	}
}

func accept() []expr.Any  { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() []expr.Any    { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func counter() []expr.Any { return []expr.Any{&expr.Counter{}} }
