package gateway

import (
	"time"
)

// A dead tunnel looks well for up to three minutes, the lifetime of a WireGuard session; a host that only listens may hear nothing of its peer
// for as long. So each regular check of the host (resync) also looks at the bytes received from each peer, and sends the peer's gateway an
// ICMP echo if there were none since the check before.

// unheard is after how many checks in a row without any packet, although an echo was sent, a tunnel counts as down: after 45 s to a minute.
// It counts checks and not seconds, so that a process that was stopped sends an echo first.
const unheard = 3

// liveness is what was heard of one peer.
type liveness struct {
	received uint64    // bytes at the last look that saw more than the one before
	heard    time.Time // that look
	looked   time.Time // the last that counted
	misses   int       // looks since, in which nothing was new
}

// note takes in how many bytes came by now.
func (l *liveness) note(received uint64, now time.Time) {
	if received != l.received || l.heard.IsZero() {
		*l = liveness{received: received, heard: now, looked: now}
	}
}

// observe is note for one of the looks that are resync apart, and reports whether to ask the peer for an answer.
func (l *liveness) observe(received uint64, now time.Time) (ask bool) {
	l.note(received, now)
	if now.Sub(l.looked) < resync*9/10 {
		return false
	}
	l.looked = now
	l.misses++
	return true
}

func (l *liveness) silent() bool { return l.misses >= unheard }

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
