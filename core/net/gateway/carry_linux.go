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

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"kith.dev/core/base/backoff"
)

// carrier is a connection that carries packets to and from one peer. To WireGuard it is an endpoint on the loopback: a socket of the carrier's, from
// which it gets what comes and to which it sends. What is small, that is handshakes and keepalives, goes to the peer's endpoints by UDP as well. Of
// such a message the copy that comes first counts, the other one is a replay; and WireGuard sends to where the last came from. So where UDP leads
// through, it is taken as soon as it is the faster, from both sides at once, which opens the mappings of routers between them.
type carrier struct {
	key  Key
	conn net.Conn
	loop *net.UDPConn
	at   netip.AddrPort // of loop, what WireGuard has for an endpoint

	first bool          // made by the one of the two whose ID is the lower
	data  atomic.Uint64 // messages with packets that went over the connection

	mu     sync.Mutex
	told   []netip.AddrPort // where the peer says that it was seen
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

	toldEvery  = 30 * time.Second // between two frames of endpoints that count
	triedEvery = time.Second      // between two messages to one of them; a greeting is several at once
	quietMin   = 5 * time.Second  // after UDP did not lead to the peer, doubling
	quietMax   = 5 * time.Minute
)

// Carry has packets to and from a peer go over a connection with it for as long as that lasts, or ctx; and by UDP once that leads through. seen are the
// endpoints at which others saw this cluster's WireGuard, for the peer to try. keep: also while it is of no use, to be there when UDP is shut
// again; else it ends then, after some minutes. first: the one of the two with the lower ID made it. Of two connections that
// counts, which both sides know alike, and of several such ones the last. It closes the connection.
func (g *Gateway) Carry(ctx context.Context, id string, over net.Conn, seen []netip.AddrPort, keep, first bool) error {
	defer over.Close()
	loop, err := net.DialUDP("udp4", &net.UDPAddr{IP: loopbackOf(id)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(g.cfg.ListenPort)})
	if err != nil {
		return fmt.Errorf("gateway: carry packets: %w", err)
	}
	defer loop.Close()
	c := &carrier{first: first, tried: map[netip.AddrPort]*rate.Limiter{}, conn: over, loop: loop, at: loop.LocalAddr().(*net.UDPAddr).AddrPort()}
	w, err := g.beginCarry(id, c)
	if err != nil {
		return fmt.Errorf("gateway: carry packets: %w", err)
	}
	defer g.endCarry(id, c)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { over.Close(); loop.Close() })()
	if len(seen) > 0 {
		if _, err := over.Write(appendFrame(nil, frameEndpoints, formatEndpoints(seen))); err != nil {
			return err
		}
	}
	var both sync.WaitGroup
	both.Go(func() { stop(c.receive(g)) })
	both.Go(func() { stop(c.send(g, w)) })
	g.greetCarried(id, c)
	at := newCarryWatch(keep, time.Now())
	look := time.NewTimer(carryEvery)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			if err := g.watchCarry(id, c, w, at); err != nil {
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
	if r.carrier != nil && r.carrier.first && !c.first {
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

// carryWatch is what was seen by the last looks.
type carryWatch struct {
	Stats
	data    uint64 // see carrier
	keep    bool
	waits   time.Time // since when packets are sent and nothing came; zero: nothing is waited for
	byUDP   time.Time // since when packets go by UDP; zero: they do not
	tryAt   time.Time // when UDP is tried again
	free    int       // tries that are left while nothing is sent
	rest    *backoff.Doubling
	pauses  *backoff.Doubling // between tries
	quieter *backoff.Doubling // after packets were carried again
}

func newCarryWatch(keep bool, now time.Time) *carryWatch {
	return &carryWatch{
		keep: keep, tryAt: now, free: carryFree, rest: &backoff.Doubling{First: carryEvery, Most: carryRest},
		pauses: &backoff.Doubling{First: carryEvery, Most: carryTries}, quieter: &backoff.Doubling{First: quietMin, Most: quietMax},
	}
}

// carryStep is what to do after a look.
type carryStep int

const (
	stepNone  carryStep = iota
	stepTry             // by UDP as well
	stepAgain           // over the connection again
	stepDead
	stepUnneeded
)

// look takes in what WireGuard and the carrier count now.
func (at *carryWatch) look(now time.Time, s Stats, carried bool, data uint64) carryStep {
	came := s.Received != at.Received
	sent := data != at.data
	if !carried {
		sent = !sentLittle(s.Sent - at.Sent)
	}
	at.Stats, at.data = s, data
	switch {
	case came:
		at.waits = time.Time{}
	case sent && at.waits.IsZero():
		at.waits = now
	}
	if sent {
		at.rest.Reset()
	}
	dead := sent && !at.waits.IsZero() && now.Sub(at.waits) >= carryAgain
	switch {
	case carried:
		at.byUDP = time.Time{}
		switch {
		case dead:
			return stepDead
		case (sent || at.free > 0) && !now.Before(at.tryAt): // is UDP the faster by now?
			at.free = max(at.free-1, 0)
			at.tryAt = now.Add(at.pauses.Next())
			return stepTry
		}
	case at.byUDP.IsZero():
		at.byUDP, at.free = now, carryFree
		at.pauses.Reset()
	case dead:
		if now.Sub(at.byUDP) > quietMax {
			at.quieter.Reset()
		}
		at.waits = time.Time{}
		return stepAgain
	case now.Sub(at.byUDP) > carryIdle && !at.keep:
		return stepUnneeded
	}
	return stepNone
}

// sentLittle reports whether so many bytes that WireGuard sent within a look may be a keepalive and handshakes alone.
func sentLittle(bytes uint64) bool {
	for _, begun := range []uint64{0, device.MessageInitiationSize, 2 * device.MessageInitiationSize} {
		for _, answered := range []uint64{0, device.MessageResponseSize} {
			if rest := bytes - begun - answered; rest == 0 || rest == device.MessageKeepaliveSize {
				return true
			}
		}
	}
	return false
}

// watchCarry looks whether packets pass, and by which way. An error ends the carrier.
func (g *Gateway) watchCarry(id string, c *carrier, w *wireguard, at *carryWatch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.peers[id]
	if r == nil || r.carrier != c || g.live != w || r.PublicKey != c.key {
		return errNotCarried
	}
	now, was := w.stats()[c.key], at.Endpoint
	step := at.look(time.Now(), now, now.Endpoint == c.at, c.data.Load())
	if was.IsValid() && was != now.Endpoint {
		if err := g.syncLocked(); err != nil { // the other way may have another MTU
			g.cfg.Log.Debug("routes are not complete after packets took another way", "err", err)
		}
	}
	switch step {
	case stepTry:
		w.hello(r.Peer)
	case stepAgain:
		c.mu.Lock()
		c.quiet = time.Now().Add(at.quieter.Next()) // else the peer, to whom UDP may lead, would follow it, and its packets be lost
		c.mu.Unlock()
		if err := w.endpoint(c.key, c.at); err != nil {
			return err
		}
		w.hello(r.Peer)
	case stepDead:
		return errDead
	case stepUnneeded:
		return errNotNeeded
	}
	return nil
}

// receive hands what comes over the connection to WireGuard, which proves whose it is.
func (c *carrier) receive(g *Gateway) error {
	in, buf := bufio.NewReaderSize(c.conn, 16<<10), make([]byte, maxPacketFrame)
	for {
		kind, content, err := readFrame(in, buf)
		switch {
		case err != nil:
			return err
		case kind == frameEndpoints:
			c.tell(g, parseEndpoints(content), time.Now())
		default:
			if _, err := c.loop.Write(content); errors.Is(err, net.ErrClosed) {
				return err
			} // else the socket of WireGuard is being opened anew, and packets may be lost
		}
	}
}

// tell takes where the peer says that it was seen. Of another's network, where somebody else may have the address, nothing is taken.
func (c *carrier) tell(g *Gateway, told []netip.AddrPort, now time.Time) {
	g.mu.Lock()
	lan := slices.Clone(g.around.LAN)
	g.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.toldAt.IsZero() && now.Sub(c.toldAt) < toldEvery {
		return
	}
	c.toldAt, c.told = now, slices.DeleteFunc(told, func(e netip.AddrPort) bool { return !mayTry(e.Addr(), lan) })
	clear(c.tried)
}

// send writes what WireGuard sends to the connection. What the connection does not take in time is lost in the buffer of the loopback, as packets are.
func (c *carrier) send(g *Gateway, w *wireguard) error {
	buf, frame := make([]byte, maxPacketFrame+1), make([]byte, 0, frameHeader+maxPacketFrame)
	for {
		n, err := c.loop.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil || n > maxPacketFrame:
			continue
		}
		if tries(buf[:n]) {
			c.try(g, w, buf[:n])
		}
		if carriesPacket(buf[:n]) {
			c.data.Add(1)
		}
		if _, err := c.conn.Write(appendFrame(frame, framePacket, buf[:n])); err != nil {
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
	to, quiet := slices.Clone(c.told), now.Before(c.quiet)
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
