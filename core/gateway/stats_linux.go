package gateway

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
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

func (e *engine) stats() map[Key]Stats {
	text, err := e.dev.IpcGet()
	if err != nil {
		return nil
	}
	return parseStats(text)
}

func (e *engine) endpoints() map[Key]netip.AddrPort {
	out := map[Key]netip.AddrPort{}
	for k, s := range e.stats() {
		if s.Endpoint.IsValid() {
			out[k] = s.Endpoint
		}
	}
	return out
}

// parseStats reads WireGuard's configuration protocol: lines of key=value, a peer begins with its public key.
func parseStats(text string) map[Key]Stats {
	out := map[Key]Stats{}
	var key Key
	var s Stats
	var sec, nsec int64
	flush := func() {
		if key.IsZero() {
			return
		}
		if sec != 0 || nsec != 0 {
			s.LastHandshake = time.Unix(sec, nsec)
		}
		out[key] = s
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "public_key":
			flush()
			key, s, sec, nsec = Key{}, Stats{}, 0, 0
			if b, err := hex.DecodeString(value); err == nil && len(b) == len(key) {
				key = Key(b)
			}
		case "endpoint":
			s.Endpoint, _ = netip.ParseAddrPort(value)
		case "last_handshake_time_sec":
			sec, _ = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			nsec, _ = strconv.ParseInt(value, 10, 64)
		case "rx_bytes":
			s.Received, _ = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			s.Sent, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	flush()
	return out
}
