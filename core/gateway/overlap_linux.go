package gateway

import (
	"net/netip"
	"slices"
	"time"
)

// overlapping lists the peers one of whose aliases is in use for something else: by what this host is attached to, or as the
// address at which a peer is reached.
func (g *Gateway) overlapping(inUse []netip.Prefix, endpoints map[Key]netip.AddrPort) (ids []string) {
	for id, r := range g.peers {
		if slices.ContainsFunc(r.Theirs, func(m Mapping) bool {
			if !free(m.Alias, inUse) {
				return true
			}
			for _, ep := range endpoints {
				if m.Alias.Contains(ep.Addr().Unmap()) {
					return true
				}
			}
			return false
		}) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// tellOverlaps calls Config.Overlaps when there are others than at the last call, and while there are any as often as the
// host is looked at anyway: whoever is told may not be able to do something about it yet.
func (g *Gateway) tellOverlaps(w *watcher) {
	g.mu.Lock()
	ids := g.lapped
	g.mu.Unlock()
	if slices.Equal(ids, w.lapped) && (len(ids) == 0 || time.Since(w.lappedAt) < resync) {
		return
	}
	w.lapped, w.lappedAt = ids, time.Now()
	if len(ids) > 0 {
		g.cfg.Log.Info("addresses under which peers are seen here are in use on this network, others are chosen", "peers", len(ids))
		g.cfg.Overlaps(ids)
	}
}
