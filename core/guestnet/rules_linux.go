package guestnet

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/gateway/noderoute"
	"kith.dev/core/netplan"
	"kith.dev/core/nft"
)

// The maps. Keys are a range of guests, as its first address, and the address of a service.
const (
	thereMap = "there" // what a guest asks for → its twin here
	backMap  = "back"  // and from there again
)

const dnsPort = 53

var rule, accept = nft.Rule, nft.Accept

// table is that of these tenants. Its chains are in the order in which a packet meets them.
func table(network netplan.Cluster, tenants []Tenant) nft.Table {
	guest, toGuest := nft.FromGroup(Group), nft.ToGroup(Group)
	// Nothing else that may pass has ports.
	asksDNS := rule(nft.DestinationWithin(netip.PrefixFrom(network.DNS(), 32)), nft.ToPorts(dnsPort, dnsPort))
	begunHere := [][]expr.Any{ // at none of those who live in the address space of a home
		rule(nft.Not(toGuest), accept()), rule(nft.From(netplan.Tunnel), accept()), rule(guest, accept()),
	}
	there, back := mapsOf(tenants)
	t := nft.Table{Family: nftables.TableFamilyIPv4, Sets: []nft.Set{there, back}}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority, rules ...[]expr.Any) {
		t.Chains = append(t.Chains, nft.Chain{Name: name, Type: kind, Hook: hook, Priority: priority, Rules: rules})
	}
	const filter, nat = nftables.ChainTypeFilter, nftables.ChainTypeNAT
	// What a guest asks for is read as home reads it, before connections are tracked. An address of a service that home does not
	// have here would be this cluster's own.
	chain("there", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, slices.Concat([][]expr.Any{
		rule(nft.Not(guest), accept()),
		rule(asksDNS, accept()),
	}, quoted(nft.SourceAt, nft.SourceAt, thereMap), [][]expr.Any{
		rule(lookup(nft.SourceAt, header(nft.DestinationAt), thereMap), set(header(nft.DestinationAt)), accept()),
		rule(nft.DestinationWithin(network.Services), nft.Drop()),
	})...)
	// Answers of guests to those here who asked them, and what they ask of the cluster's DNS, are for here.
	chain("here", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityMangle,
		rule(nft.Not(guest), accept()),
		rule(asksDNS, mark(packetMark)),
		rule(nft.Direction(nft.Reply), marked(connectionMark), mark(packetMark)),
	)
	chain("begun", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-1,
		append(begunHere, rule(nft.Direction(nft.Original), mark(connectionMark)))...)
	// A guest takes the addresses of this cluster for those of its home, so it sees the one of its link.
	chain("hide", nat, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource,
		append(begunHere, rule(nft.SourceWithin(network.Pods), []expr.Any{&expr.Masq{}}))...)
	chain("back", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource+50, slices.Concat([][]expr.Any{
		rule(nft.Not(toGuest), accept()),
	}, quoted(nft.DestinationAt, nft.DestinationAt, backMap), [][]expr.Any{
		rule(lookup(nft.DestinationAt, header(nft.SourceAt), backMap), set(header(nft.SourceAt))),
	})...)
	return t
}

// mapsOf fills the maps.
func mapsOf(tenants []Tenant) (there, back nft.Set) {
	pair := nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr)
	there = nft.Set{Name: thereMap, Key: pair, Data: nftables.TypeIPAddr}
	back = nft.Set{Name: backMap, Key: pair, Data: nftables.TypeIPAddr}
	for _, t := range tenants {
		lead := func(in *nft.Set, from, to netip.Addr) {
			in.Elements = append(in.Elements, nftables.SetElement{Key: slices.Concat(t.Guests.Addr().AsSlice(), from.AsSlice()), Val: to.AsSlice()})
		}
		for home, here := range t.Services {
			lead(&there, home, here)
			lead(&back, here, home)
		}
	}
	return there, back
}

// quoted changes an address in the packet that an ICMP error quotes as well: whoever gets the error finds the connection by it. The quote
// is the IP header behind the eight bytes of ICMP's own (RFC 792). Its own checksum changes with it, and so ICMP's, over both, does not.
func quoted(guest, service uint32, in string) (rules [][]expr.Any) {
	const quote = 8
	at := &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: quote + service, CsumType: expr.CsumTypeInet, CsumOffset: quote + checksumAt}
	for _, kind := range []byte{3, 11, 12} { // destination unreachable, time exceeded, parameter problem
		rules = append(rules, rule(nft.ICMP(kind), lookup(guest, at, in), set(at)))
	}
	return rules
}

// More words for rules, beside those of nft; the comment is what `nft` calls it.

const checksumAt = 10 // in the IPv4 header (RFC 791)

// header is an address in the packet's own header. TCP and UDP have it in their checksums (NFT_PAYLOAD_L4CSUM_PSEUDOHDR).
func header(at uint32) *expr.Payload {
	return &expr.Payload{
		Base: expr.PayloadBaseNetworkHeader, Offset: at, CsumType: expr.CsumTypeInet, CsumOffset: checksumAt,
		CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
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

// lookup: ip saddr & 255.255.255.0 . SERVICE map @MAP, the result in register 1. The second part of a key is in the next four bytes of
// the sixteen that are register 1 (NFT_REG32_01).
func lookup(guest uint32, service *expr.Payload, in string) []expr.Any {
	return []expr.Any{
		load(header(guest), 1), nft.Masked(net.CIDRMask(netplan.GuestBits, 32), nil), load(service, unix.NFT_REG32_01),
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: in},
	}
}

// packetMark is meta mark.
func packetMark(write bool) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: write}
}

// connectionMark is ct mark.
func connectionMark(write bool) expr.Any {
	return &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: write}
}

// The one bit, and where it is; the others are others'.
var (
	bit  = binaryutil.NativeEndian.PutUint32(noderoute.Mark)
	mask = binaryutil.NativeEndian.PutUint32(noderoute.MarkMask)
	rest = binaryutil.NativeEndian.PutUint32(^uint32(noderoute.MarkMask))
)

// marked: MARK & noderoute.MarkMask == noderoute.Mark
func marked(m func(write bool) expr.Any) []expr.Any {
	return []expr.Any{m(false), nft.Masked(mask, nil), nft.Equal(bit)}
}

// mark: MARK set MARK & ~noderoute.MarkMask | noderoute.Mark
func mark(m func(write bool) expr.Any) []expr.Any {
	return []expr.Any{m(false), nft.Masked(rest, bit), m(true)}
}
