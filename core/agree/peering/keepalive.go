package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"kith.dev/core/base/suspend"
)

// A daemon that is suspended, or hangs, keeps its connections: its kernel still acknowledges data and TCP keepalives. So the server sends
// heartbeats on the presence streams of callers that it recognises, and a client that misses them makes a call to check.
const (
	heartbeatEvery = 3 * time.Second
	recogniseIn    = 10 * time.Second // how often a stream is looked at whose caller was a stranger when it began
	// silence is how long a stream on which there was a beat may be without a line until the peer is asked; two beats
	// may be late. With checkTimeout for the answer a peer is unreachable 11 s after its last word.
	silence = 8 * time.Second
	// heartbeatsToSleep may still come from a laptop that said it goes to sleep.
	heartbeatsToSleep = 5
)

// sharedTicker wakes all who wait for it at once, so that the beats of all streams are one wake-up of the machine. It ticks only
// while somebody waits.
type sharedTicker struct {
	every time.Duration
	woke  func() // called when this machine was suspended since the tick before; may be nil
	mu    sync.Mutex
	next  chan struct{} // closed at the next tick; nil while nobody waits
	armed time.Time
}

func (p *sharedTicker) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next, p.armed = make(chan struct{}), time.Now()
		time.AfterFunc(p.every, p.tick)
	}
	return p.next
}

func (p *sharedTicker) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.next)
	p.next = nil
	if p.woke != nil && suspend.Between(p.armed, time.Now()) {
		go p.woke()
	}
}

var errSilent = errors.New("no answer")

// watchdog watches a stream from its first heartbeat on; for a peer that sends none, TCP keepalive must do (see tune). Silence alone is no proof,
// since this process may have been suspended itself, so that all its timers are late: so the watchdog makes a call, and the peer is lost
// only if it does not answer. It uses the monotonic clock, which does not count suspend.
type watchdog struct {
	ask  func() error // an error: there was no answer. Called without any lock held
	lost func()       // called at most once

	mu    sync.Mutex
	timer *time.Timer // nil before the first beat
	heard time.Time   // the last line, or answer
	over  bool
	// asking counts the questions under way, so that end waits for them.
	asking sync.WaitGroup
}

// line notes that there was one.
func (v *watchdog) line(l presenceLine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = time.Now()
	switch {
	case v.over:
	case v.timer != nil:
		v.timer.Reset(silence)
	case l.Beat != nil:
		v.timer = time.AfterFunc(silence, v.late)
	}
}

func (v *watchdog) late() {
	v.mu.Lock()
	if v.over || time.Since(v.heard) < silence { // a line came just now
		v.mu.Unlock()
		return
	}
	asked := v.heard
	v.asking.Add(1)
	v.mu.Unlock()
	defer v.asking.Done()
	err := v.ask()
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.over:
	case err == nil:
		v.heard = time.Now()
		v.timer.Reset(silence)
	case v.heard.After(asked): // it said something meanwhile
		v.timer.Reset(silence)
	default:
		v.over = true
		v.lost()
	}
}

// end stops the watchdog; the context of its questions must have ended. It tells when the last line came.
func (v *watchdog) end() (heard time.Time) {
	v.mu.Lock()
	v.over = true
	if v.timer != nil {
		v.timer.Stop()
	}
	heard = v.heard
	v.mu.Unlock()
	v.asking.Wait()
	return heard
}

// answers asks the peer over the connection of its stream. A refusal is an answer too.
func (one *contact) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := one.stranded(); err != nil {
		return err
	}
	_, err := one.client.Hello(ctx)
	if _, refused := errors.AsType[*Problem](err); refused {
		return nil
	}
	return err
}
