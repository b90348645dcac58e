//go:build linux

package fence

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// linkedSet holds the ranges of all peers with a contract, in either role, as they are seen here.
const linkedSet = "linked"

// withHost adds what holds for this host's own traffic into the tunnel: it goes to peers only. What a route leads there that
// should not be (one that was left, or a mistake of somebody's) is told at once that it may not, instead of being handed to
// a peer. That is the API server's way to webhooks that run there, and what `kith doctor` sends; answers to what came by
// the tunnel pass anyway.
func (c Config) withHost(p plan, rel Relations) plan {
	p.sets = append(p.sets, set{name: linkedSet, key: nftables.TypeIPAddr, ranges: true, elements: spans(rel.linked())})
	p.chains = append(p.chains,
		chain{name: "output", hook: nftables.ChainHookOutput, priority: *nftables.ChainPriorityFilter, rules: [][]expr.Any{
			rule(to(c.Tunnel), goTo("host-to-tunnel")),
		}},
		chain{name: "host-to-tunnel", rules: [][]expr.Any{
			acceptAnswers(),
			rule(destinationIn(linkedSet), accept()),
			reject(),
		}})
	return p
}

func (r Relations) linked() (list []netip.Prefix) {
	for _, h := range r.homes() {
		list = append(list, h.ranges...)
	}
	return list
}
