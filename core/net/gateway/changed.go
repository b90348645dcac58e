package gateway

import "time"

// WireGuard does not report when a tunnel comes up or goes down. That one went down, without a handshake or an answer, is found by the
// regular checks of the host (resync); that one came up, by a check soon after a packet arrived.

// looks are when to look after something came, or a handshake was answered: here it completes the handshake at once, there with the first packet that follows.
var looks = [...]time.Duration{100 * time.Millisecond, time.Second}

// handshake schedules a check whether a tunnel came up. It is called in the data path, for packets that anybody may have sent.
func (g *Gateway) handshake() {
	if g.allUp.Load() || !g.soon.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(looks[0], g.tell)
	time.AfterFunc(looks[1], func() {
		g.soon.Store(false)
		g.tell()
	})
}

// tell calls Config.Changed when other tunnels are up than at the last call.
func (g *Gateway) tell() {
	g.mu.Lock()
	changed, all := g.gone, true
	g.gone = false
	for id, s := range g.statsLocked() {
		changed = g.peers[id].up.Swap(s.Up) != s.Up || changed
		all = all && s.Up
	}
	g.allUp.Store(all) // SetPeer takes it back, under the same lock
	g.mu.Unlock()
	if changed {
		g.cfg.Changed()
	}
}
