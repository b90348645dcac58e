package deciding

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/engine/listener"
)

// cluster is what a Switch switches: it takes a moment to end, and counts what runs.
type cluster struct {
	*Switch
	with, without atomic.Int32  // runs at the moment: what decides, and what keeps house alone
	starts        atomic.Int32  // of both
	fail          atomic.Value  // the error of the next end
	ends          time.Duration // how long an end takes
	broken        chan error    // ends what runs now
}

func newCluster(on bool) *cluster {
	c := &cluster{ends: 100 * time.Millisecond, broken: make(chan error)}
	c.Switch = New(on, func(ctx context.Context, on bool) error {
		runs := &c.without
		if on {
			runs = &c.with
		}
		c.starts.Add(1)
		runs.Add(1)
		defer runs.Add(-1)
		select {
		case err := <-c.broken:
			return err
		case <-ctx.Done():
		}
		time.Sleep(c.ends)
		err, _ := c.fail.Load().(error)
		return err
	})
	return c
}

// start runs it until the test ends, and a moment longer.
func (c *cluster) start(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (c *cluster) check(t *testing.T, on bool) {
	t.Helper()
	synctest.Wait()
	with, without := c.with.Load(), c.without.Load()
	if on && (with != 1 || without != 0) || !on && (with != 0 || without != 1) || c.On() != on {
		t.Fatalf("on %t: %d run what decides, %d what does not; it says %t", on, with, without, c.On())
	}
}

func TestItIsOffWhenNothingDecidesAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(true)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		c.check(t, true)
		for range 50 {
			for _, on := range []bool{false, true} {
				began := time.Now()
				if err := c.Set(t.Context(), on); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.ends {
					t.Fatalf("it answered after %s, and what ran takes %s to end", took, c.ends)
				}
				c.check(t, on)
			}
		}
		if err := c.Set(t.Context(), true); err != nil || c.starts.Load() != 101 {
			t.Errorf("told what it is: %v, started %d times", err, c.starts.Load())
		}
		stop()
		if err := <-done; err != nil || c.with.Load()+c.without.Load() != 0 {
			t.Errorf("%v, and %d run on", err, c.with.Load()+c.without.Load())
		}
	})
}

func TestItStartsAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(false)
		c.start(t)
		c.check(t, false)
	})
}

// Whoever was told later decides, and nobody hears a yes to what is not so.
func TestTheLastWordCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(true)
		c.start(t)
		synctest.Wait()
		first := make(chan error, 1)
		go func() { first <- c.Set(t.Context(), false) }()
		synctest.Wait()
		if err := c.Set(t.Context(), true); err != nil {
			t.Error(err)
		}
		if err := <-first; !errors.Is(err, ErrOverruled) {
			t.Errorf("the first heard: %v", err)
		}
		c.check(t, true)
	})
}

func TestWhoDoesNotWaitIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(true) // which is not run yet: there is no API server
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Set(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("heard: %v", err)
		}
		c.start(t)
		c.check(t, false) // what was said counts all the same
	})
}

func TestWhatFailsOrDoesNotEndEndsTheSwitch(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*testing.T, *cluster)
		says string
	}{
		"ends by itself": {func(_ *testing.T, c *cluster) { c.broken <- nil }, "ended by itself"},
		"fails":          {func(_ *testing.T, c *cluster) { c.broken <- errors.New("no API server") }, "no API server"},
		"hangs": {func(t *testing.T, c *cluster) {
			c.fail.Store(errors.New("shutdown timeout"))
			go c.Set(t.Context(), false)
		}, "shutdown timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, done := newCluster(true), make(chan error)
				go func() { done <- cluster.Run(t.Context()) }()
				synctest.Wait()
				c.do(t, cluster)
				if err := <-done; err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				if cluster.On() != true {
					t.Error("it says that it is off, and does not know")
				}
			})
		})
	}
}

func TestItIsToldOnASocketOfRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deciding.sock")
	socket, err := listener.Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	c := newCluster(true)
	c.ends = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	c.start(t)
	go func() { done <- c.Serve(ctx, socket) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	for _, ask := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"GET", "/deciding", "", 200, `{"on":true}`},
		{"PUT", "/deciding", `{"on":false}`, 200, `{"on":false}`},
		{"GET", "/deciding", "", 200, `{"on":false}`},
		{"PUT", "/deciding", `{"on":true}`, 200, `{"on":true}`},
		{"PUT", "/deciding", `{}`, 400, `want {"on":true} or {"on":false}`},
		{"PUT", "/deciding", `{"on":"no"}`, 400, `want {"on":true} or {"on":false}`},
		{"PUT", "/deciding", `{"off":true}`, 400, `want {"on":true} or {"on":false}`},
		{"PUT", "/deciding", strings.Repeat(" ", 2000) + `{"on":false}`, 400, `want {"on":true} or {"on":false}`},
		{"DELETE", "/deciding", "", 405, "Method Not Allowed"},
		{"GET", "/", "", 404, "404 page not found"},
		{"GET", "/deciding", "", 200, `{"on":true}`},
	} {
		req, err := http.NewRequestWithContext(ctx, ask.method, "http://engine"+ask.path, strings.NewReader(ask.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := strings.TrimSpace(string(body)); resp.StatusCode != ask.code || got != ask.says {
			t.Errorf("%s %s %.20s: %d %s", ask.method, ask.path, ask.body, resp.StatusCode, got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
