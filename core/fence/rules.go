//go:build linux

package fence

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/netplan"
	"kith.dev/core/nft"
)

const dnsPort = 53

// chains of the table. Each packet that starts something is judged by where it goes, whatever was agreed before:
// only answers, and errors about what was let through, pass for their connection's sake. So a change of the
// policy holds for connections that are open, too.
func (c Config) chains(tenants []Tenant, providers []Provider) []nft.Chain {
	list := []nft.Chain{
		{Name: "input", Hook: nftables.ChainHookInput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
			rule(c.fromGuest(), goTo("guest-to-host")), rule(nft.From(c.Tunnel), goTo("tunnel-to-host")),
		}},
		{Name: "forward", Hook: nftables.ChainHookForward, Priority: *nftables.ChainPriorityFilter, Rules: c.forward()},
		{Name: "output", Hook: nftables.ChainHookOutput, Priority: *nftables.ChainPriorityFilter, Rules: [][]expr.Any{
			rule(to(c.Tunnel), goTo("host-to-tunnel")),
		}},
		{Name: "absent", Rules: absent()},
		{Name: "guest-to-host", Rules: c.guestToHost(tenants)},
		{Name: "tunnel-to-host", Rules: c.tunnelToHost()},
		{Name: "host-to-tunnel", Rules: c.hostToTunnel(tenants)},
		{Name: "guest", Rules: c.guest()},
		{Name: "internet", Rules: c.internet()},
		{Name: "from-tunnel", Rules: c.fromTunnel(tenants)},
		{Name: "into-tunnel", Rules: c.intoTunnel()},
		{Name: "to-guest", Rules: c.toGuest()},
		{Name: "errors-of-guests", Rules: errorsOfGuests(tenants)},
		{Name: "errors-of-peers", Rules: errorsOfPeers(tenants, providers)},
	}
	if c.Group != 0 {
		// Before connections are tracked. A guest's link leads to one address, and only from there it sends.
		list = append(list, nft.Chain{Name: "forged", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw, Rules: [][]expr.Any{
			rule(nft.FromGroup(c.Group), sourceForged(), drop()),
		}})
	}
	if c.Group == 0 {
		list = append(list, c.unmasked())
	}
	for _, t := range tenants {
		list = append(list, nft.Chain{Name: t.chain(), Rules: c.tenant(t)})
	}
	return list
}

// unmasked has pods keep their addresses on their way into the tunnel. The network plugin, whose pods they are, would hide them behind this
// machine's, as flannel does with all that leaves the range of pods: peers would not know guests from each other. Before its rules come to it
// each pod's address is translated to itself, and what is translated once is left alone (nf_nat_inet_fn).
func (c Config) unmasked() nft.Chain {
	return nft.Chain{Name: "unmasked", Type: nftables.ChainTypeNAT, Hook: nftables.ChainHookPostrouting, Priority: *nftables.ChainPriorityNATSource - 10, Rules: [][]expr.Any{
		rule(to(c.Tunnel), nft.SourceWithin(c.Pods), nft.Load(nft.Source(), &expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})),
	}}
}

// chains6 drop what guests send by IPv6.
func (c Config) chains6() []nft.Chain {
	if c.Group == 0 {
		return nil
	}
	return []nft.Chain{{Name: "guests", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw, Rules: [][]expr.Any{
		rule(nft.FromGroup(c.Group), drop()),
	}}}
}

// forward sends each to his chain. Whoever is not named, the owner's pods and the world, is none of this table's.
func (c Config) forward() [][]expr.Any {
	rules := append([][]expr.Any{rule(c.fromGuest(), goTo("guest"))}, strayed()...)
	rules = append(rules, rule(nft.From(c.Tunnel), goTo("from-tunnel")), rule(to(c.Tunnel), goTo("into-tunnel")))
	if c.Group != 0 {
		rules = append(rules, rule(nft.ToGroup(c.Group), goTo("to-guest")))
	}
	return rules
}

// fromGuest matches what guests send. They are known by their links or, where they share a bridge with the owner's pods, by their
// addresses. What a guest on another node sends was judged there, where kube-proxy chose an endpoint: here nothing shows
// any more that it asked for a service, the cluster's DNS among them.
func (c Config) fromGuest() []expr.Any {
	if c.Group != 0 {
		return nft.FromGroup(c.Group)
	}
	return rule(is(source(), guestsSet), isNot(source(), apartSet))
}

// strayed is what is meant for guests, here or at a provider, and has lost its way: without kithd there is no tunnel and no route into it,
// and the default route would take it, in the clear, to a router that may answer in the guest's place and end the connection. It is
// dropped, as on a line that is down for a moment. Where a nearer route leads there, a LAN or a VPN has such addresses.
// What guests send is not asked here, for their home's addresses are dropped in the tenant's chain.
func strayed() [][]expr.Any {
	return [][]expr.Any{
		rule(is(destination(), pairsSet), nextHopIn(routersSet), drop()),
		rule(is(destination(), pairsSet), toIn(uplinksSet), drop()),
	}
}

// absent answers guests and homes for an address of a guest that is not there, so that nobody waits for a pod that ended.
func absent() [][]expr.Any {
	return [][]expr.Any{rule(nft.Protocol(unix.IPPROTO_TCP), reset()), reject()}
}

// dns lets through what asks the cluster's DNS by its service address, wherever kube-proxy sends it: to a server on
// the node, or to a pod.
func (c Config) dns() [][]expr.Any {
	return [][]expr.Any{
		rule(askedFor(unix.IPPROTO_UDP, c.DNS, dnsPort), accept()),
		rule(askedFor(unix.IPPROTO_TCP, c.DNS, dnsPort), accept()),
	}
}

// guestToHost: guests may ping the address that this host has in their range. Its others may be their home's too: what comes here
// of that has lost its way.
func (c Config) guestToHost(tenants []Tenant) [][]expr.Any {
	rules := append([][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-guests"))}, c.dns()...)
	for _, t := range tenants {
		rules = append(rules,
			rule(is(source(), t.guests()), is(destination(), t.guests()), echoRequest(), accept()),
			rule(is(source(), t.guests()), is(destination(), t.home()), drop()))
	}
	return append(rules, rule(is(source(), guestsSet), reject()), drop())
}

// tunnelToHost: which services of this host peers may use is for the gateway to say, and none by UDP; new is here that only our guests there
// may. What they asked a service of home's for, kube-proxy may have sent here, to a pod on the host's network. A node port that leads nowhere is
// closed: a program of the owner's that listens on one is his.
func (c Config) tunnelToHost() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(anError(), goTo("errors-of-peers")), rule(anErrorOfNothing(), drop()),
		rule(echoRequest(), accept()),
		rule(translated(), is(source(), abroadSet), nft.DestinationWithin(c.Pods), accept()),
		rule(nft.Protocol(unix.IPPROTO_TCP), nft.ToPorts(netplan.FirstNodePort, netplan.LastNodePort), drop()),
		rule(nft.Protocol(unix.IPPROTO_TCP), is(source(), abroadSet), nft.DestinationWithin(c.Pods), accept()),
		drop(),
	}
}

// hostToTunnel: this host's own traffic into the tunnel goes to our guests at providers, the API server's to webhooks that run there
// among it, and, from its address in the range of a home's guests, or the gateway's own where that is translated, to that home: `kith doctor` asks so. What a route leads
// there that should not be (one that was left, or a mistake of somebody's) is told at once that it may not, instead of being handed
// to a peer.
func (c Config) hostToTunnel(tenants []Tenant) [][]expr.Any {
	rules := [][]expr.Any{acceptAnswers(), rule(is(destination(), abroadSet), accept())}
	for _, t := range tenants {
		own := is(source(), t.guests())
		if c.Group == 0 {
			own = nft.SourceWithin(netip.PrefixFrom(netplan.Cluster{Pods: c.Pods}.Gateway(), 32))
		}
		rules = append(rules, rule(own, is(destination(), t.home()), accept()))
	}
	return append(rules, reject())
}

// guest: one that is not known yet gets DNS and silence, so that it tries again in a moment.
func (c Config) guest() [][]expr.Any {
	rules := append([][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-guests"))}, c.dns()...)
	return append(rules, decides(source(), tenantsMap), drop())
}

// tenant is what its guests may reach. Their home may have the addresses of the owner's pods, so a port of this host that leads to
// one of those would lead to who has the address there: they are closed before. Nor is home's address ever anybody's here.
func (c Config) tenant(t Tenant) [][]expr.Any {
	rules := [][]expr.Any{
		rule(translated(), nft.Not(askedWithin(c.Services)), reject()),
		rule(c.toGuestsOf(t), accept()),
		rule(is(destination(), t.guests()), goTo("absent")),
		rule(to(c.Tunnel), is(destination(), t.home()), accept()),
		rule(is(destination(), t.home()), drop()), // the tunnel is down for a moment: it may try again
	}
	if t.Internet {
		rules = append(rules, goTo("internet"))
	}
	return append(rules, reject())
}

// toGuestsOf matches what goes to guests of a tenant that are there.
func (c Config) toGuestsOf(t Tenant) []expr.Any {
	if c.Group != 0 {
		return rule(nft.ToGroup(c.Group), is(destination(), t.guests()))
	}
	return is(destination(), t.guests())
}

// internet is what lies behind a default route and nowhere nearer: not the LAN, even one with public addresses, nor
// networks that a VPN or a static route leads to.
func (c Config) internet() [][]expr.Any {
	return [][]expr.Any{
		rule(is(destination(), closedSet), reject()),
		rule(is(destination(), routersSet), reject()),
		rule(to(c.Tunnel), reject()),
		rule(nextHopIn(routersSet), accept()),
		rule(toIn(uplinksSet), accept()),
		reject(),
	}
}

// fromTunnel: a home reaches its own guests; our guests at providers reach our own pods, and each other by this way. Whether a peer
// may send from an address was for the gateway to say.
func (c Config) fromTunnel(tenants []Tenant) [][]expr.Any {
	rules := [][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-peers")), rule(anErrorOfNothing(), drop())}
	for _, t := range tenants {
		rules = append(rules,
			rule(c.toGuestsOf(t), is(source(), t.home()), accept()),
			rule(is(destination(), t.guests()), is(source(), t.home()), nft.Protocol(unix.IPPROTO_TCP), goTo("absent")))
	}
	return append(rules,
		rule(is(destination(), guestsSet), drop()),
		rule(is(source(), abroadSet), nft.DestinationWithin(c.Pods), accept()),
		rule(to(c.Tunnel), is(source(), abroadSet), is(destination(), abroadSet), accept()),
		drop())
}

// intoTunnel is for whoever is no guest: the owner's pods reach ours at providers, not a consumer's home. What a neighbour on the LAN
// sends in a guest's name would be led to that guest's home; guests of other nodes come this way where the tunnel is here. The range of guests here leads into the tunnel, too, but for those that
// are there: who asks for one that is not is told at once.
func (c Config) intoTunnel() [][]expr.Any {
	return [][]expr.Any{
		rule(is(source(), apartSet), goTo("guest")),
		acceptAnswers(), rule(anError(), nft.SourceWithin(c.Pods), accept()),
		rule(is(source(), guestsSet), drop()),
		rule(is(destination(), abroadSet), accept()),
		reject(),
	}
}

// toGuest is for what comes from elsewhere than a guest or the tunnel: the owner's pods may, the LAN may not, but by a port
// of this host that somebody opened for it (hostPort, NodePort). The owner's pods are known by their bridge, for the way back to their
// addresses, asked for a guest's sake, leads to its home. An error that reaches a guest is about a connection of its own: the
// kernel takes no other for related.
func (c Config) toGuest() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(anError(), accept()),
		rule(nft.From(netplan.Bridge), nft.SourceWithin(c.Pods), accept()),
		rule(translated(), nft.Not(askedWithin(c.Services)), accept()),
		drop(),
	}
}

// errorsOfGuests: conntrack takes an error for related by the packet that it quotes, whoever sends it. With errors that
// quote them a guest could break connections of the owner; so it is heard only about what was sent to its tenant.
func errorsOfGuests(tenants []Tenant) (rules [][]expr.Any) {
	for _, t := range tenants {
		rules = append(rules, rule(is(source(), t.guests()), is(quotes(), t.guests()), accept()))
	}
	return append(rules, drop())
}

// errorsOfPeers: the same for what comes through the tunnel, where the routers of a peer speak for its pods.
func errorsOfPeers(tenants []Tenant, providers []Provider) (rules [][]expr.Any) {
	for _, t := range tenants {
		rules = append(rules, rule(is(destination(), t.guests()), is(source(), t.home()), is(quotes(), t.home()), accept()))
	}
	for _, p := range providers {
		rules = append(rules, rule(nft.SourceWithin(p.Guests), nft.Load(quotes(), nft.Within(p.Guests)...), accept()))
	}
	return append(rules, drop())
}
