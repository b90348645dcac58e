package localapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
)

// aLine bounds how long a reader may leave one line of a stream unread.
const aLine = 10 * time.Second

// lines writes a stream of JSON values, one per line. It is safe for concurrent use.
type lines struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	err     error // the first; nothing is written after it
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", api.Lines)
	return &lines{w: w, control: http.NewResponseController(w)}
}

// write sends values at once; none sends a blank line, the sign of life.
func (l *lines) write(values ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		out = append(append(out, b...), '\n')
	}
	if len(values) == 0 {
		out = []byte("\n")
	}
	if l.err == nil {
		l.err = l.control.SetWriteDeadline(time.Now().Add(aLine))
	}
	if l.err == nil {
		_, l.err = l.w.Write(out)
	}
	if l.err == nil {
		l.err = l.control.Flush()
	}
	return l.err
}

// serveLong runs a long call. Its progress is streamed to callers that accept lines; the others get the end only.
func (s *Server) serveLong(c *call, rt route) error {
	if !strings.Contains(c.r.Header.Get("Accept"), api.Lines) {
		c.report = func(api.Progress) {}
		answer, err := rt.answer(c)
		c.control().SetWriteDeadline(time.Now().Add(s.CallTimeout))
		reply(c.w, answer, err)
		return err
	}
	out := newLines(c.w)
	steps := newProgress(out)
	defer steps.stop()
	c.report = steps.report
	answer, err := rt.answer(c)
	steps.stop()
	if err != nil {
		out.write(failure{asError(err)})
		return err
	}
	out.write(struct {
		Result any `json:"result"`
	}{answer})
	return nil
}

// progress carries the steps of a long call to its caller, through a queue of its own: a caller that hangs must not
// hold up the backend. What does not fit is dropped; the result comes in any case.
type progress struct {
	mu      sync.Mutex
	queue   chan api.Progress // nil once stopped
	written chan struct{}
}

func newProgress(out *lines) *progress {
	queue := make(chan api.Progress, 64)
	p := &progress{queue: queue, written: make(chan struct{})}
	go func() {
		defer close(p.written)
		for step := range queue {
			out.write(step)
		}
	}()
	return p
}

func (p *progress) report(step api.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.queue <- step:
	default: // full, or stopped
	}
}

// stop waits until what was reported is written; reports that come later are dropped.
func (p *progress) stop() {
	p.mu.Lock()
	if p.queue != nil {
		close(p.queue)
		p.queue = nil
	}
	p.mu.Unlock()
	<-p.written
}

// serveEvents answers GET /v1/events?since=SEQ&follow=true. Since is the last sequence number the caller has seen;
// none or 0 means all that are remembered, "latest" none of them. With follow the stream goes on until the caller
// or kithd leaves.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	since, err := s.parseSince(r.URL.Query().Get("since"))
	follow, err2 := follows(r)
	if err := cmp.Or(err, err2); err != nil {
		fail(w, asError(err))
		return
	}
	out := newLines(w)
	signs := time.NewTicker(life)
	defer signs.Stop()
	for first := true; ; first = false {
		events, more := s.Events.After(since)
		values := make([]any, len(events))
		for i, e := range events {
			values[i], since = e, e.Seq
		}
		if len(values) > 0 || first && follow {
			if err := out.write(values...); err != nil {
				return
			}
		}
		if !follow {
			return
		}
		select {
		case <-more:
		case <-signs.C:
			if err := out.write(); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// follows reports whether the caller wants a stream to go on.
func follows(r *http.Request) (bool, error) {
	text := r.URL.Query().Get("follow")
	follow, err := strconv.ParseBool(text)
	if err != nil && text != "" {
		return false, api.Invalid("follow", text, "true or false")
	}
	return follow, nil
}

func (s *Server) parseSince(text string) (uint64, error) {
	switch text {
	case "":
		return 0, nil
	case "latest":
		return s.Events.Last(), nil
	}
	since, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, api.Invalid("since", text, "the seq of an event, or latest")
	}
	return since, nil
}
