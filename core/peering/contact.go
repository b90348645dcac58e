package peering

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/identity"
)

// run dials, keeps the stream as long as it lives, and dials again.
func (one *contact) run(ctx context.Context) {
	wait, backoff := one.delay, backoffMin
	for {
		if one.pause(ctx, wait, one.wake) {
			backoff = backoffMin // something changed, so the failures before tell little
		}
		if ctx.Err() != nil {
			return
		}
		begin := time.Now()
		lived, err := one.live(ctx)
		if lived && time.Since(begin) > steady {
			wait, backoff = rand.N(redialAfterEnd), backoffMin
		} else {
			wait = backoff/2 + rand.N(backoff/2)
			backoff = min(2*backoff, backoffMax)
		}
		one.config.Log.Debug("peer will be dialled again", "id", one.key, "after", wait, "err", err)
		one.pause(ctx, leastPause-time.Since(begin), nil)
	}
}

// pause waits until the time is over, something wakes it (then it is true), or ctx ends.
func (one *contact) pause(ctx context.Context, wait time.Duration, wake <-chan struct{}) (woken bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// live is one stream from its dial to its end. lived says that there was one.
func (one *contact) live(ctx context.Context) (lived bool, err error) {
	select {
	case one.dials <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	var once sync.Once
	release := func() { once.Do(func() { <-one.dials }) }
	slow := time.AfterFunc(dialHold, release)
	s, err := one.client.presence(ctx)
	slow.Stop()
	if err != nil {
		one.gone(ctx, err, "")
		release()
		return false, err
	}
	defer s.close()
	id, _ := one.client.Peer()
	one.set(func(now *Contact) {
		now.ID, now.Name, now.Version = id, s.hello.Name, s.hello.Version
		now.State, now.Why, now.Clock, now.Ailing, now.Heard = ContactReachable, "", s.ahead, "", time.Time{}
		one.conn = s.conn
	})
	release()
	watch := &vigil{ask: func() error { return one.answers(s.ctx) }, lost: func() { one.hangs(s, id) }}
	lastWord, err := one.listen(ctx, s, id, watch)
	s.end(nil)
	if heard := watch.end(); errors.Is(context.Cause(s.ctx), errSilent) {
		one.set(func(now *Contact) { now.Heard = heard })
		err = errSilent
	}
	one.gone(ctx, err, lastWord)
	return true, err
}

// hangs gives up a peer that is silent: what waits for it here, and what it had open here, ends. A daemon that was stopped and
// goes on finds its connections closed then, looks for this one at once, and so is looked for.
func (one *contact) hangs(s *stream, id identity.ID) {
	s.end(errSilent)
	one.client.Cut()
	if one.config.Silent != nil {
		one.config.Silent(id)
	}
}

// listen hands on notices until the stream ends. lastWord is what the peer said about its end. Lines of any kind are read no
// faster than they are allowed to come.
func (one *contact) listen(ctx context.Context, s *stream, id identity.ID, watch *vigil) (lastWord string, err error) {
	calm, beats := rate.NewLimiter(linesPerSec, linesAtOnce), 0
	s.each = func(l presenceLine) error {
		watch.line(l)
		if l.Beat != nil {
			one.set(func(now *Contact) { now.Ailing = l.Beat.Ailing })
			if beats++; beats > beatsToSleep { // it slept, or did not
				lastWord = ""
			}
		}
		return calm.Wait(ctx)
	}
	for {
		n, err := s.next()
		if err != nil {
			return lastWord, err
		}
		beats = 0
		switch n.Type {
		case NoticeBye:
			lastWord = "kithd ended there"
		case NoticeSuspending:
			lastWord = "went to sleep"
		default:
			lastWord = ""
		}
		select {
		case one.heard <- Heard{Key: one.key, ID: id, Notice: n}:
		case <-time.After(heardTimeout): // reading on matters more: it is how the end is noticed
			one.config.Log.Warn("notice dropped, nobody takes them", "id", id.String(), "type", string(n.Type))
		case <-ctx.Done():
			return lastWord, ctx.Err()
		}
		if n.Type == NoticeBye {
			return lastWord, io.EOF
		}
	}
}

func (one *contact) gone(ctx context.Context, err error, lastWord string) {
	if ctx.Err() != nil {
		return
	}
	var mismatch *identity.MismatchError
	one.set(func(now *Contact) {
		if now.State == ContactReachable && now.Heard.IsZero() {
			now.Heard = time.Now()
		}
		now.State, now.Why, now.Ailing = ContactUnreachable, lost(err, lastWord), ""
		switch {
		case errors.As(err, &mismatch):
			now.State = ContactMismatch
		case errors.Is(err, &Problem{Code: CodeVersion}):
			now.State = ContactVersion
		}
		one.conn = nil
	})
}

// clockOf tells by how much the clock of whoever answered is ahead of this one's, from the Date of an answer that
// came between asked and now. Date has whole seconds, rounded down, so it is right to within half a second and half
// the round trip. ok is false when there is no Date.
func clockOf(h http.Header, asked, now time.Time) (ahead time.Duration, ok bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	middle := asked.Add(now.Sub(asked) / 2)
	// Without the monotonic clock: what the wall clocks say is the question.
	return date.Add(time.Second / 2).Sub(middle.Round(0)), true
}
