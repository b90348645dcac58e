package gateway

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Who shows tunnels is told when one comes up or goes down. WireGuard tells neither. That one went down, for want of a handshake
// or of an answer, is seen with the looks at the host that are taken anyway (resync); that one came up, soon after something came.

// shook is what tell and handshake remember.
type shook struct {
	allUp atomic.Bool // no handshake brings another tunnel up
	soon  atomic.Bool // looks are on their way

	mu sync.Mutex
	up map[string]bool // as Config.Changed was called for last
}

// looks are when to look after something came, or a handshake was answered: here it completes the handshake at once, there with the first packet that follows.
var looks = [...]time.Duration{100 * time.Millisecond, time.Second}

// handshake looks soon whether a tunnel came up. It is called for packets that anybody may have sent, in the data path.
func (g *Gateway) handshake() {
	if g.shook.allUp.Load() || !g.shook.soon.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(looks[0], g.tell)
	time.AfterFunc(looks[1], func() {
		g.shook.soon.Store(false)
		g.tell()
	})
}

// tell calls Config.Changed when other tunnels are up than at the last call.
func (g *Gateway) tell() {
	g.shook.mu.Lock()
	defer g.shook.mu.Unlock()
	g.mu.Lock()
	up, all := map[string]bool{}, g.statsLocked()
	for id, s := range all {
		if s.Up {
			up[id] = true
		}
		g.peers[id].up.Store(s.Up)
	}
	g.shook.allUp.Store(len(up) == len(all)) // SetPeer takes it back, under the same lock
	g.mu.Unlock()
	if !maps.Equal(up, g.shook.up) {
		g.shook.up = up
		g.cfg.Changed()
	}
}
