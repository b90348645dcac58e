package gateway

import (
	"net/netip"
	"time"
)

// staleAfter is the age at which WireGuard gives a session up. With keepalive on, a living peer renews it each
// two minutes.
const staleAfter = 180 * time.Second

// Stats is what is known of the tunnel to one peer.
type Stats struct {
	Up             bool           // there was a handshake in the last three minutes
	LastHandshake  time.Time      // zero: never since the gateway started
	Received, Sent uint64         // bytes of tunnel traffic, with its overhead
	Endpoint       netip.AddrPort // where it was heard from last, or where it was said to be
	MTU            int            // for packets to it
}

// Stats of one peer; false when it is unknown.
func (g *Gateway) Stats(id string) (Stats, bool) {
	s, ok := g.StatsAll()[id]
	return s, ok
}

// StatsAll gives the tunnels of all peers by their ID.
func (g *Gateway) StatsAll() map[string]Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.statsLocked()
}

func (g *Gateway) statsLocked() map[string]Stats {
	byKey := map[Key]Stats{}
	if g.live != nil {
		byKey = g.live.stats()
	}
	out := make(map[string]Stats, len(g.peers))
	for id, r := range g.peers {
		s := byKey[r.PublicKey]
		s.MTU = r.mtu
		s.Up = !s.LastHandshake.IsZero() && time.Since(s.LastHandshake) < staleAfter
		if !s.Endpoint.IsValid() {
			s.Endpoint = r.Endpoint
		}
		out[id] = s
	}
	return out
}
