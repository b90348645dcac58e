package gateway

import "time"

// Who shows tunnels is told when one comes up or goes down. WireGuard tells neither. That one went down, for want of a handshake
// or of an answer, is seen with the looks at the host that are taken anyway (resync); that one came up, soon after something came.

// looks are when to look after something came, or a handshake was answered: here it completes the handshake at once, there with the first packet that follows.
var looks = [...]time.Duration{100 * time.Millisecond, time.Second}

// handshake looks soon whether a tunnel came up. It is called for packets that anybody may have sent, in the data path.
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
