package translate

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/nft"
)

// The maps that are always there: the chain that says what an address means to a guest, by the guest's. Chains of tenants have their names.
const (
	thereMap  = "services-there" // of a service, before connections are tracked
	rangesMap = "ranges"         // in a range, of what begins a connection
	backMap   = "services-back"
)

var rule, accept = nft.Rule, nft.Accept

const (
	guestsSet   = "guests"   // all of them
	itselfSet   = "itself"   // each twice
	answeredSet = "answered" // the family, while the server of names is alive

	dnsPort = 53
)

// answered passes, unless it is renewed.
const answeredFor = 6 * time.Second

func answered(alive bool) nft.Set {
	s := nft.Set{Name: answeredSet, Key: nftables.TypeNFProto, Passing: true}
	if alive {
		s.Elements = []nftables.SetElement{{Key: []byte{byte(nftables.TableFamilyIPv4)}, Timeout: answeredFor}}
	}
	return s
}

// table of these tenants. Its chains are in the order in which a packet meets them. Questions for dns, the service of the cluster's DNS, are led to
// names; the zero value leads them nowhere else.
func table(tenants []Tenant, dns netip.Addr, names netip.AddrPort) nft.Table {
	guests := nft.Set{Name: guestsSet, Key: nftables.TypeIPAddr, Single: true}
	itself := nft.Set{Name: itselfSet, Key: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr)}
	to := map[string]*nft.Set{}
	for _, name := range []string{thereMap, rangesMap, backMap} {
		to[name] = &nft.Set{Name: name, Key: nftables.TypeIPAddr, Data: nftables.TypeVerdict, Single: true}
	}
	t := nft.Table{Family: nftables.TableFamilyIPv4}
	for _, tenant := range tenants {
		home, here := tenant.maps()
		kept := nft.Set{Name: "kept-" + tenant.Consumer, Key: nftables.TypeIPAddr, Single: true}
		for _, guest := range tenant.All {
			kept.Elements = append(kept.Elements, nftables.SetElement{Key: guest.AsSlice()})
		}
		t.Sets = append(t.Sets, home, here, kept)
		t.Chains = append(t.Chains,
			nft.Chain{Name: thereMap + "-" + tenant.Consumer, Rules: direction{guest: nft.SourceAt, other: nft.DestinationAt, in: home.Name}.rules(nft.Mark(nft.PacketMark, noderoute.Mark))},
			nft.Chain{Name: rangesMap + "-" + tenant.Consumer, Rules: tenant.ranges(kept.Name)},
			nft.Chain{Name: backMap + "-" + tenant.Consumer, Rules: direction{guest: nft.DestinationAt, other: nft.SourceAt, in: here.Name}.rules(nil)})
		for _, guest := range tenant.Guests {
			guests.Elements = append(guests.Elements, nftables.SetElement{Key: guest.AsSlice()})
			itself.Elements = append(itself.Elements, nftables.SetElement{Key: slices.Concat(guest.AsSlice(), guest.AsSlice())})
			for name, set := range to {
				set.Elements = append(set.Elements, nftables.SetElement{Key: guest.AsSlice(), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: name + "-" + tenant.Consumer}})
			}
		}
	}
	t.Sets = append(t.Sets, guests, itself, *to[thereMap], *to[rangesMap], *to[backMap], answered(names.IsValid()))
	t.Chains = append(t.Chains,
		// Behind what judges where a packet comes from, which the fence does at the same place.
		nft.Chain{Name: "there", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw + 10, Rules: [][]expr.Any{by(nft.Source(), thereMap)}},
		nft.Chain{Name: "asked", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityMangle, Rules: [][]expr.Any{
			rule(nft.Marked(nft.PacketMark, noderoute.Mark), nft.Mark(nft.ConnectionMark, noderoute.Mark), nft.Unmark(nft.PacketMark, noderoute.Mark)),
		}},
		// Before kube-proxy: of what changes where a connection leads, the first does.
		nft.Chain{Name: "begun", Hook: nftables.ChainHookPrerouting, Type: nftables.ChainTypeNAT, Priority: *nftables.ChainPriorityNATDest - 10, Rules: append(questions(dns, names),
			rule(nft.Not(nft.Marked(nft.ConnectionMark, noderoute.Mark)), nft.Not(nft.DestinationWithin(netip.PrefixFrom(dns, dns.BitLen()))), by(nft.Source(), rangesMap)))},
		// A guest that asks for itself takes nothing from itself by its wire.
		nft.Chain{Name: "itself", Hook: nftables.ChainHookPostrouting, Type: nftables.ChainTypeNAT, Priority: *nftables.ChainPriorityNATSource - 20, Rules: [][]expr.Any{
			rule(nft.Marked(nft.ConnectionMark, noderoute.Mark), pairIn(itselfSet), []expr.Any{&expr.Masq{}}),
		}},
		nft.Chain{Name: "back", Hook: nftables.ChainHookPostrouting, Priority: *nftables.ChainPriorityNATSource + 50, Rules: [][]expr.Any{
			rule(nft.Marked(nft.ConnectionMark, noderoute.Mark), nft.Direction(nft.Reply), by(nft.Destination(), backMap)),
		}})
	return t
}

// ranges leads connections into the tenant's ranges, but for those to who is a guest of it here. They are marked: the fence takes none of a guest's
// that were led elsewhere but by a service, or by these rules.
func (t Tenant) ranges(kept string) (rules [][]expr.Any) {
	for _, m := range t.Ranges {
		host := net.CIDRMask(m.Real.Bits(), 32)
		for i := range host {
			host[i] = ^host[i]
		}
		rules = append(rules, rule(
			nft.DestinationWithin(m.Real), nft.Load(nft.Destination(), &expr.Lookup{SourceRegister: 1, SetName: kept, Invert: true}),
			nft.Mark(nft.ConnectionMark, noderoute.Mark),
			nft.Load(nft.Destination(), nft.Masked(host, m.Alias.Addr().AsSlice()), &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})))
	}
	return rules
}

// questions leads those to DNS.
func questions(dns netip.Addr, to netip.AddrPort) (rules [][]expr.Any) {
	if !to.IsValid() {
		return nil
	}
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, rule(
			nft.Load(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: answeredSet}),
			nft.Load(nft.Source(), &expr.Lookup{SourceRegister: 1, SetName: guestsSet}),
			nft.DestinationWithin(netip.PrefixFrom(dns, dns.BitLen())), nft.Protocol(protocol), nft.ToPorts(dnsPort, dnsPort),
			[]expr.Any{
				&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()}, &expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, to.Port())},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
			}))
	}
	return rules
}

// maps of a tenant's services: from home's addresses to those here, and back.
func (t Tenant) maps() (home, here nft.Set) {
	home = nft.Set{Name: "home-" + t.Consumer, Key: nftables.TypeIPAddr, Data: nftables.TypeIPAddr, Single: true}
	here = nft.Set{Name: "here-" + t.Consumer, Key: nftables.TypeIPAddr, Data: nftables.TypeIPAddr, Single: true}
	for at, twin := range t.Services {
		if at.Is4() && twin.Is4() {
			home.Elements = append(home.Elements, nftables.SetElement{Key: at.AsSlice(), Val: twin.AsSlice()})
			here.Elements = append(here.Elements, nftables.SetElement{Key: twin.AsSlice(), Val: at.AsSlice()})
		}
	}
	for _, s := range []nft.Set{home, here} {
		slices.SortFunc(s.Elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	}
	return home, here
}

// direction is what becomes of packets from guests, or to them.
type direction struct {
	guest, other uint32 // where the header has the guest's address, and the one that changes
	in           string // the map of services
}

// rules change the other's address. Whoever gets an ICMP error finds the connection by the packet it quotes: that came from the other side, and so
// has the address that changes where the packet around it has the guest's.
func (d direction) rules(then []expr.Any) (rules [][]expr.Any) {
	header, quoted := nft.Header4(d.other), nft.Quoted4(d.guest)
	for _, kind := range nft.Errors4() {
		rules = append(rules, rule(kind, found(quoted, d.in), nft.Put(quoted), then))
	}
	return append(rules, rule(found(header, d.in), nft.Put(header), then, accept()))
}

// FIELD map @MAP, into register 1
func found(field *expr.Payload, in string) []expr.Any {
	return []expr.Any{nft.Take(field, 1), &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: in}}
}

// ip saddr . ip daddr @SET. The second part of a key is in the four bytes behind the first.
func pairIn(set string) []expr.Any {
	return []expr.Any{
		nft.Take(nft.Header4(nft.SourceAt), 1), nft.Take(nft.Header4(nft.DestinationAt), unix.NFT_REG32_01), &expr.Lookup{SourceRegister: 1, SetName: set},
	}
}

// FIELD vmap @MAP
func by(field expr.Any, verdicts string) []expr.Any {
	return nft.Load(field, &expr.Lookup{SourceRegister: 1, SetName: verdicts, IsDestRegSet: true, DestRegister: 0})
}
