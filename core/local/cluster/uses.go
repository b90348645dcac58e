package cluster

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Uses is when somebody last wanted something of a cluster, and whether somebody does now: one that nobody uses may sleep. The zero value
// says that nobody ever did. Its methods may be called by many at once.
type Uses struct {
	mu   sync.Mutex
	open int
	last time.Time
}

// Begin notes that somebody uses the cluster, until end is called.
func (u *Uses) Begin() (end func()) {
	u.mu.Lock()
	u.open++
	u.mu.Unlock()
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.open--
		u.last = time.Now()
	})
}

// Last gives when the last use ended: now, while there is one.
func (u *Uses) Last() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open > 0 {
		return time.Now()
	}
	return u.last
}

// Counted, for rest.Config.Wrap, has each request be a use of the cluster until its answer is read: a watch for as long as it is open. It is
// for requests of users.
func Counted(u *Uses) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return counted{u, next, func(*http.Request) bool { return true }}
	}
}

// CountedWrites does so for what changes something. It is for Kith's own requests: what Kith reads, nobody may have asked for.
func CountedWrites(u *Uses) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return counted{u, next, func(r *http.Request) bool { return r.Method != http.MethodGet && !follows(r) }}
	}
}

type counted struct {
	uses   *Uses
	next   http.RoundTripper
	counts func(*http.Request) bool
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if !c.counts(r) {
		return c.next.RoundTrip(r)
	}
	end := c.uses.Begin()
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	body := closing{resp.Body, end}
	if stream, is := resp.Body.(io.ReadWriteCloser); is { // of an upgraded connection
		resp.Body = closingStream{body, stream}
	} else {
		resp.Body = body
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go look at what is inside (k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper).
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// closing is a body whose end is noticed.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
}

type closingStream struct {
	closing
	io.Writer
}
