package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// Limits bound what one caller may do.
type Limits struct {
	Requests int           // at the same time, streams aside
	Lists    int           // of these, lists and deletecollections; more wait
	Turn     time.Duration // how long they wait at most; then they are refused
	Streams  int           // followed logs, upgraded connections, and watches at the same time
	Rate     float64       // requests per second on average
	Burst    int           // and at once
	Patience time.Duration // how long a request over the rate waits at most; then it is refused
	Timeout  time.Duration // for everything that is not a stream
	Body     int64         // bytes of a request
	Bodies   int64         // bytes of all bodies under way; one without a Content-Length counts as Body
}

// DefaultLimits let a caller start and watch a thousand pods without noticing, and keep one that
// spins from taking the API server away from its owner.
func DefaultLimits() Limits {
	return Limits{
		Requests: 128, Lists: 4, Turn: 10 * time.Second, Streams: 128,
		Rate: 200, Burst: 400, Patience: time.Second,
		Timeout: time.Minute,
		Body:    2 << 20, // a Secret of 1 MiB in base64, with room
		Bodies:  16 << 20,
	}
}

// applied is the factor by which the body of a server-side apply counts against Limits.Bodies: the API server parses it as YAML, even if
// it is JSON, which takes four times the memory.
const applied = 4

// Weight is how many bytes of Bodies a request takes up.
func (l Limits) Weight(r *http.Request) int64 {
	body := r.ContentLength
	if body < 0 {
		body = l.Body // no Content-Length: assume the most it may be
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == string(types.ApplyYAMLPatchType) {
		body *= applied
	}
	return body
}

// Limiter counts what one caller has open, and closes it all at once. Make it with NewLimiter.
type Limiter struct {
	// Open is done once the caller was shut out.
	Open context.Context
	// Shut cuts everything that is open, for good.
	Shut context.CancelFunc

	limits                           Limits
	bucket                           *rate.Limiter
	requests, streams, lists, bodies *semaphore.Weighted
}

// NewLimiter is one for one caller.
func NewLimiter(limits Limits) *Limiter {
	l := &Limiter{
		limits: limits, bucket: rate.NewLimiter(rate.Limit(limits.Rate), limits.Burst),
		requests: semaphore.NewWeighted(int64(limits.Requests)), streams: semaphore.NewWeighted(int64(limits.Streams)),
		lists: semaphore.NewWeighted(int64(limits.Lists)), bodies: semaphore.NewWeighted(limits.Bodies),
	}
	l.Open, l.Shut = context.WithCancel(context.Background())
	return l
}

// ErrShut is the cause when a request ended because its caller was shut out (Limiter.Shut).
var ErrShut = errors.New("the caller was shut out")

// Enter lets one request in whose body has this Weight, or waits for that. Call leave when it is done. The error is ErrShut, ctx's own, or
// names the limit exceeded.
func (l *Limiter) Enter(ctx context.Context, info Info, body int64) (leave func(), err error) {
	open, limit, what := l.requests, l.limits.Requests, "requests"
	if info.Stream {
		open, limit, what = l.streams, l.limits.Streams, "watches and streams"
	}
	if !open.TryAcquire(1) {
		return nil, fmt.Errorf("%s: %d are open, more are not allowed at the same time", what, limit)
	}
	if !l.bodies.TryAcquire(body) {
		open.Release(1)
		return nil, fmt.Errorf("request bodies: more than %d bytes at the same time", l.limits.Bodies)
	}
	uncount := func() { open.Release(1); l.bodies.Release(body) }
	if err = l.wait(ctx); err == nil && info.List {
		err = l.turn(ctx)
	}
	switch {
	case err != nil:
		uncount()
		return nil, err
	case info.List:
		return func() { uncount(); l.lists.Release(1) }, nil
	}
	return uncount, nil
}

// turn waits until few enough lists are under way.
func (l *Limiter) turn(ctx context.Context) error {
	one := func(ctx context.Context) error { return l.lists.Acquire(ctx, 1) }
	return l.within(ctx, l.limits.Turn, one, "lists: %d are under way, and none ended within %s", l.limits.Lists, l.limits.Turn)
}

// wait delays a request that is over the rate; if that would take longer than Limits.Patience it is an error.
func (l *Limiter) wait(ctx context.Context) error {
	if l.bucket.Allow() {
		return nil
	}
	return l.within(ctx, l.limits.Patience, l.bucket.Wait, "requests: more than %g per second", l.limits.Rate)
}

// within runs a wait for so long at most; the error then says what there is too much of.
func (l *Limiter) within(ctx context.Context, patience time.Duration, wait func(context.Context) error, tooMuch string, args ...any) error {
	bounded, stop := context.WithTimeout(ctx, patience)
	defer stop()
	defer context.AfterFunc(l.Open, stop)()
	switch err := wait(bounded); {
	case err == nil:
		return nil
	case l.Open.Err() != nil:
		return ErrShut
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf(tooMuch, args...)
}
