package gateway

import (
	"time"

	"golang.zx2c4.com/wireguard/device"

	"kith.dev/core/base/backoff"
)

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
		c.meet.stopped = true
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
