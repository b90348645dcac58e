package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// listen checks what was received from each peer, and sends an echo to those of whom nothing was. Callers must not hold mu.
func (g *Gateway) listen(now time.Time) {
	g.mu.Lock()
	if g.live == nil {
		g.mu.Unlock()
		return
	}
	stats := g.live.stats()
	var ask []Peer
	for _, r := range g.peers {
		if r.life.observe(stats[r.PublicKey].Received, now) {
			ask = append(ask, r.Peer)
		}
	}
	g.mu.Unlock()
	for _, p := range ask {
		g.nudge(p)
	}
}

// nudge sends one ICMP echo to a peer's gateway and does not wait for the reply, which the next check sees in the bytes received. It is data to
// WireGuard, which starts a handshake by itself when no reply comes.
func (g *Gateway) nudge(p Peer) {
	for _, w := range p.ways(g.cfg.Address) {
		c, err := icmp.ListenPacket("ip4:icmp", w.from.String())
		if err == nil {
			err = errors.Join(request(c, &net.IPAddr{IP: w.to.AsSlice()}, icmp.Echo{ID: 1, Seq: 1, Data: []byte("kith")}), c.Close())
		}
		if err == nil {
			return
		}
		g.cfg.Log.Debug("peer is not asked for an answer through the tunnel", "peer", p.Name, "from", w.from, "err", err)
	}
}

// request sends an echo request (RFC 792).
func request(c *icmp.PacketConn, to net.Addr, body icmp.Echo) error {
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &body}).Marshal(nil)
	if err == nil {
		_, err = c.WriteTo(b, to)
	}
	return err
}

// RTT measures the round trip through the tunnel to a peer's gateway with one ICMP echo, two more if it is lost.
// The peer's kernel answers, so it also proves that addresses are understood there. It ends with ctx, or after three
// seconds.
func (g *Gateway) RTT(ctx context.Context, id string) (time.Duration, error) {
	return g.Echo(ctx, id, leastEcho)
}

// leastEcho is the IPv4 and ICMP headers and the nonce.
const leastEcho = 20 + 8 + 16

// Echo is RTT with packets of so many bytes, headers included. One as large as the MTU towards the peer (Stats) proves
// that full packets pass: it is not fragmented inside the tunnel.
func (g *Gateway) Echo(ctx context.Context, id string, bytes int) (time.Duration, error) {
	p, ok := g.Peer(id)
	if !ok {
		return 0, fmt.Errorf("gateway: no peer %s", id)
	}
	var said error // by the first way that may be taken, or why none may
	for _, w := range p.ways(g.cfg.Address) {
		d, err := w.echo(ctx, bytes)
		if err == nil {
			return d, nil
		}
		if said == nil || errors.Is(said, os.ErrPermission) {
			said = err
		}
	}
	if said == nil {
		said = errors.New("neither side has guests of the other")
	}
	return 0, fmt.Errorf("gateway: measure peer %s: %w", id, said)
}

// echo tries three times, unless this host does not let the way be taken.
func (w echoWay) echo(ctx context.Context, bytes int) (d time.Duration, err error) {
	c, err := icmp.ListenPacket("ip4:icmp", w.from.String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for try := range 3 {
		d, err = echo(ctx, c, &net.IPAddr{IP: w.to.AsSlice()}, try+1, max(bytes-leastEcho, 0))
		switch {
		case err == nil:
			return d, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(err, os.ErrPermission):
			return 0, err
		}
	}
	return 0, fmt.Errorf("no answer from %s: %w", w.to, err)
}

// echo sends one request and waits up to a second. The answer is known by 16 random bytes: a raw socket hears all.
func echo(ctx context.Context, c *icmp.PacketConn, to net.Addr, seq, padding int) (time.Duration, error) {
	nonce := make([]byte, 16)
	rand.Read(nonce)
	id := int(nonce[0])<<8 | int(nonce[1])
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	c.SetDeadline(time.Now().Add(time.Second))
	start := time.Now()
	if err := request(c, to, icmp.Echo{ID: id, Seq: seq, Data: append(nonce[:16:16], make([]byte, padding)...)}); err != nil {
		return 0, err
	}
	buf := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return 0, err
		}
		if from.String() != to.String() {
			continue
		}
		m, err := icmp.ParseMessage(1, buf[:n])
		if err != nil || m.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && bytes.HasPrefix(e.Data, nonce) {
			return time.Since(start), nil
		}
	}
}
