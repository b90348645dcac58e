package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/net/netplan"
)

// overlapping gives the ranges of peers, by ID, that are in use for something else: by what this host is attached to, or as the
// address at which a peer is reached.
func (g *Gateway) overlapping(inUse []netip.Prefix) map[string][]netip.Prefix {
	at, laps := g.reachedAt(nil), map[string][]netip.Prefix{}
	for id, r := range g.peers {
		for _, p := range r.Ranges() {
			if !netplan.Free(p, inUse) || slices.ContainsFunc(at, p.Contains) {
				laps[id] = append(laps[id], p)
			}
		}
	}
	return laps
}

// reachedAt lists the IPv4 addresses of peers that may lie in an alias and yet be reached outside of the tunnel. Those that a
// peering connection led to may (Peer.Endpoint). Those that WireGuard learned from packets, which come with whatever source
// their sender writes, only if they are in an alias of that same peer: nobody else's packets are drawn there.
func (g *Gateway) reachedAt(learned map[Key]netip.AddrPort) (list []netip.Addr) {
	for _, r := range g.peers {
		if a := r.Endpoint.Addr(); a.Is4() {
			list = append(list, a)
		}
		a := learned[r.PublicKey].Addr().Unmap()
		if a.Is4() && slices.ContainsFunc(r.Ranges(), func(p netip.Prefix) bool { return p.Contains(a) }) && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// tellOverlaps calls Config.Changed when other ranges overlap than at the last call, and while there are any as often as the
// host is looked at anyway: whoever is told may not be able to do something about it yet.
func (g *Gateway) tellOverlaps(seen *watcher) {
	g.mu.Lock()
	laps := g.lapped
	g.mu.Unlock()
	same := maps.EqualFunc(laps, seen.lapped, slices.Equal)
	if same && (len(laps) == 0 || time.Since(seen.lappedAt) < resync) {
		return
	}
	seen.lapped, seen.lappedAt = laps, time.Now()
	if !same && len(laps) > 0 {
		g.cfg.Log.Info("addresses of guests are in use on this network, too; others are agreed on as soon as no pod has them", "peers", len(laps))
	}
	g.cfg.Changed()
}
