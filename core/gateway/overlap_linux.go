package gateway

import (
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/netplan"
)

// overlapping lists the peers one of whose aliases is in use for something else: by what this host is attached to, or as the
// address at which a peer is reached.
func (g *Gateway) overlapping(inUse []netip.Prefix) (ids []string) {
	at := g.reachedAt(nil)
	for id, r := range g.peers {
		if slices.ContainsFunc(r.Ranges(), func(p netip.Prefix) bool {
			return !netplan.Free(p, inUse) || slices.ContainsFunc(at, p.Contains)
		}) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
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

// tellOverlaps calls Config.Overlaps when there are others than at the last call, and while there are any as often as the
// host is looked at anyway: whoever is told may not be able to do something about it yet.
func (g *Gateway) tellOverlaps(seen *watcher) {
	g.mu.Lock()
	ids := g.lapped
	g.mu.Unlock()
	if slices.Equal(ids, seen.lapped) && (len(ids) == 0 || time.Since(seen.lappedAt) < resync) {
		return
	}
	seen.lapped, seen.lappedAt = ids, time.Now()
	if len(ids) > 0 {
		g.cfg.Log.Info("addresses of guests are in use on this network, too; others are agreed on as soon as no pod has them", "peers", len(ids))
		g.cfg.Overlaps(ids)
	}
}
