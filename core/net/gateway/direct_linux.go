package gateway

import (
	"context"
	"net/netip"
	"time"
)

// watchDirect keeps the direct ways until ctx ends. While nobody wants one it waits, without a timer.
func (g *Gateway) watchDirect(ctx context.Context, w *wireguard) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wanted:
		case <-timer.C:
		}
		next := g.keepAsking(w, time.Now())
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next) + time.Millisecond)
		}
	}
}

// keepAsking looks once, and sends the questions that are due.
func (g *Gateway) keepAsking(w *wireguard, now time.Time) (next time.Time) {
	g.mu.Lock()
	ask, next, changed := g.look(now)
	var questions [][]byte
	for _, p := range ask {
		if !p.way.Up.Load() && !w.fresh(p.PublicKey) {
			if p.asked > 1 {
				p.at = (p.at + 1) % len(p.Endpoints)
			}
			if told := w.told[p.PublicKey]; !g.isPeers(p.PublicKey) {
				told.endpoint = netip.AddrPort{} // it is set anew, for WireGuard may know one from which nothing came since
				w.told[p.PublicKey] = told
			}
			w.expire(p.PublicKey) // else WireGuard waits five seconds between two tries
		}
		questions = append(questions, p.path().Question(p.asked))
	}
	var err error
	if len(ask) > 0 {
		err = w.sync(g.remotes())
	}
	g.mu.Unlock()
	if err != nil {
		g.cfg.Log.Warn("direct way not set up, trying again", "err", err)
	}
	for _, q := range questions {
		w.tap.transit.put([][]byte{q})
	}
	if changed {
		g.cfg.Changed()
	}
	return next
}
