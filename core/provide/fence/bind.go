//go:build linux

package fence

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/nft"
)

const (
	mostLinks = 4096 // of which a table remembers something

	// For how long after the last sign of the node's kubelet an unknown address counts as not a guest's, where guests run: the kubelet's default
	// lease duration, since only the kubelet reports that a guest has another address now.
	calmFor = 40 * time.Second
)

// links makes the tables that bind guests to their links: one of family arp, and one of family bridge for guests on a bridge that they share with
// the owner's pods.
func (c Config) links(tenants []Tenant, host hostState, plugin Plugin) []nft.Table {
	f := c.ipv4()
	const arpIn = 0     // NF_ARP_IN
	const senderAt = 14 // in a packet of ARP (RFC 826), of Ethernet and IPv4
	sender := &expr.Payload{DestRegister: unix.NFT_REG_2, Base: expr.PayloadBaseNetworkHeader, Offset: senderAt, Len: 4}
	forged := rule(nft.FromIn(guestLinksSet), nft.FromWithNotIn(sender, addressesSet), drop())
	input := nft.Chain{Name: "input", Hook: nftables.ChainHookRef(arpIn), Rules: [][]expr.Any{forged}}
	arp := nft.Table{Family: nftables.TableFamilyARP, Sets: f.links(host)}
	if c.Group != 0 { // of a link that is not known yet no more is asked than that it names few
		few := &expr.Limit{Type: expr.LimitTypePkts, Rate: 6, Unit: expr.LimitTimeMinute, Burst: 6, Over: true}
		input.Rules = append(input.Rules, rule(nft.FromGroup(c.Group), nft.FromNotIn(guestLinksSet), nft.MostOf(fromLink(), askingSet, few), drop()))
		arp.Sets = append(arp.Sets, nft.Set{Name: askingSet, Key: nftables.TypeIFName, Room: mostLinks, Lasts: 5 * time.Minute})
	}
	arp.Chains = []nft.Chain{input}
	if c.Group != 0 {
		return []nft.Table{arp}
	}
	return []nft.Table{arp, f.bridge(tenants, host, plugin, sender)}
}

// bridge is the table for guests on a bridge that they share with the owner's pods. What comes from a guest's port has its addresses, and is of
// IPv4. The other rules see IPv4 there only if the kernel shows it them (bridge-nf-call-iptables): else it is judged here, too.
func (f family) bridge(tenants []Tenant, host hostState, plugin Plugin, sender expr.Any) nft.Table {
	t := nft.Table{Family: nftables.TableFamilyBridge, Sets: append(f.links(host),
		f.calmly(nftables.TableFamilyBridge, host.calm6), named(outerSet, host.outer), named(standingSet, host.standing))}
	pairs := nft.Set{Name: hardwareSet, Key: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr)}
	for _, l := range host.guests {
		if l.mac != nil {
			pairs.Elements = append(pairs.Elements, nftables.SetElement{Key: slices.Concat(nft.Ifname(l.name), l.mac, []byte{0, 0})})
		}
	}
	t.Sets = append(t.Sets, pairs)
	hardware := &expr.Payload{DestRegister: unix.NFT_REG_2, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6}
	suspect := rule(mayBeGuests(), nft.FromNotIn(outerSet), nft.FromNotIn(standingSet))
	ipv4, ipv6, arp := protocol(unix.ETH_P_IP), protocol(unix.ETH_P_IPV6), protocol(unix.ETH_P_ARP)
	first := *nftables.ChainPriorityRaw
	t.Chains = []nft.Chain{
		{Name: "port", Hook: nftables.ChainHookPrerouting, Priority: first, Rules: [][]expr.Any{
			rule(nft.FromIn(guestLinksSet), goTo("guest")), rule(suspect, ipv6, drop()),
		}},
		{Name: "guest", Rules: [][]expr.Any{
			rule(nft.FromWithNotIn(hardware, hardwareSet), drop()),
			rule(ipv4, nft.FromWithNotIn(second(f.source()), addressesSet), drop()), rule(ipv4, accept()),
			rule(arp, nft.FromWithNotIn(sender, addressesSet), drop()), rule(arp, accept()),
			drop(),
		}},
	}
	if host.bridged {
		return t
	}
	// Connections are not tracked on bridges: what cannot begin any passes, and by UDP that is not to be told.
	between := [][]expr.Any{rule(ipv4, nft.Protocol(unix.IPPROTO_TCP), notTheFirst(), accept()), rule(ipv4, nft.ICMP(0), accept())}
	for _, tenant := range tenants {
		t.Sets = append(t.Sets, f.addresses(tenant.guests(), tenant.Guests...))
		between = append(between, rule(ipv4, is(f.source(), tenant.guests()), is(f.destination(), tenant.guests()), accept()))
	}
	t.Sets = append(t.Sets, f.addresses(ownSet, single(plugin.Own)...))
	t.Chains = append(t.Chains,
		nft.Chain{Name: "between", Hook: nftables.ChainHookForward, Rules: [][]expr.Any{
			rule(nft.FromIn(guestLinksSet), ipv4, goTo("beside")), rule(suspect, ipv4, isNot(f.source(), ownSet), goTo("beside")),
		}},
		nft.Chain{Name: "beside", Rules: append(between, drop())})
	return t
}

// links of guests, and the address of each.
func (f family) links(host hostState) []nft.Set {
	names, pairs := []string(nil), nft.Set{Name: addressesSet, Key: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)}
	for _, l := range host.guests {
		names = append(names, l.name)
		pairs.Elements = append(pairs.Elements, nftables.SetElement{Key: slices.Concat(nft.Ifname(l.name), l.addr.AsSlice())})
	}
	return []nft.Set{named(guestLinksSet, names), pairs}
}

func named(set string, names []string) nft.Set {
	return nft.Set{Name: set, Key: nftables.TypeIFName, Elements: interfaces(names)}
}

// calm is how long the kernel may treat unknown addresses as not a guest's.
type calm int

const (
	never   calm = iota // a guest is awaited
	lately              // guests are here: for calmFor, from when it was said last
	forGood             // there are none
)

// calmly is the set that has the table's family in it for as long.
func (f family) calmly(table nftables.TableFamily, c calm) nft.Set {
	s := nft.Set{Name: calmSet, Key: nftables.TypeNFProto, Passing: true}
	switch is := (nftables.SetElement{Key: []byte{byte(table)}}); c {
	case lately:
		is.Timeout = calmFor
		fallthrough
	case forGood:
		s.Elements = []nftables.SetElement{is}
	case never:
	}
	return s
}

// fromUnknown is what comes from a pod that may be a guest. Pods are known by the links that are not others', and by the range that the cluster gave
// this node; the owner's by their addresses.
func (f family) fromUnknown() [][]expr.Any {
	return [][]expr.Any{
		rule(mayBeGuests(), nft.FromNotIn(outerSet), isNot(f.source(), ownSet), goTo("unknown")),
		rule(mayBeGuests(), is(f.source(), localSet), isNot(f.source(), ownSet), nft.Not(nft.From("lo")), goTo("unknown")),
	}
}

// dropping6 is the table that drops what guests send by IPv6, of a cluster where they have IPv4 alone. Ports of pods' bridges are judged below.
func (c Config) dropping6(host hostState, closed []netip.Prefix) nft.Table {
	t := nft.Table{Family: nftables.TableFamilyIPv6}
	first := nft.Chain{Name: "guests", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw}
	if c.Group != 0 {
		first.Rules = [][]expr.Any{rule(nft.FromGroup(c.Group), drop())}
		t.Chains = []nft.Chain{first}
		return t
	}
	f := c.ipv6()
	first.Rules = [][]expr.Any{
		rule(nft.FromIn(guestLinksSet), drop()), rule(is(f.source(), guestsSet), drop()),
		rule(mayBeGuests(), nft.FromNotIn(outerSet), nft.FromNotIn(standingSet), drop()),
	}
	t.Sets = []nft.Set{
		f.links(host)[0], f.addresses(guestsSet, closed...), f.calmly(f.table, host.calm6), named(outerSet, host.outer),
		named(standingSet, slices.Concat(host.standing, host.bridges)),
	}
	t.Chains = []nft.Chain{first}
	return t
}

// asksForNeighbours matches what a guest asks for by addresses of its link more often than it needs: whose it says to be is a neighbour.
func (f family) asksForNeighbours() []expr.Any {
	const solicitation = 135
	often := &expr.Limit{Type: expr.LimitTypePkts, Rate: 1, Unit: expr.LimitTimeSecond, Burst: 10, Over: true}
	return rule(nft.SourceWithin(netip.MustParsePrefix("fe80::/10")), nft.ICMP6(solicitation), nft.MostOf(fromLink(), askingSet, often))
}

// iifname
func fromLink() expr.Any { return &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1} }

// second has a field be the second part of a key.
func second(field expr.Any) expr.Any {
	p := *field.(*expr.Payload)
	p.DestRegister = unix.NFT_REG_2
	return &p
}

// tcp flags & (syn | ack) != syn
func notTheFirst() []expr.Any {
	const flagsAt, syn, ack = 13, 0x02, 0x10
	return nft.Load(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1},
		nft.Masked([]byte{syn | ack}, nil), &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{syn}})
}

// meta nfproto != @calm
func mayBeGuests() []expr.Any {
	return isNot(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, calmSet)
}

// meta protocol P
func protocol(p uint16) []expr.Any {
	return nft.Load(&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, nft.Equal([]byte{byte(p >> 8), byte(p)}))
}
