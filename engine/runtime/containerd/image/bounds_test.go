package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a transport that answers with a body.
type answers struct {
	status int
	body   io.ReadCloser
	err    error
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	if p, is := a.body.(*io.PipeReader); is {
		context.AfterFunc(r.Context(), func() { p.CloseWithError(r.Context().Err()) })
	}
	return &http.Response{StatusCode: a.status, Body: a.body, Request: r}, nil
}

// TestAnAnswerThatStandsStillEnds: also before its last byte; one that is slow goes on.
func TestAnAnswerThatStandsStillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, in := io.Pipe()
		var broken atomic.Bool
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://home/x/blobs/sha256:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := steady{answers{status: 200, body: body}, 30 * time.Second, &broken}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 10 {
				time.Sleep(20 * time.Second)
				_, _ = in.Write([]byte("x"))
			}
		}()
		began := time.Now()
		text, err := io.ReadAll(resp.Body)
		if took := time.Since(began); len(text) != 10 || !errors.Is(err, errQuiet) || took != 230*time.Second || !broken.Load() {
			t.Errorf("%q, %v after %s, broken: %v", text, err, took, broken.Load())
		}
		resp.Body.Close()
	})
}

// What is to be read whole has an end, and whether another attempt is worth it is seen from the connection alone.
func TestWhatIsReadWholeHasAnEnd(t *testing.T) {
	body := func(n int) io.ReadCloser { return io.NopCloser(strings.NewReader(strings.Repeat("x", n))) }
	for name, c := range map[string]struct {
		path   string
		answer answers
		fails  bool
		broken bool
	}{
		"a manifest":            {"/v2/x/manifests/1", answers{status: 200, body: body(mostDescription)}, false, false},
		"a manifest of 5 MB":    {"/v2/x/manifests/1", answers{status: 200, body: body(5 << 20)}, true, false},
		"a layer of 5 MB":       {"/v2/x/blobs/sha256:1", answers{status: 200, body: body(5 << 20)}, false, false},
		"home does not answer":  {"/v2/x/blobs/sha256:1", answers{err: errors.New("refused")}, true, true},
		"home's Kith restarts":  {"/v2/x/blobs/sha256:1", answers{status: 502, body: body(1)}, false, true},
		"home does not have it": {"/v2/x/blobs/sha256:1", answers{status: 404, body: body(1)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://home"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := steady{c.answer, time.Minute, &broken}.RoundTrip(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if (err != nil) != c.fails || broken.Load() != c.broken {
				t.Errorf("%v, broken: %v", err, broken.Load())
			}
		})
	}
}

func TestAFullDiskTakesNoImages(t *testing.T) {
	ctx, cancel := roomy(t.Context(), "/proc") // which has no blocks, and so is never full
	if ctx.Err() != nil {
		t.Error("what has no size is full")
	}
	for _, folder := range []string{"/nonexistent", ""} {
		none, end := roomy(t.Context(), folder)
		if none.Err() == nil || !errors.Is(context.Cause(none), errFull) {
			t.Errorf("%q cannot be looked at, and something is put there: %v", folder, context.Cause(none))
		}
		end()
	}
	cancel()
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
}
