package peering

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/presence"
	"kith.dev/core/base/backoff"
	"kith.dev/core/trust/identity"
)

// run dials, keeps the stream as long as it lives, and dials again.
func (one *contact) run(ctx context.Context) {
	wait, growing := one.delay, backoff.Doubling{First: backoffMin / 2, Most: backoffMax / 2, Jitter: 1}
	for {
		if one.pause(ctx, wait, one.wake) {
			growing.Reset() // something changed, so the failures before tell little
		}
		if ctx.Err() != nil {
			return
		}
		begin := time.Now()
		lived, err := one.live(ctx)
		if lived && time.Since(begin) > steady {
			wait = rand.N(redialAfterEnd)
			growing.Reset()
		} else {
			wait = growing.Next()
		}
		one.config.Log.Debug("peer will be dialled again", "id", one.id.Compact(), "after", wait, "err", err)
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
	dialling := ctx
	if one.direct.Swap(false) { // once over the address that led there a moment ago, and not by who is as quick
		dialling = OverAddresses(ctx)
	}
	s, err := one.client.presence(dialling)
	slow.Stop()
	if err != nil {
		one.gone(ctx, err, "")
		release()
		return false, err
	}
	defer s.close()
	one.set(func(now *Contact) {
		now.Name, now.Version, now.LastWord = s.hello.Name, s.hello.Version, nil
		one.wakes(now)
		now.Presence = presence.Presence{State: presence.Reachable, Since: now.Since}
		now.Clock, one.conn = s.ahead, s.conn
		now.By = s.by
		if s.conn != nil {
			if now.By == "" {
				now.Reached = remote(s.conn)
			}
			spare(s.conn, len(one.all))
		}
	})
	release()
	if s.by != "" {
		looking := make(chan struct{})
		go func() { one.lookForAddress(s); close(looking) }()
		defer func() { s.end(nil); <-looking }()
	}
	watch := &watchdog{ask: func() error { return one.answers(s.ctx) }, lost: func() { one.hangs(s) }}
	began := time.Now()
	lastWord, err := one.listen(ctx, s, watch)
	s.end(nil)
	if s.by == "" && time.Since(began) > steady {
		one.looks.Reset() // the looker has ended, or there was none
	}
	if heard := watch.end(); errors.Is(context.Cause(s.ctx), errSilent) {
		one.set(func(now *Contact) { now.Heard = heard })
		err = errSilent
	}
	one.gone(ctx, err, lastWord)
	return true, err
}

// hangs gives up a peer that does not respond: it closes the connections in both directions. If the peer's daemon was only suspended, it finds
// them closed when it resumes, and dials at once, upon which this side dials it, too.
func (one *contact) hangs(s *stream) {
	s.end(errSilent)
	one.client.Cut()
	if one.config.Silent != nil {
		one.config.Silent(one.id)
	}
}

// listen hands on notices until the stream ends. lastWord is what the peer said about its end. Lines of any kind are read no
// faster than they are allowed to come.
func (one *contact) listen(ctx context.Context, s *stream, watch *watchdog) (lastWord string, err error) {
	calm, beats := rate.NewLimiter(linesPerSec, linesAtOnce), 0
	for {
		l, err := s.line()
		if err != nil {
			return lastWord, err
		}
		watch.line(l)
		if l.Beat != nil {
			if beats++; beats > heartbeatsToSleep { // it is awake: it has slept meanwhile, or did not go to sleep
				lastWord = ""
				one.awake()
			}
			one.set(func(now *Contact) {
				if now.State == presence.Suspended {
					return
				}
				if now.Cause, now.Why = "", l.Beat.Ailing; now.Why != "" {
					now.Cause = presence.Ailing
				}
				now.Asleep, now.Relays = l.Beat.Asleep, l.Beat.Relays
			})
		}
		if err := calm.Wait(ctx); err != nil {
			return lastWord, err
		}
		if c := l.CallBack; c != nil && one.config.CallBack != nil {
			if err := c.Validate(); err != nil {
				return lastWord, err
			}
			one.config.CallBack(one.id, *c)
		}
		if l.Notice == nil {
			continue
		}
		n := *l.Notice
		switch n.Type {
		case NoticeBye: // its machine is not known to sleep, and what it said of waking it counts no more
			lastWord = "kithd ended there"
			one.set(func(now *Contact) { now.LastWord = nil })
		case NoticeSuspending:
			lastWord, beats = wentToSleep, 0
			one.set(func(now *Contact) {
				now.LastWord = n.Wake
				if now.State == presence.Reachable && time.Since(one.woken) < doubted {
					return // what it says now counts when the stream ends
				}
				now.State, now.Cause, now.Why, now.Asleep, now.Heard = presence.Suspended, "", wentToSleep, false, time.Now()
			})
		case NoticeAwake: // no other notice says that: one may have been on its way when the peer went to sleep
			lastWord = ""
			one.awake()
		}
		select {
		case one.heard <- Heard{ID: one.id, Notice: n}:
		case <-time.After(heardTimeout): // reading on matters more: it is how the end is noticed
			one.config.Log.Warn("notice dropped, nobody takes them", "id", one.id.String(), "type", string(n.Type))
		case <-ctx.Done():
			return lastWord, ctx.Err()
		}
		if n.Type == NoticeBye {
			return lastWord, io.EOF
		}
	}
}

const wentToSleep = "went to sleep"

// doubted is for how long the word of a peer that it sleeps counts for little, after one that it is awake again: nodes and pods at home are
// written each time, and pods may be evicted.
const doubted = 12 * time.Second

// wakes notes when a peer is awake that said that it goes to sleep. It is called by set.
func (one *contact) wakes(now *Contact) {
	if now.State == presence.Suspended {
		one.woken = time.Now()
	}
}

// awake notes that one who said that it goes to sleep is there all the same.
func (one *contact) awake() {
	one.set(func(now *Contact) {
		now.LastWord = nil
		if now.State == presence.Suspended {
			one.wakes(now)
			now.State, now.Why, now.Heard = presence.Reachable, "", time.Time{}
		}
	})
}

// gone notes the end of a stream, or of a dial. One that went to sleep stays so until it is reached: that it does not answer is no news.
func (one *contact) gone(ctx context.Context, err error, lastWord string) {
	if ctx.Err() != nil {
		return
	}
	var mismatch *identity.MismatchError
	one.set(func(now *Contact) {
		if now.Reachable() && now.Heard.IsZero() {
			now.Heard = time.Now()
		}
		switch {
		case now.Reachable() && lastWord == wentToSleep:
			now.State, now.Why = presence.Suspended, wentToSleep
		case now.State != presence.Suspended || lastWord != "" && lastWord != wentToSleep:
			now.State, now.Why = presence.Unreachable, lost(err, lastWord)
		}
		now.Cause, now.Asleep = "", false
		switch {
		case errors.As(err, &mismatch):
			now.State, now.Cause, now.Why = presence.Unreachable, presence.OtherKey, lost(err, lastWord)
		case errors.Is(err, &Problem{Code: CodeVersion}):
			now.State, now.Cause, now.Why = presence.Unreachable, presence.OtherVersion, lost(err, lastWord)
		}
		if now.State != presence.Suspended { // its last word is read by its clock
			now.Clock = 0
		}
		one.conn, now.By, now.Relays = nil, "", false
	})
}

// lookForAddress tries the addresses of a peer whose connection somebody passes on: seldom, and when something changed. Once one leads there, what
// is new goes that way, the stream first: its end is what dials again.
func (one *contact) lookForAddress(s *stream) {
	for {
		if one.pause(s.ctx, one.looks.Next(), one.wake) {
			one.looks.Reset()
		}
		if s.ctx.Err() != nil {
			return
		}
		if one.client.Direct(s.ctx) {
			one.direct.Store(true)
			one.client.dialAnew()
			s.end(errMoved)
			return
		}
	}
}

var errMoved = errors.New("an address leads to it again")

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

// How long after the last try the addresses of a peer are tried again while its connection is passed on.
const (
	directMin = 15 * time.Second
	directMax = 5 * time.Minute
)

const helloTimeout = 12 * time.Second // from the dial to the first line

// stream is a presence stream: it lives as long as the peer's daemon and the way to it.
type stream struct {
	hello Hello
	conn  *net.TCPConn  // what it runs over, to ask for its round-trip time; nil when it is passed on
	by    string        // who passes it on
	ahead time.Duration // the peer's clock, see clockOf
	asked time.Time
	lines *bufio.Reader
	body  io.Closer
	ctx   context.Context // of the request
	end   context.CancelCauseFunc
}

// presence opens the stream and reads the first line. The peer's ID and version have been checked.
func (c *Client) presence(ctx context.Context) (*stream, error) {
	ctx, end := context.WithCancelCause(ctx)
	late := time.AfterFunc(helloTimeout, func() { end(errNoAnswer) })
	defer late.Stop()
	s := &stream{ctx: ctx, end: end}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		s.asked = time.Now()
		if t, ok := info.Conn.(*tls.Conn); ok {
			if known, ok := t.NetConn().(*trackedConn); ok {
				s.conn, _ = known.Conn.(*net.TCPConn)
				s.by = known.by
			}
		}
	}})
	err := c.openStream(traced, s)
	if other := (&Problem{Code: CodeVersion}); errors.Is(err, other) { // said in words of its own, which do not know who asks
		if _, said := c.Hello(ctx); errors.Is(said, other) {
			err = said
		}
	}
	if err != nil {
		s.close()
		return nil, c.failure(ctx, err)
	}
	return s, nil
}

func (c *Client) openStream(ctx context.Context, s *stream) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.BaseURL()+"/kith/v2/presence", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	s.body = resp.Body
	s.ahead, _ = clockOf(resp.Header, s.asked, time.Now())
	if resp.StatusCode >= 300 {
		return readProblem(resp)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/x-ndjson" {
		return fmt.Errorf("the peer's presence is %.64q, not lines of JSON", media)
	}
	s.lines = bufio.NewReaderSize(resp.Body, maxLine)
	first, err := s.line()
	if err != nil {
		return err
	}
	if first.Hello == nil {
		return errors.New("the peer's presence does not begin with who it is")
	}
	s.hello = *first.Hello
	return c.checkHello(&s.hello)
}

func (s *stream) close() {
	s.end(nil)
	if s.body != nil {
		s.body.Close()
	}
}

// line waits for the next line, or for the end.
func (s *stream) line() (presenceLine, error) {
	data, err := s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return presenceLine{}, fmt.Errorf("the peer sent a line of more than %d bytes", maxLine)
	}
	if err != nil {
		return presenceLine{}, err
	}
	var l presenceLine
	if err := unmarshal(data, &l); err != nil {
		return presenceLine{}, fmt.Errorf("the peer's line cannot be used: %w", err)
	}
	return l, nil
}
