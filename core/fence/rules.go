//go:build linux

package fence

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const dnsPort = 53

// chains of the table. Each packet that starts something is judged by where it goes, whatever was agreed before:
// only answers, and errors about what was let through, pass for their connection's sake. So a change of the
// policy holds for connections that are open, too.
func (c Config) chains(tenants []Tenant, homes []home) []chain {
	list := []chain{
		{name: "input", hook: nftables.ChainHookInput, priority: *nftables.ChainPriorityFilter, rules: c.perGuest("guest-to-host", rule(from(c.Tunnel), goTo("tunnel-to-host")))},
		{name: "forward", hook: nftables.ChainHookForward, priority: *nftables.ChainPriorityFilter, rules: append(strayed(), c.perGuest("guest", c.toOthers()...)...)},
		{name: "guest-to-host", rules: c.guestToHost()},
		{name: "tunnel-to-host", rules: tunnelToHost()},
		{name: "guest", rules: c.guest()},
		{name: "internet", rules: c.internet()},
		{name: "from-tunnel", rules: c.fromTunnel(tenants)},
		{name: "into-tunnel", rules: c.intoTunnel()},
		{name: "to-guest", rules: c.toGuest()},
		{name: "errors-of-guests", rules: errorsOfGuests(tenants)},
		{name: "errors-of-peers", rules: errorsOfPeers(homes)},
		{name: "output", hook: nftables.ChainHookOutput, priority: *nftables.ChainPriorityFilter, rules: [][]expr.Any{
			rule(to(c.Tunnel), goTo("host-to-tunnel")),
		}},
		{name: "host-to-tunnel", rules: hostToTunnel()},
	}
	if c.Group != 0 {
		// Before connections are tracked. A guest's link leads to one address, and only from there it sends.
		list = append(list, chain{name: "forged", hook: nftables.ChainHookPrerouting, priority: *nftables.ChainPriorityRaw, rules: [][]expr.Any{
			rule(fromGroup(c.Group), sourceForged(), drop()),
		}})
	}
	for _, t := range tenants {
		list = append(list, chain{name: t.chain(), rules: c.tenant(t)})
	}
	return list
}

// strayed is what is meant for a peer and has lost its way: without kithd there is no tunnel and no route into it, and the
// default route would take it, in the clear, to a router that may answer in the peer's place and end the connection. It is
// dropped, as on a line that is down for a moment. Where a nearer route leads there, a LAN or a VPN has such addresses, and the
// gateway is choosing others for the peer.
func strayed() [][]expr.Any {
	return [][]expr.Any{
		rule(destinationIn(linkedSet), nextHopIn(routersSet), drop()),
		rule(destinationIn(linkedSet), toIn(uplinksSet), drop()),
	}
}

// perGuest sends what comes from guests to one chain: known by their link or, where guests share a bridge with the
// owner's pods, by their address.
func (c Config) perGuest(to string, more ...[]expr.Any) (rules [][]expr.Any) {
	if c.Group != 0 {
		rules = append(rules, rule(fromGroup(c.Group), goTo(to)))
	}
	return append(append(rules, rule(sourceIn(guestsSet), goTo(to))), more...)
}

// toOthers sends on what comes from whoever is no guest.
func (c Config) toOthers() [][]expr.Any {
	rules := [][]expr.Any{rule(from(c.Tunnel), goTo("from-tunnel")), rule(to(c.Tunnel), goTo("into-tunnel"))}
	if c.Group != 0 {
		rules = append(rules, rule(toGroup(c.Group), goTo("to-guest")))
	}
	return rules
}

// dns lets through what asks the cluster's DNS by its service address, wherever kube-proxy sends it: to a server on
// the node, or to a pod.
func (c Config) dns() [][]expr.Any {
	return [][]expr.Any{
		rule(askedFor(unix.IPPROTO_UDP, c.DNS, dnsPort), accept()),
		rule(askedFor(unix.IPPROTO_TCP, c.DNS, dnsPort), accept()),
	}
}

func (c Config) guestToHost() [][]expr.Any {
	rules := append([][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-guests"))}, c.dns()...)
	return append(rules,
		rule(echoRequest(), destinationWithin(c.Pods), accept()), // is my gateway there? It is no secret.
		rule(sourceIn(guestsSet), reject()),
		drop())
}

// tunnelToHost: which services of this host peers may use is for the gateway to say; new is here that only pods of ours
// may that run there.
func tunnelToHost() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(anError(), goTo("errors-of-peers")), rule(anErrorOfNothing(), drop()),
		rule(echoRequest(), accept()),
		rule(sourceIn(ownSet), accept()),
		drop(),
	}
}

// hostToTunnel: this host's own traffic into the tunnel goes to peers only. What a route leads there that should not be (one that
// was left, or a mistake of somebody's) is told at once that it may not, instead of being handed to a peer. That is the API
// server's way to webhooks that run there, and what `kith doctor` sends; answers to what came by the tunnel pass anyway.
func hostToTunnel() [][]expr.Any {
	return [][]expr.Any{acceptAnswers(), rule(destinationIn(linkedSet), accept()), reject()}
}

// guest: one that is not known yet gets DNS and silence, so that it tries again in a moment.
func (c Config) guest() [][]expr.Any {
	rules := append([][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-guests"))}, c.dns()...)
	return append(rules, sourceDecides(tenantsMap), drop())
}

func (c Config) tenant(t Tenant) [][]expr.Any {
	rules := [][]expr.Any{
		rule(destinationIn(t.guests()), accept()),
		rule(to(c.Tunnel), destinationIn(homeSet(t.Consumer)), accept()),
		rule(destinationIn(homeSet(t.Consumer)), drop()), // the tunnel is down for a moment: it may try again
	}
	if t.Internet {
		rules = append(rules, goTo("internet"))
	}
	return append(rules, reject())
}

// internet is what lies behind a default route and nowhere nearer: not the LAN, even one with public addresses, nor
// networks that a VPN or a static route leads to.
func (c Config) internet() [][]expr.Any {
	return [][]expr.Any{
		rule(destinationIn(closedSet), reject()),
		rule(destinationIn(routersSet), reject()),
		rule(to(c.Tunnel), reject()),
		rule(nextHopIn(routersSet), accept()),
		rule(toIn(uplinksSet), accept()),
		reject(),
	}
}

// fromTunnel: a consumer reaches its own guests, and our pods that run at a provider reach our own pods. Those are told
// from the provider's by the addresses in their status, so a new one tries again until that is known.
func (c Config) fromTunnel(tenants []Tenant) [][]expr.Any {
	rules := [][]expr.Any{acceptAnswers(), rule(anError(), goTo("errors-of-peers")), rule(anErrorOfNothing(), drop())}
	for _, t := range tenants {
		rules = append(rules, rule(sourceIn(homeSet(t.Consumer)), destinationIn(t.guests()), accept()))
	}
	if c.Group != 0 {
		rules = append(rules, rule(toGroup(c.Group), drop()))
	}
	return append(rules,
		rule(destinationIn(guestsSet), drop()),
		rule(sourceIn(ownSet), destinationWithin(c.Pods), accept()),
		drop())
}

// intoTunnel is for whoever is no guest: the owner's pods reach their like at our providers, not a consumer's home.
func (c Config) intoTunnel() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(anError(), sourceWithin(c.Pods), accept()),
		rule(destinationIn(abroadSet), accept()),
		reject(),
	}
}

// toGuest is for what comes from elsewhere than a guest or the tunnel: the owner's pods may, the LAN may not, but by a port
// of this host that somebody opened for it (hostPort, NodePort). An error that reaches a guest is about a connection of
// its own: the kernel takes no other for related.
func (c Config) toGuest() [][]expr.Any {
	return [][]expr.Any{
		acceptAnswers(), rule(anError(), accept()),
		rule(sourceForged(), drop()),
		rule(sourceWithin(c.Pods), accept()),
		rule(tracked(expr.CtKeySTATUS, statusDNAT), askedWithin(c.Services), drop()),
		rule(tracked(expr.CtKeySTATUS, statusDNAT), accept()),
		drop(),
	}
}

// errorsOfGuests: conntrack takes an error for related by the packet that it quotes, whoever sends it. With errors that
// quote them a guest could break connections of the owner; so it is heard only about what was sent to its tenant.
func errorsOfGuests(tenants []Tenant) (rules [][]expr.Any) {
	for _, t := range tenants {
		rules = append(rules, rule(sourceIn(t.guests()), quotedTo(t.guests()), accept()))
	}
	return append(rules, drop())
}

// errorsOfPeers: the same for what comes through the tunnel, where the routers of a peer speak for its pods.
func errorsOfPeers(homes []home) (rules [][]expr.Any) {
	for _, h := range homes {
		rules = append(rules, rule(sourceIn(homeSet(h.peer)), quotedTo(homeSet(h.peer)), accept()))
	}
	return append(rules, drop())
}
