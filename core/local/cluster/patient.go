package cluster

import (
	"errors"
	"net/http"
	"syscall"
	"time"
)

// How long a request waits for an engine that starts, and how soon its supervisor has seen that it ended.
const (
	startPatience = 20 * time.Second
	endSeen       = 100 * time.Millisecond
)

// Patient, for rest.Config.Wrap, makes requests to an engine that is starting wait until it is ready, for 20 seconds at most. Without it
// the backoff of watches that meet a closed port grows, and they reconnect up to minutes after the engine is ready.
func Patient(e states) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return patient{e, next} }
}

// states is the part of Engine that Patient needs.
type states interface {
	State() State
	Changed() <-chan struct{}
}

type patient struct {
	engine states
	next   http.RoundTripper
}

func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.wait(r); err != nil {
		return nil, err
	}
	resp, err := p.next.RoundTrip(r)
	if !errors.Is(err, syscall.ECONNREFUSED) || r.Body != nil {
		return resp, err
	}
	// It ended in this moment. A refused connection has carried nothing, but a body that was read cannot be sent again.
	select {
	case <-time.After(endSeen):
	case <-r.Context().Done():
		return nil, err
	}
	if err := p.wait(r); err != nil {
		return nil, err
	}
	return p.next.RoundTrip(r)
}

// wait returns when the engine is no longer starting, or after the longest wait. The error is that of the request's context.
func (p patient) wait(r *http.Request) error {
	var late <-chan time.Time
	for {
		changed := p.engine.Changed()
		if p.engine.State().Phase != Starting {
			return nil
		}
		if late == nil {
			late = time.After(startPatience)
		}
		select {
		case <-changed:
		case <-late:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// WrappedRoundTripper lets client-go look at what is inside (k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper).
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.next }
