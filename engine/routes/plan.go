// Package routes keeps the ways from this node to the pods of the others: host routes, as on every network plugin that needs no tunnel
// (flannel's host-gw, for one), for nodes on one LAN. What the nodes are is read from the cluster; a pure function, Plan, makes ways of it;
// Run keeps the kernel's routes to them, and says to package network from where other nodes speak.
//
// It must never touch a route that is not its own, which are those of Protocol.
package routes

import (
	"fmt"
	"net/netip"
	"slices"
)

// Protocol marks the routes that are ours (rtm_protocol). The gateway of kithd has another number, and looks after its own alone.
const Protocol = 108

// Node is what of a node decides the ways to it.
type Node struct {
	Name string
	Pods netip.Prefix // the zero value: it has none yet, or is no real node
	IP   netip.Addr   // its address in the cluster
	LAN  netip.Addr   // where it is on the LAN
}

// Way is a route: what is sent to To goes to Via.
type Way struct {
	To  netip.Prefix
	Via netip.Addr
}

// Plan gives the ways from node own to the pods of the others, and the ranges from which they speak. Nodes come oldest first. A node says
// itself what its addresses are, so it is believed as far as it harms itself alone: its pods' range must be in the cluster's, and nobody
// else's. What was left out is in odd, in words.
func Plan(own string, cluster netip.Prefix, nodes []Node) (ways []Way, others []netip.Prefix, odd []string) {
	var taken []netip.Prefix
	for _, n := range nodes {
		if n.Name == own && n.Pods.IsValid() {
			taken = append(taken, n.Pods)
			if n.IP.IsValid() {
				taken = append(taken, host(n.IP))
			}
		}
	}
	for _, n := range nodes {
		if n.Name == own || !n.Pods.IsValid() || !n.LAN.Is4() {
			continue
		}
		to := []netip.Prefix{n.Pods.Masked()}
		if n.IP != n.LAN && n.IP.Is4() {
			to = append(to, host(n.IP))
		}
		i := slices.IndexFunc(to, func(p netip.Prefix) bool {
			return p.Bits() < cluster.Bits() || !cluster.Contains(p.Addr()) || slices.ContainsFunc(taken, p.Overlaps)
		})
		if i >= 0 || cluster.Contains(n.LAN) {
			odd = append(odd, fmt.Sprintf("node %s at %s has the range %s, which is not in %s or is another node's", n.Name, n.LAN, n.Pods, cluster))
			continue
		}
		for _, p := range to {
			ways = append(ways, Way{p, n.LAN})
		}
		taken = append(taken, to...)
		others = append(append(others, to...), host(n.LAN))
	}
	return ways, others, odd
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Changes are the routes to put and those to take away, to come from what there is to what is wanted.
func Changes(have, want []Way) (put, drop []Way) {
	for _, w := range want {
		if !slices.Contains(have, w) {
			put = append(put, w)
		}
	}
	for _, h := range have {
		if !slices.ContainsFunc(want, func(w Way) bool { return w.To == h.To }) {
			drop = append(drop, h)
		}
	}
	return put, drop
}
