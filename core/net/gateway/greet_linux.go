package gateway

import (
	"bytes"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// greet sends the peer an empty packet, so that it learns this host's endpoint after a restart or a move. Without a current session that starts
// a handshake. Callers hold mu.
//
// Both sides of a new peering call greet at about the same time, and handshakes that cross break each other (see simultaneous). So the side with
// the higher key waits for the other. Initiations that are lost, because the peer does not know our key yet, are repeated soon; WireGuard
// itself would wait five seconds.
func (g *Gateway) greet(p Peer) {
	w, r := g.live, g.peers[p.ID]
	tries := []time.Duration{0, 300 * time.Millisecond, 1200 * time.Millisecond}
	if own := g.PublicKey(); w.fresh(r.PublicKey) {
		tries = inSession
	} else if r.Endpoint.IsValid() && bytes.Compare(own[:], p.PublicKey[:]) > 0 {
		tries = []time.Duration{100 * time.Millisecond, 600 * time.Millisecond, 2400 * time.Millisecond}
	}
	for _, after := range tries {
		if after == 0 {
			w.hello(r.Peer)
		} else {
			time.AfterFunc(after, func() { g.insist(w, r) })
		}
	}
}

// inSession are when a greeting within a session is sent, and sent again: a link that just came up loses what is sent in its first
// moments, nobody acknowledges greetings, and a host that only listens sends nothing else for as long as Keepalive.
var inSession = []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond}

// insist greets again, and begins a handshake anew if there was none yet. A peer that was set again since has its own timers.
func (g *Gateway) insist(w *wireguard, r *route) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live != w || g.peers[r.ID] != r {
		return
	}
	if !w.fresh(r.PublicKey) {
		w.expire(r.PublicKey) // also lifts the five seconds between two tries
	}
	w.hello(r.Peer)
}

// hello sends an empty packet, and keeps doing so.
func (w *wireguard) hello(p Peer) {
	if !w.kept[p.PublicKey] {
		err := w.dev.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\npersistent_keepalive_interval=%d\n", p.PublicKey.hex(), int(keepalive/time.Second)))
		w.kept[p.PublicKey] = err == nil
	}
	if peer := w.dev.LookupPeer(device.NoisePublicKey(p.PublicKey)); peer != nil {
		peer.SendKeepalive()
	}
}

// expire gives the keys of a session up, so that the next packet begins a handshake.
func (w *wireguard) expire(k Key) {
	if peer := w.dev.LookupPeer(device.NoisePublicKey(k)); peer != nil {
		peer.ExpireCurrentKeypairs()
	}
}

// fresh tells whether there was a handshake that may still be in use.
func (w *wireguard) fresh(k Key) bool { return time.Since(w.stats()[k].LastHandshake) < staleAfter }
