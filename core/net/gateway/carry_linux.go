package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// carrier is a connection that carries packets to and from one peer. To WireGuard it is an endpoint on the loopback: a socket of the carrier's, from
// which it gets what comes and to which it sends. What is small, that is handshakes and keepalives, goes to the peer's endpoints by UDP as well. Of
// such a message the copy that comes first counts, the other one is a replay; and WireGuard sends to where the last came from. So where UDP leads
// through, it is taken as soon as it is the faster, from both sides at once, which opens the mappings of routers between them.
type carrier struct {
	Carriage
	key  Key
	conn net.Conn
	loop *net.UDPConn
	at   netip.AddrPort // of loop, what WireGuard has for an endpoint

	data atomic.Uint64 // messages with packets that went over the connection

	writing sync.Mutex // held while a frame is written
	saidAt  time.Time  // when the peer was told where this host is
	said    netip.AddrPort

	mu     sync.Mutex
	meet   meeting
	toldAt time.Time
	tried  map[netip.AddrPort]*rate.Limiter // of messages that go there
	quiet  time.Time                        // until then UDP is not tried: it led one way only
}

const (
	carryEvery = 3 * time.Second  // how often it is looked whether packets pass, while any are sent
	carryRest  = 24 * time.Second // and at most while none are
	carryTries = time.Minute      // how seldom at most UDP is tried while packets are carried
	carryFree  = 4                // how often, if nothing is sent

	// How long packets are sent without any back until they go over the connection again, or, if they do, it is given up. Who only receives sends
	// something after ten seconds.
	carryAgain = 16 * time.Second
	carryIdle  = 5 * time.Minute // after which a connection ends that was not needed

	carryBatch = 32 // messages that are handed on at once

	sayTimeout = 5 * time.Second            // to write a frame of endpoints
	toldEvery  = 30 * time.Second           // between two frames of endpoints that count
	sayEvery   = toldEvery + 10*time.Second // and that are sent: the one before may have been longer on its way
	triedEvery = time.Second                // between two messages to one of them; a greeting is several at once
	quietMin   = 5 * time.Second            // after UDP did not lead to the peer, doubling
	quietMax   = 5 * time.Minute
)

// Carry has packets to and from a peer go over a connection with it for as long as that lasts, or ctx; and by UDP once that leads through. Of two
// connections the one that is First counts, which both sides know alike, and of several such ones the last. It closes the connection.
func (g *Gateway) Carry(ctx context.Context, id string, over net.Conn, as Carriage) error {
	defer over.Close()
	loop, err := net.DialUDP("udp4", &net.UDPAddr{IP: loopbackOf(id)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(g.cfg.ListenPort)})
	if err != nil {
		return fmt.Errorf("gateway: carry packets: %w", err)
	}
	defer loop.Close()
	c := &carrier{
		Carriage: as, tried: map[netip.AddrPort]*rate.Limiter{}, conn: over, loop: loop, at: loop.LocalAddr().(*net.UDPAddr).AddrPort(),
		meet: meeting{began: time.Now(), seen: as.Seen},
	}
	w, err := g.beginCarry(id, c)
	if err != nil {
		return fmt.Errorf("gateway: carry packets: %w", err)
	}
	defer g.endCarry(id, c)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { over.Close(); loop.Close() })()
	if err := c.say(time.Now()); err != nil {
		return err
	}
	var both sync.WaitGroup
	both.Go(func() { stop(c.receive(g)) })
	both.Go(func() { stop(c.send(g, w)) })
	g.greetCarried(id, c)
	at := newCarryWatch(as.Keep, time.Now())
	look := time.NewTimer(carryEvery)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			if err := errors.Join(g.watchCarry(id, c, w, at), c.say(time.Now())); err != nil {
				stop(err)
			}
			look.Reset(at.rest.Next())
		}
	}
	both.Wait()
	return context.Cause(ctx)
}

var (
	errNotCarried = errors.New("another connection carries its packets, or it is no peer any more")
	errNotNeeded  = errors.New("its packets go by UDP")
	errDead       = errors.New("nothing comes back over it")
	errOther      = errors.New("the one that the other side knows to count is there")
)

// loopbackOf is an address of the loopback for the carriers of a peer alone: WireGuard bounds handshakes by their address.
func loopbackOf(id string) net.IP {
	sum := sha256.Sum256([]byte(id))
	return net.IPv4(127, 1+sum[0]%254, sum[1], 1+sum[2]%254)
}

// beginCarry gives WireGuard the endpoint.
func (g *Gateway) beginCarry(id string, c *carrier) (*wireguard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.peers[id]
	switch {
	case r == nil:
		return nil, fmt.Errorf("%s is no peer", id)
	case g.live == nil:
		return nil, errors.New("there is no tunnel")
	}
	c.key = r.PublicKey
	if r.carrier != nil && r.carrier.First && !c.First {
		return nil, errOther
	}
	if r.carrier != nil {
		r.carrier.conn.Close()
	}
	r.carrier = c
	return g.live, g.live.endpoint(c.key, c.at)
}

// carries reports whether an endpoint of WireGuard is that of a carrier. Callers hold mu.
func (g *Gateway) carries(at netip.AddrPort) bool {
	for _, r := range g.peers {
		if r.carrier != nil && r.carrier.at == at {
			return true
		}
	}
	return false
}

// endCarry has WireGuard try the peer's own endpoint again where it still had that of the carrier.
func (g *Gateway) endCarry(id string, c *carrier) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.peers[id]
	if r == nil || r.carrier != c {
		return
	}
	r.carrier = nil
	if w := g.live; w != nil {
		now := w.stats()[c.key]
		if now.Endpoint != c.at {
			return
		}
		r.lost, r.lostAt = true, now.Received // down until something comes by another way
		if r.Endpoint.IsValid() {
			w.endpoint(c.key, r.Endpoint)
		}
		go g.tell()
	}
}

// greetCarried begins a session over the carrier.
func (g *Gateway) greetCarried(id string, c *carrier) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.peers[id]; g.live != nil && r != nil && r.carrier == c {
		g.greet(r.Peer)
	}
}

// receive hands what comes over the connection to WireGuard, which proves whose it is.
func (c *carrier) receive(g *Gateway) error {
	in, to := bufio.NewReaderSize(c.conn, carryBatch*(frameHeader+maxPacketFrame)), ipv4.NewPacketConn(c.loop)
	bufs, out := make([][maxPacketFrame]byte, carryBatch), make([]ipv4.Message, carryBatch)
	for {
		n := 0
		for n == 0 || n < carryBatch && frameThere(in) {
			kind, content, err := readFrame(in, bufs[n][:])
			switch {
			case err != nil:
				return err
			case kind == frameEndpoints:
				c.tell(g, content, time.Now())
			default:
				out[n].Buffers = [][]byte{content}
				n++
			}
		}
		for sent := 0; sent < n; {
			k, err := to.WriteBatch(out[sent:n], 0)
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			sent += max(k, 1) // else the socket of WireGuard is being opened anew, and packets may be lost
		}
	}
}

// say tells the peer where this host is: at first, and again when its router maps another port.
func (c *carrier) say(now time.Time) error {
	mapped := c.mapped()
	if !c.saidAt.IsZero() && (mapped == c.said || now.Sub(c.saidAt) < sayEvery) {
		return nil
	}
	content := formatEndpoints(c.Seen, mapped)
	if len(content) == 0 {
		return nil
	}
	if !c.writing.TryLock() { // packets are being written, which may take long: at the next look
		return nil
	}
	defer c.writing.Unlock()
	c.saidAt, c.said = now, mapped
	c.conn.SetWriteDeadline(now.Add(sayTimeout))
	defer c.conn.SetWriteDeadline(time.Time{})
	_, err := c.conn.Write(appendFrame(nil, frameEndpoints, content))
	return err
}

// write sends frames, whole.
func (c *carrier) write(frames []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.conn.Write(frames)
	return err
}

// meeting is what is known of where the two are.
func (c *carrier) meeting() meeting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meet
}

// tell takes where the peer says that it was seen. Of another's network, where somebody else may have the address, nothing is taken.
func (c *carrier) tell(g *Gateway, content []byte, now time.Time) {
	told, mapped := parseEndpoints(content)
	g.mu.Lock()
	lan := slices.Clone(g.around.LAN)
	g.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.toldAt.IsZero() && now.Sub(c.toldAt) < toldEvery {
		return
	}
	all := len(told)
	told = slices.DeleteFunc(told, func(e netip.AddrPort) bool { return !mayTry(e.Addr(), lan) })
	c.toldAt, c.meet.told, c.meet.mapped, c.meet.others = now, told, mapped, len(told) < all
	clear(c.tried)
}

// send writes what WireGuard sends to the connection, all that is there at once. What the connection does not take in time is lost in the buffer of the
// loopback, as packets are.
func (c *carrier) send(g *Gateway, w *wireguard) error {
	from, bufs, in := ipv4.NewPacketConn(c.loop), make([][maxPacketFrame + 1]byte, carryBatch), make([]ipv4.Message, carryBatch)
	for i := range in {
		in[i].Buffers = [][]byte{bufs[i][:]}
	}
	frames := make([]byte, 0, carryBatch*(frameHeader+maxPacketFrame))
	for {
		n, err := from.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		frames = frames[:0]
		for i := range max(n, 0) {
			message := bufs[i][:in[i].N]
			if len(message) > maxPacketFrame {
				continue
			}
			if tries(message) {
				c.try(g, w, message)
			}
			if carriesPacket(message) {
				c.data.Add(1)
			}
			frames = appendFrame(frames, framePacket, message)
		}
		if len(frames) == 0 {
			continue
		}
		if err := c.write(frames); err != nil {
			return err
		}
	}
}

// tries tells handshakes and keepalives from messages with packets.
func tries(message []byte) bool {
	if len(message) < 4 {
		return false
	}
	switch binary.LittleEndian.Uint32(message) {
	case device.MessageInitiationType, device.MessageResponseType:
		return len(message) <= device.MessageInitiationSize
	}
	return len(message) == device.MessageKeepaliveSize
}

// try sends a small message to the peer's endpoints as well, from the socket of WireGuard.
func (c *carrier) try(g *Gateway, w *wireguard, message []byte) {
	now := time.Now()
	c.mu.Lock()
	to, quiet := slices.Clone(c.meet.told), now.Before(c.quiet)
	c.mu.Unlock()
	if quiet {
		return
	}
	g.mu.Lock()
	for _, r := range g.peers {
		if r.PublicKey == c.key && r.Endpoint.IsValid() && !slices.Contains(to, r.Endpoint) {
			to = append(to, r.Endpoint)
		}
	}
	g.mu.Unlock()
	c.mu.Lock()
	to = slices.DeleteFunc(to, func(e netip.AddrPort) bool {
		if c.tried[e] == nil {
			c.tried[e] = rate.NewLimiter(rate.Every(triedEvery), len(inSession))
		}
		return !c.tried[e].AllowN(now, 1)
	})
	c.mu.Unlock()
	for _, e := range to {
		var at conn.Endpoint
		at, err := w.bind.ParseEndpoint(e.String())
		if err == nil {
			w.bind.Send([][]byte{message}, at) // one that no way leads to is one that is not taken
		}
	}
}

// endpoint sets where WireGuard sends to a peer from now on.
func (w *wireguard) endpoint(k Key, to netip.AddrPort) error {
	return w.dev.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\nendpoint=%s\n", k.hex(), to))
}
