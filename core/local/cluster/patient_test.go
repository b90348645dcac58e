package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequestsWaitForAnEngineThatStarts(t *testing.T) {
	get := func(ctx context.Context) *http.Request {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:6443/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ask := func(e *status, r *http.Request, answer roundTrips) (int, time.Duration, error) {
		asked, began := 0, time.Now()
		_, err := Patient(e)(roundTrips(func(r *http.Request) (*http.Response, error) { asked++; return answer(r) })).RoundTrip(r)
		return asked, time.Since(began), err
	}
	yes := func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil }
	refused := func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	newEngine := func(p Phase) *status { return newStatus(p, "") }

	synctest.Test(t, func(t *testing.T) { // until it is ready
		e := newEngine(Starting)
		time.AfterFunc(3*time.Second, func() { e.set(Starting, "almost") })
		time.AfterFunc(5*time.Second, func() { e.set(Ready, "") })
		if asked, took, err := ask(e, get(t.Context()), yes); err != nil || asked != 1 || took != 5*time.Second {
			t.Errorf("asked %d times, %v, %v", asked, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that never gets ready is asked all the same
		if asked, took, err := ask(newEngine(Starting), get(t.Context()), refused); !errors.Is(err, syscall.ECONNREFUSED) || asked != 2 || took != 2*startPatience+endSeen {
			t.Errorf("asked %d times, %v, %v", asked, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that ended before its supervisor saw it
		e := newEngine(Ready)
		time.AfterFunc(endSeen/2, func() { e.set(Starting, "it was killed") })
		time.AfterFunc(4*time.Second, func() { e.set(Ready, "") })
		began := time.Now()
		asked, took, err := ask(e, get(t.Context()), func(r *http.Request) (*http.Response, error) {
			if time.Since(began) < 4*time.Second {
				return refused(r)
			}
			return yes(r)
		})
		if err != nil || asked != 2 || took != 4*time.Second {
			t.Errorf("asked %d times, %v, %v", asked, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // what is not ready for another reason may answer
		for _, p := range []Phase{Ready, Degraded, Failed, Stopped} {
			if asked, took, err := ask(newEngine(p), get(t.Context()), yes); err != nil || asked != 1 || took != 0 {
				t.Errorf("%s: asked %d times, %v, %v", p, asked, took, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // a body is sent once
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1:6443/api/v1/pods", io.NopCloser(strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		if asked, _, err := ask(newEngine(Ready), r, refused); !errors.Is(err, syscall.ECONNREFUSED) || asked != 1 {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // who asks does not wait for longer than it wants
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if asked, took, err := ask(newEngine(Starting), get(ctx), yes); !errors.Is(err, context.DeadlineExceeded) || asked != 0 || took != time.Second {
			t.Errorf("asked %d times, %v, %v", asked, took, err)
		}
	})
}
