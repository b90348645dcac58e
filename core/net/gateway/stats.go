package gateway

import (
	"fmt"
	"net/netip"
	"time"
)

// staleAfter is the age at which WireGuard gives a session up. With keepalive on, a living peer renews it each
// two minutes.
const staleAfter = 180 * time.Second

// Stats is what is known of the tunnel to one peer.
type Stats struct {
	Up             bool           // there was a handshake in the last three minutes, and the peer answers (see liveness)
	LastHandshake  time.Time      // zero: never since the gateway started
	Heard          time.Time      // when something came for the last time, to within 15 s; zero: never
	Received, Sent uint64         // bytes of tunnel traffic, with its overhead
	Endpoint       netip.AddrPort // where it was heard from last, or where it was said to be
	MTU            int            // for packets to it
	Off            string         // why there is no device, for people; empty while there is one, and before anybody tried
	Direct         []DirectStats  // ways past it, for its guests here
	Way            Way            // how packets get there; "" while it is not up
	By             string         // with WayCarried: who passes the connection on, for people; "" where nobody does
	Reason         Reason         // with WayCarried: why packets do not go by UDP
	Carried        bool           // packets go over a connection (Gateway.Carry), and not by UDP; Endpoint is where it was said to be
	Carrier        bool           // there is such a connection, which is used when UDP does not lead there any more
}

// Why tells, for people, why the tunnel is not up; empty when it is.
func (s Stats) Why(now time.Time) string {
	switch {
	case s.Up:
		return ""
	case s.Off != "":
		return s.Off
	case s.LastHandshake.IsZero():
		return "no handshake since kithd started"
	case now.Sub(s.LastHandshake) < staleAfter:
		return "no answer for " + ago(now.Sub(s.Heard))
	}
	return "no handshake for " + ago(now.Sub(s.LastHandshake))
}

// ago writes a duration with one unit.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
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
		s.MTU, s.Off, s.Direct = r.mtu, g.off, r.directStats()
		s.Up = !s.LastHandshake.IsZero() && time.Since(s.LastHandshake) < staleAfter
		if g.live != nil && s.Received > 0 {
			r.life.note(s.Received, time.Now())
			s.Heard, s.Up = r.life.heard, s.Up && !r.life.silent()
		}
		if r.lost = r.lost && r.carrier == nil && s.Received == r.lostAt; r.lost {
			s.Up = false
		}
		if r.fillWay(&s, time.Now()); !s.Up {
			s.Way, s.By, s.Reason = "", "", ""
		}
		if s.Carried || !s.Endpoint.IsValid() {
			s.Endpoint = r.Endpoint
		}
		out[id] = s
	}
	return out
}

// Carried is how many bytes of packets passed by the tunnel between the peer's guests here and their home, and between our guests there and us, since the
// peer was added: as pods sent them, both ways together.
func (g *Gateway) Carried(id string) (here, there uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.peers[id]; r != nil {
		return r.bytes.Here.Load(), r.bytes.There.Load()
	}
	return 0, 0
}
