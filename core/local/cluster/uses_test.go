package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAUseLastsUntilItsAnswerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u Uses
		if !u.Last().IsZero() {
			t.Error("used before anybody did")
		}
		answer := func(body io.ReadCloser, err error) roundTrips {
			return func(*http.Request) (*http.Response, error) {
				if err != nil {
					return nil, err
				}
				return &http.Response{Body: body}, nil
			}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:6443/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Counted(&u)(answer(io.NopCloser(strings.NewReader("a watch")), nil)).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if ago := time.Since(u.Last()); ago != 0 {
			t.Errorf("an open watch was a use %s ago", ago)
		}
		resp.Body.Close()
		resp.Body.Close() // as some do
		time.Sleep(time.Minute)
		if ago := time.Since(u.Last()); ago != time.Minute {
			t.Errorf("it ended %s ago", ago)
		}
		if _, err := Counted(&u)(answer(nil, errors.New("cut"))).RoundTrip(r); err == nil {
			t.Fatal("no error")
		}
		time.Sleep(time.Second)
		if ago := time.Since(u.Last()); ago != time.Second {
			t.Errorf("what failed ended %s ago", ago)
		}
		stream := struct {
			io.ReadCloser
			io.Writer
		}{io.NopCloser(strings.NewReader("")), io.Discard}
		resp, err = Counted(&u)(answer(stream, nil)).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, writes := resp.Body.(io.ReadWriteCloser); !writes {
			t.Error("an upgraded connection can be written to no more")
		}
	})
}

func TestARequestWakesTheEngine(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		wakes        bool
	}{
		{http.MethodGet, "/api/v1/pods", true},
		{http.MethodGet, "/api/v1/pods?resourceVersion=17", true},
		{http.MethodPost, "/api/v1/namespaces/default/pods", true},
		{http.MethodPatch, "/apis/kith.dev/v1alpha1/peers/bob/status", true},
		{http.MethodGet, "/api/v1/pods?watch=true", false},
		{http.MethodGet, "/api/v1/pods?limit=500&resourceVersion=0", false},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kith-bob", false},
		{http.MethodPatch, "/api/v1/nodes/kith-bob/status", false},
		{http.MethodGet, "/api/v1/nodes/kith-bob", false}, // as before its status is written
		{http.MethodGet, "/api/v1/nodes", true},
		{http.MethodPatch, "/api/v1/nodes/kith-bob", true},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &sleeper{status: newStatus(Ready, "")}
				if err := e.fallAsleep(); err != nil {
					t.Fatal(err)
				}
				r, err := http.NewRequestWithContext(t.Context(), tt.method, "https://127.0.0.1:6443"+tt.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				time.AfterFunc(time.Hour, func() { e.Wake("something else") }) // something else
				if _, err := Patient(e)(roundTrips(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil })).RoundTrip(r); err != nil {
					t.Fatal(err)
				}
				want := time.Hour + 3*time.Second
				if tt.wakes {
					want = 3 * time.Second
				}
				if took := time.Since(began); took != want {
					t.Errorf("answered after %s, want %s", took, want)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a watch that nobody wants any more waits no longer
		e := &sleeper{status: newStatus(Ready, "")}
		if err := e.fallAsleep(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:6443/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Patient(e)(nil).RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) || e.State().Phase != Asleep {
			t.Errorf("%v, %v", err, e.State())
		}
	})
}

// sleeper is ready three seconds after it was woken.
type sleeper struct{ *status }

func (s *sleeper) Wake(string) {
	if s.standUp(State{Starting, "it wakes up"}) {
		time.AfterFunc(3*time.Second, func() { s.set(Ready, "") })
	}
}
