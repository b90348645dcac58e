//go:build linux

package fence

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nft"
)

const dnsPort = 53

// chains of the table. Each packet that starts something is judged by where it goes, whatever was agreed before:
// only answers, and errors about what was let through, pass for their connection's sake. So a change of the
// policy holds for connections that are open, too.
func (f family) chains(tenants []Tenant, providers []Provider) []nft.Chain {
	list := []nft.Chain{
		{Name: "input", Hook: nftables.ChainHookInput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
			rule(f.fromGuest(), goTo("guest-to-host")), rule(nft.From(f.Tunnel), goTo("tunnel-to-host")),
		}},
		{Name: "forward", Hook: nftables.ChainHookForward, Priority: *nftables.ChainPriorityFilter, Rules: f.forward()},
		{Name: "output", Hook: nftables.ChainHookOutput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
			rule(to(f.Tunnel), goTo("host-to-tunnel")),
		}},
		{Name: "absent", Rules: f.absent()},
		{Name: "guest-to-host", Rules: f.guestToHost(tenants)},
		{Name: "tunnel-to-host", Rules: f.tunnelToHost()},
		{Name: "host-to-tunnel", Rules: f.hostToTunnel(tenants)},
		{Name: "guest", Rules: f.guest()},
		{Name: "internet", Rules: f.internet()},
		{Name: "from-tunnel", Rules: f.fromTunnel(tenants)},
		{Name: "into-tunnel", Rules: f.intoTunnel()},
		{Name: "to-guest", Rules: f.toGuest()},
		{Name: "errors-of-guests", Rules: f.errorsOfGuests(tenants)},
		{Name: "errors-of-peers", Rules: f.errorsOfPeers(tenants, providers)},
	}
	if f.Group != 0 {
		// Before connections are tracked. A guest's link leads to one address, and only from there it sends.
		list = append(list, nft.Chain{Name: "forged", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw, Rules: [][]expr.Any{
			rule(nft.FromGroup(f.Group), sourceForged(), drop()),
		}})
	}
	if f.Group != 0 && f.six {
		forged := &list[len(list)-1]
		forged.Rules = append(forged.Rules, rule(nft.FromGroup(f.Group), f.asksForNeighbours(), drop()))
	}
	if f.Group == 0 {
		list = append(list, f.unmasked(), nft.Chain{Name: "forged", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw, Rules: [][]expr.Any{
			rule(nft.FromIn(guestLinksSet), nft.FromWithNotIn(second(f.source()), addressesSet), drop()),
		}}, nft.Chain{Name: "unknown", Rules: append(append([][]expr.Any{acceptAnswers()}, f.dns()...), drop())})
		list[0].Rules = append(list[0].Rules, f.fromUnknown()...)
	}
	for _, t := range tenants {
		list = append(list, nft.Chain{Name: t.chain(), Rules: f.tenant(t)})
	}
	return list
}

// unmasked has pods keep their addresses on their way into the tunnel. The network plugin, whose pods they are, would hide them behind this
// machine's, as flannel does with all that leaves the range of pods: peers would not know guests from each other. Before its rules come to it
// each pod's address is translated to itself, and what is translated once is left alone (nf_nat_inet_fn).
func (f family) unmasked() nft.Chain {
	return nft.Chain{Name: "unmasked", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting, Priority: *nftables.ChainPriorityNATSource - 10, Rules: [][]expr.Any{
		rule(to(f.Tunnel), nft.SourceWithin(f.Pods), nft.Load(nft.Source(), &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})),
	}}
}

// forward sends each packet to the chain of its sender. Packets of others, the owner's pods and the world, are not judged by this table.
func (f family) forward() [][]expr.Any {
	rules := [][]expr.Any{rule(f.fromGuest(), goTo("guest"))}
	if f.Group == 0 {
		rules = append(rules, f.fromUnknown()...)
	}
	rules = append(rules, f.strayed()...)
	rules = append(rules, rule(nft.From(f.Tunnel), goTo("from-tunnel")), rule(to(f.Tunnel), goTo("into-tunnel")))
	if f.Group != 0 {
		rules = append(rules, rule(nft.ToGroup(f.Group), goTo("to-guest")))
	}
	return rules
}

// fromGuest matches what guests send. They are known by their links or, where they share a bridge with the owner's pods, by their
// addresses. What a guest on another node sends was judged there, where kube-proxy chose an endpoint: here nothing shows
// any more that it asked for a service, the cluster's DNS among them.
func (f family) fromGuest() []expr.Any {
	if f.Group != 0 {
		return nft.FromGroup(f.Group)
	}
	return rule(is(f.source(), guestsSet), isNot(f.source(), apartSet))
}

// strayed is what is meant for guests, here or at a provider, and has lost its way: without kithd there is no tunnel and no route into it,
// and the default route would take it, in the clear, to a router that may answer in the guest's place and end the connection. It is
// dropped, as on a line that is down for a moment. Where a nearer route leads there, a LAN or a VPN has such addresses.
// What guests send is not asked here, for their home's addresses are dropped in the tenant's chain.
func (f family) strayed() [][]expr.Any {
	return [][]expr.Any{
		rule(is(f.destination(), pairsSet), f.aRouterIsNext(), drop()),
		rule(is(f.destination(), pairsSet), toIn(uplinksSet), drop()),
	}
}

// absent answers guests and homes for an address of a guest that is not there, so that nobody waits for a pod that ended.
func (f family) absent() [][]expr.Any {
	return [][]expr.Any{rule(nft.Protocol(unix.IPPROTO_TCP), reset()), f.reject()}
}

// dns lets through what asks the cluster's DNS by its service address, wherever kube-proxy sends it: to a server on
// the node, or to a pod.
func (f family) dns() [][]expr.Any {
	return [][]expr.Any{
		rule(askedFor(unix.IPPROTO_UDP, f.DNS, dnsPort), accept()),
		rule(askedFor(unix.IPPROTO_TCP, f.DNS, dnsPort), accept()),
	}
}

// guestToHost: guests may ping the address that this host has in their range. Its others may be their home's too: what comes here
// of that has lost its way.
func (f family) guestToHost(tenants []Tenant) [][]expr.Any {
	rules := append(f.neighbours(), acceptAnswers(), rule(f.anError(), goTo("errors-of-guests")))
	rules = append(rules, f.dns()...)
	for _, t := range tenants {
		rules = append(rules,
			rule(is(f.source(), t.guests()), is(f.destination(), t.guests()), f.echoRequest(), accept()),
			rule(is(f.source(), t.guests()), is(f.destination(), t.home()), drop()))
	}
	return append(rules, rule(is(f.source(), guestsSet), f.reject()), drop())
}

// tunnelToHost: which services of this host peers may use is for the gateway to say, and none by UDP; new is here that only our guests there
// may. What they asked a service of home's for, kube-proxy may have sent here, to a pod on the host's network. A node port that leads nowhere is
// closed: a program of the owner's that listens on one is his.
func (f family) tunnelToHost() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(f.anError(), goTo("errors-of-peers")), rule(f.anErrorOfNothing(), drop()),
		rule(f.echoRequest(), accept()),
		rule(translated(), is(f.source(), abroadSet), nft.DestinationWithin(f.Pods), accept()),
		rule(nft.Protocol(unix.IPPROTO_TCP), nft.ToPorts(netplan.FirstNodePort, netplan.LastNodePort), drop()),
		rule(nft.Protocol(unix.IPPROTO_TCP), is(f.source(), abroadSet), nft.DestinationWithin(f.Pods), accept()),
		drop(),
	}
}

// hostToTunnel: this host's own traffic into the tunnel goes to our guests at providers, the API server's to webhooks that run there
// among it, and, from its address in the range of a home's guests, or the gateway's own where that is translated, to that home: `kith doctor` asks so. What a route leads
// there that should not be (one that was left, or a mistake of somebody's) is told at once that it may not, instead of being handed
// to a peer.
func (f family) hostToTunnel(tenants []Tenant) [][]expr.Any {
	rules := [][]expr.Any{acceptAnswers(), rule(is(f.destination(), abroadSet), accept())}
	for _, t := range tenants {
		own := is(f.source(), t.guests())
		if f.Group == 0 {
			own = nft.SourceWithin(netip.PrefixFrom(netplan.Cluster{Pods: f.Pods}.Gateway(), 32))
		}
		rules = append(rules, rule(own, is(f.destination(), t.home()), accept()))
	}
	return append(rules, f.reject())
}

// guest: one that is not known yet gets DNS and silence, so that it tries again in a moment.
func (f family) guest() [][]expr.Any {
	rules := append([][]expr.Any{acceptAnswers(), rule(f.anError(), goTo("errors-of-guests"))}, f.dns()...)
	return append(rules, decides(f.source(), tenantsMap), drop())
}

// tenant is what its guests may reach. Their home may have the addresses of the owner's pods, so a port of this host that leads to
// one of those would lead to who has the address there: they are closed before. Nor is home's address ever anybody's here. What core/provide/translate
// led there, to a range of home's by its name here, it marked.
func (f family) tenant(t Tenant) [][]expr.Any {
	rules := [][]expr.Any{rule(f.ledElsewhere(), nft.Not(askedWithin(f.Services)), f.reject())}
	if f.shares(t) && f.Group != 0 {
		rules = append(rules, rule(meantForHere(), f.toShared(t), accept()))
	}
	rules = append(rules,
		rule(f.toGuestsOf(t), accept()),
		rule(is(f.destination(), t.guests()), goTo("absent")),
		rule(to(f.Tunnel), is(f.destination(), t.home()), accept()),
		rule(is(f.destination(), t.home()), drop())) // the tunnel is down for a moment: it may try again
	if t.Internet {
		rules = append(rules, goTo("internet"))
	}
	return append(rules, f.reject())
}

// ledElsewhere matches what was asked for as something else, but for what Kith itself led where a plugin gives addresses.
func (f family) ledElsewhere() []expr.Any {
	if f.Group != 0 {
		return translated()
	}
	return rule(nft.Not(nft.Marked(nft.ConnectionMark, noderoute.Mark)), translated())
}

// toGuestsOf matches what goes to guests of a tenant that are there.
func (f family) toGuestsOf(t Tenant) []expr.Any {
	if f.Group != 0 {
		return rule(nft.ToGroup(f.Group), is(f.destination(), t.guests()))
	}
	return is(f.destination(), t.guests())
}

// internet is what lies behind a default route and nowhere nearer: not the LAN, even one with public addresses, nor
// networks that a VPN or a static route leads to.
func (f family) internet() [][]expr.Any {
	return [][]expr.Any{
		rule(is(f.destination(), closedSet), f.reject()),
		rule(is(f.destination(), routersSet), f.reject()),
		rule(to(f.Tunnel), f.reject()),
		rule(f.aRouterIsNext(), accept()),
		rule(toIn(uplinksSet), accept()),
		f.reject(),
	}
}

// toShared matches what goes to a port that a tenant reaches: ip daddr . meta l4proto . th dport @SET
func (f family) toShared(t Tenant) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: unix.NFT_REG32_00, Base: expr.PayloadBaseNetworkHeader, Offset: nft.DestinationAt, Len: 4},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG32_01},
		&expr.Payload{DestRegister: unix.NFT_REG32_02, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: unix.NFT_REG32_00, SetName: t.shared()},
	}
}

// meantForHere matches what a guest asked for by an address that is the owner's pod's for it (noderoute.Mark); without the mark the same address is home's.
func meantForHere() []expr.Any { return nft.Marked(nft.PacketMark, noderoute.Mark) }

// fromTunnel: a home reaches its own guests, and what of the owner's pods is shared with it; our guests at providers reach our own pods, and each other by this way. Whether a peer
// may send from an address was for the gateway to say.
func (f family) fromTunnel(tenants []Tenant) [][]expr.Any {
	rules := [][]expr.Any{acceptAnswers(), rule(f.anError(), goTo("errors-of-peers")), rule(f.anErrorOfNothing(), drop())}
	for _, t := range tenants {
		rules = append(rules,
			rule(f.toGuestsOf(t), is(f.source(), t.home()), accept()),
			rule(is(f.destination(), t.guests()), is(f.source(), t.home()), nft.Protocol(unix.IPPROTO_TCP), goTo("absent")))
		if f.shares(t) {
			rules = append(rules, rule(is(f.source(), t.aliases()), f.toShared(t), accept()))
		}
	}
	return append(rules,
		rule(is(f.destination(), guestsSet), drop()),
		rule(is(f.source(), abroadSet), nft.DestinationWithin(f.Pods), accept()),
		rule(to(f.Tunnel), is(f.source(), abroadSet), is(f.destination(), abroadSet), accept()),
		drop())
}

// intoTunnel is for whoever is no guest: the owner's pods reach ours at providers, not a consumer's home. What a neighbour on the LAN
// sends in a guest's name would be led to that guest's home; guests of other nodes come this way where the tunnel is here. The range of
// guests here leads into the tunnel, too, but for those that are there: who asks for one that is not is told at once.
func (f family) intoTunnel() [][]expr.Any {
	return [][]expr.Any{
		rule(is(f.source(), apartSet), goTo("guest")),
		acceptAnswers(), rule(f.anError(), nft.SourceWithin(f.Pods), accept()),
		rule(is(f.source(), guestsSet), drop()),
		rule(is(f.destination(), abroadSet), accept()),
		f.reject(),
	}
}

// toGuest is for what comes from elsewhere than a guest or the tunnel: the owner's pods may, the LAN may not, but by a port
// of this host that somebody opened for it (hostPort, NodePort). The owner's pods are known by their bridge, for the way back to their
// addresses, asked for a guest's sake, leads to its home; one that is shared with a home has an address of guests for these. An error that reaches a guest is about a connection of its own: the
// kernel takes no other for related.
func (f family) toGuest() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(f.anError(), accept()),
		rule(nft.From(netplan.Bridge), nft.SourceWithin(f.Pods), accept()),
		rule(nft.From(netplan.Bridge), is(f.source(), guestsSet), accept()),
		rule(translated(), nft.Not(askedWithin(f.Services)), accept()),
		drop(),
	}
}

// errorsOfGuests: conntrack takes an error for related by the packet that it quotes, whoever sends it. With errors that
// quote them a guest could break connections of the owner; so it is heard only about what was sent to its tenant.
func (f family) errorsOfGuests(tenants []Tenant) (rules [][]expr.Any) {
	for _, t := range tenants {
		rules = append(rules, rule(is(f.source(), t.guests()), is(f.quotes(), t.guests()), accept()))
	}
	return append(rules, drop())
}

// errorsOfPeers: the same for what comes through the tunnel, where the routers of a peer speak for its pods.
func (f family) errorsOfPeers(tenants []Tenant, providers []Provider) (rules [][]expr.Any) {
	for _, t := range tenants {
		rules = append(rules, rule(is(f.destination(), t.guests()), is(f.source(), t.home()), is(f.quotes(), t.home()), accept()))
	}
	for _, p := range providers {
		if !f.has(f.of(p)) {
			continue
		}
		rules = append(rules, rule(nft.SourceWithin(f.of(p)), nft.Load(f.quotes(), nft.Within(f.of(p))...), accept()))
	}
	return append(rules, drop())
}
