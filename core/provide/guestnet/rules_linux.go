package guestnet

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nft"
)

// The maps. Keys are a range of guests, as its first address, and the address of a service, or of a pod.
const (
	thereMap = "there" // what a guest asks for → its twin here
	backMap  = "back"  // and from there again

	sharedMap = "shared" // the address that a pod of the owner's has for a guest → its own
	asMap     = "as"     // and from there again
)

const dnsPort = 53

var rule, accept = nft.Rule, nft.Accept

// family is what differs between IPv4 and IPv6.
type family struct {
	table               nftables.TableFamily
	key                 nftables.SetDatatype
	source, destination uint32 // where they are in the header
	errors              [][]expr.Any
	guestMask           net.IPMask // of their ranges
	dns                 netip.Addr
	pods, services      netip.Prefix
	guests              func(Tenant) netip.Prefix

	// To change an address changes what sums the header up, and what sums up a quote of it.
	header func(at uint32) *expr.Payload
	quoted func(at uint32) *expr.Payload
}

func families(network netplan.Cluster) []family {
	ipv4 := family{
		table: nftables.TableFamilyIPv4, key: nftables.TypeIPAddr, source: nft.SourceAt, destination: nft.DestinationAt,
		errors:    nft.Errors4(),
		guestMask: net.CIDRMask(netplan.GuestBits, 32), dns: network.DNS(), pods: network.Pods, services: network.Services,
		guests: func(t Tenant) netip.Prefix { return t.Guests },
		header: nft.Header4, quoted: nft.Quoted4,
	}
	if !network.IPv6.Pods.IsValid() {
		return []family{ipv4}
	}
	return []family{ipv4, {
		table: nftables.TableFamilyIPv6, key: nftables.TypeIP6Addr, source: nft.SourceAt6, destination: nft.DestinationAt6,
		errors:    [][]expr.Any{nft.ICMP6(1), nft.ICMP6(2), nft.ICMP6(3), nft.ICMP6(4)}, // those, and packet too big
		guestMask: net.CIDRMask(netplan.GuestBits6, 128), dns: network.IPv6.DNS(), pods: network.IPv6.Pods, services: network.IPv6.Services,
		guests: func(t Tenant) netip.Prefix { return t.Guests6 },
		// The header has no checksum, but the module writes no flags without one. So that is said to be in the address, which is
		// written after it.
		header: func(at uint32) *expr.Payload { return nft.Header(at, 16, at) },
		quoted: nft.Quoted6,
	}}
}

// tables are those of these tenants, one for each family that the cluster has.
func tables(network netplan.Cluster, tenants []Tenant) (all []nft.Table) {
	for _, f := range families(network) {
		all = append(all, f.of(tenants))
	}
	return all
}

// of gives the table of a family. Its chains are in the order in which a packet meets them.
func (f family) of(tenants []Tenant) nft.Table {
	guest, toGuest := nft.FromGroup(Group), nft.ToGroup(Group)
	// Nothing else that may pass has ports.
	asksDNS := rule(nft.DestinationWithin(netip.PrefixFrom(f.dns, f.dns.BitLen())), nft.ToPorts(dnsPort, dnsPort))
	begunHere := [][]expr.Any{ // at none of those who live in the address space of a home
		rule(nft.Not(toGuest), accept()), rule(nft.From(netplan.Tunnel), accept()), rule(guest, accept()),
	}
	t := nft.Table{Family: f.table, Sets: f.maps(tenants)}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority, rules ...[]expr.Any) {
		t.Chains = append(t.Chains, nft.Chain{Name: name, Type: kind, Hook: hook, Priority: priority, Rules: rules})
	}
	const filter, nat = nftables.ChainTypeFilter, nftables.ChainTypeNAT
	// What a guest asks for is read as home reads it, before connections are tracked. An address of a service that home does not
	// have here would be this cluster's own.
	chain("there", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, slices.Concat([][]expr.Any{
		rule(nft.Not(guest), accept()),
		rule(asksDNS, accept()),
	}, f.quotes(f.source, thereMap), [][]expr.Any{
		rule(f.lookup(f.source, f.header(f.destination), thereMap), nft.Put(f.header(f.destination)), accept()),
		rule(nft.DestinationWithin(f.services), nft.Drop()),
	})...)
	// A pod of the owner's that is shared with a home has an address of theirs for its guests, who ask for it or for a service that kube-proxy leads to
	// it. Connections are tracked by that address: it is put in place of the pod's own before they are, and taken back after. The pod's own is one of
	// home's too, so a mark says which is meant.
	chain("as", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, slices.Concat([][]expr.Any{
		rule(nft.Not(nft.From(netplan.Bridge)), accept()),
	}, f.quotes(f.destination, asMap), [][]expr.Any{
		rule(f.lookup(f.destination, f.header(f.source), asMap), nft.Put(f.header(f.source))),
	})...)
	chain("shared", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest+10, slices.Concat([][]expr.Any{
		rule(nft.Not(guest), accept()),
	}, f.quotes(f.source, sharedMap), [][]expr.Any{
		rule(f.lookup(f.source, f.header(f.destination), sharedMap), nft.Put(f.header(f.destination)), nft.Mark(nft.PacketMark, noderoute.Mark)),
	})...)
	// Answers of guests to those here who asked them, and what they ask of the cluster's DNS, are for here.
	chain("here", filter, nftables.ChainHookPrerouting, *nftables.ChainPriorityMangle,
		rule(nft.Not(guest), accept()),
		rule(asksDNS, nft.Mark(nft.PacketMark, noderoute.Mark)),
		rule(nft.Direction(nft.Reply), nft.Marked(nft.ConnectionMark, noderoute.Mark), nft.Mark(nft.PacketMark, noderoute.Mark)),
	)
	chain("begun", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-1,
		append(begunHere, rule(nft.Direction(nft.Original), nft.Mark(nft.ConnectionMark, noderoute.Mark)))...)
	// A guest takes the addresses of this cluster for those of its home, so it sees the one of its link.
	chain("hide", nat, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource,
		append(begunHere, rule(nft.SourceWithin(f.pods), []expr.Any{&expr.Masq{}}))...)
	chain("back", filter, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource+50, slices.Concat([][]expr.Any{
		rule(nft.Not(toGuest), accept()),
	}, f.quotes(f.destination, backMap), [][]expr.Any{
		rule(f.lookup(f.destination, f.header(f.source), backMap), nft.Put(f.header(f.source))),
	})...)
	return t
}

// maps fills the maps.
func (f family) maps(tenants []Tenant) []nft.Set {
	pair := nftables.MustConcatSetType(f.key, f.key)
	named := func(name string) nft.Set { return nft.Set{Name: name, Key: pair, Data: f.key} }
	there, back, shared, as := named(thereMap), named(backMap), named(sharedMap), named(asMap)
	for _, t := range tenants {
		guests := f.guests(t)
		lead := func(in *nft.Set, from, to netip.Addr) {
			in.Elements = append(in.Elements, nftables.SetElement{Key: slices.Concat(guests.Addr().AsSlice(), from.AsSlice()), Val: to.AsSlice()})
		}
		for home, here := range t.Services {
			if !guests.IsValid() || home.BitLen() != guests.Addr().BitLen() {
				continue
			}
			lead(&there, home, here)
			lead(&back, here, home)
		}
		for there, pod := range t.Shared {
			if guests.IsValid() && there.BitLen() == guests.Addr().BitLen() {
				lead(&shared, there, pod)
				lead(&as, pod, there)
			}
		}
	}
	return []nft.Set{there, back, shared, as}
}

// quotes changes an address in the packet that an ICMP error quotes as well: whoever gets the error finds the connection by it. guest is
// where the packet around it has the guest's address, and the quote that of the service.
func (f family) quotes(guest uint32, in string) (rules [][]expr.Any) {
	at := f.quoted(guest)
	for _, kind := range f.errors {
		rules = append(rules, rule(kind, f.lookup(guest, at, in), nft.Put(at)))
	}
	return rules
}

// lookup: ip saddr & 255.255.255.0 . SERVICE map @MAP, the result in register 1. The second part of a key is behind the first, which are the
// next four bytes of the sixteen that are register 1 (NFT_REG32_01), or register 2.
func (f family) lookup(guest uint32, service *expr.Payload, in string) []expr.Any {
	second := uint32(unix.NFT_REG32_01)
	if len(f.guestMask) == net.IPv6len {
		second = unix.NFT_REG_2
	}
	return []expr.Any{
		nft.Take(f.header(guest), 1), nft.Masked(f.guestMask, nil), nft.Take(service, second),
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: in},
	}
}
