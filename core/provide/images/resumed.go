package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
)

// still is how long a connection may bring nothing before what is missing is asked for over a new one: after a cut, TCP waits for twice as long
// as the cut was (RFC 6298, 5.5), a new connection for a second at most. The limit doubles with each but the first, as a slow link must not be
// kept busy by connections.
const still = time.Second

var errStill = errors.New("home stands still")

// resumed is the body of an answer that goes on over a new connection when one stands still. What it is of is named by its digest: it does not
// change between two questions.
type resumed struct {
	ask   func(*http.Request) (*http.Response, error)
	fresh func() // has the next question go over a connection that was not there before
	r     *http.Request
	try
	body     io.ReadCloser
	at, last int64 // of the next byte, and after the last
	limit    time.Duration
	asked    int          // how often anew
	since    atomic.Int64 // when the reading under way began, in nanoseconds since 1970; 0: there is none
}

// try is one question and its answer.
type try struct {
	ctx    context.Context
	cancel context.CancelFunc
	late   *time.Timer // ends it, unless it is answered
}

func begin(ctx context.Context, limit time.Duration) try {
	ctx, cancel := context.WithCancel(ctx)
	return try{ctx, cancel, time.AfterFunc(limit, cancel)}
}

// resume asks, and gives an answer with such a body, where there is one to go on with.
func resume(r *http.Request, ask func(*http.Request) (*http.Response, error), fresh func()) (*http.Response, error) {
	if _, err := digest.Parse(path.Base(r.URL.Path)); err != nil || r.Method != http.MethodGet {
		return ask(r)
	}
	b := &resumed{ask: ask, fresh: fresh, r: r, limit: still, try: begin(r.Context(), silent)}
	resp, err := ask(r.Clone(b.ctx))
	if err != nil {
		b.end()
		return nil, err
	}
	b.late.Stop()
	b.body, resp.Body = resp.Body, b
	from, known := start(resp)
	if b.at, b.last = from, from+resp.ContentLength; !known || resp.ContentLength < 0 {
		b.limit = 0 // nothing to go on with
	}
	if b.limit > 0 {
		b.watch(b.try, b.limit, b.limit)
	}
	return resp, nil
}

// start is the place of an answer's first byte in the whole; false: it is not said, or the answer is a refusal.
func start(resp *http.Response) (from int64, known bool) {
	if resp.StatusCode == http.StatusPartialContent {
		_, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &from)
		return from, err == nil && from >= 0
	}
	return 0, resp.StatusCode == http.StatusOK
}

// watch ends a try in which one reading lasts longer than the limit, for which it looks again after a while. There are tens of thousands
// of readings a second: each sets no timer.
func (b *resumed) watch(t try, limit, after time.Duration) {
	time.AfterFunc(after, func() {
		after := limit
		if since := b.since.Load(); since != 0 {
			after = limit - time.Since(time.Unix(0, since))
		}
		if after <= 0 {
			t.cancel()
		}
		if t.ctx.Err() == nil {
			b.watch(t, limit, after)
		}
	})
}

// Read implements io.Reader.
func (b *resumed) Read(p []byte) (int, error) {
	for {
		b.since.Store(time.Now().UnixNano())
		n, err := b.body.Read(p)
		b.since.Store(0)
		b.at += int64(n)
		stands := err != nil && !errors.Is(err, io.EOF) && b.limit > 0 && b.ctx.Err() != nil && b.r.Context().Err() == nil
		if !stands {
			return n, err
		}
		if err := b.again(); n > 0 || err != nil {
			return n, err
		}
	}
}

// again asks for the rest, until there is an answer in time.
func (b *resumed) again() error {
	for b.limit <= silent {
		b.Close()
		b.fresh()
		b.try = begin(b.r.Context(), b.limit)
		if b.asked++; b.asked > 1 {
			b.limit *= 2
		}
		rest := b.r.Clone(b.ctx)
		rest.Header.Set("Range", "bytes="+strconv.FormatInt(b.at, 10)+"-")
		resp, err := b.ask(rest)
		inTime := b.late.Stop()
		if err == nil {
			b.body = resp.Body
		}
		switch {
		case b.r.Context().Err() != nil:
			return b.r.Context().Err()
		case !inTime:
			continue
		case err != nil:
			return err
		}
		if from, known := start(resp); !known || from != b.at || resp.ContentLength != b.last-b.at {
			return fmt.Errorf("home answers %s with %d bytes from %d on, want %d from %d on", resp.Status, resp.ContentLength, from, b.last-b.at, b.at)
		}
		b.watch(b.try, b.limit, b.limit)
		return nil
	}
	return errStill
}

func (b *resumed) end() {
	b.late.Stop()
	b.cancel()
}

// Close implements io.Closer.
func (b *resumed) Close() error {
	b.end()
	return b.body.Close()
}
