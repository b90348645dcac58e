package gateway

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// listen looks what came of all peers, and asks those of whom nothing did. Callers must not hold mu.
func (g *Gateway) listen(now time.Time) {
	g.mu.Lock()
	if g.live == nil {
		g.mu.Unlock()
		return
	}
	stats := g.live.stats()
	var ask []Peer
	for id, r := range g.peers {
		if g.lifeOf(id).look(stats[r.PublicKey].Received, now) {
			ask = append(ask, r.Peer)
		}
	}
	g.mu.Unlock()
	for _, p := range ask {
		g.nudge(p)
	}
}

// nudge sends one ICMP echo to a peer's gateway. Nobody waits for the answer: that anything came is seen at the next look. To
// WireGuard it is data, so when no answer comes it begins a handshake by itself.
func (g *Gateway) nudge(p Peer) {
	to, ok := p.gateway()
	if !ok {
		return
	}
	if err := send(g.cfg.Address, to); err != nil {
		g.cfg.Log.Debug("peer is not asked for an answer through the tunnel", "peer", p.Name, "err", err)
	}
}

func send(from, to netip.Addr) error {
	c, err := icmp.ListenPacket("ip4:icmp", from.String())
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 1, Seq: 1, Data: []byte("kith")}}).Marshal(nil)
	if err == nil {
		_, err = c.WriteTo(b, &net.IPAddr{IP: to.AsSlice()})
	}
	return err
}
