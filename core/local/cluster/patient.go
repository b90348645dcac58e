package cluster

import (
	"errors"
	"net/http"
	"strings"
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
//
// A request to an engine that sleeps wakes it, and waits like that. Those that do without an answer as long as nothing happens (follows)
// wait until something else has woken it.
func Patient(e states) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return patient{e, next, follows} }
}

// Waking is Patient for users, whose every request wakes an engine that sleeps: somebody looks at what they watch.
func Waking(e states) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return patient{e, next, func(*http.Request) bool { return false }}
	}
}

// states is the part of Engine that Patient needs.
type states interface {
	State() State
	Changed() <-chan struct{}
	Wake(by string)
}

type patient struct {
	engine  states
	next    http.RoundTripper
	follows func(*http.Request) bool // does without an answer while the engine sleeps
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
		switch phase := p.engine.State().Phase; {
		case phase == Asleep && !p.follows(r):
			p.engine.Wake(r.Method + " " + r.URL.Path)
			continue
		case phase == Starting && late == nil:
			late = time.After(startPatience)
		case phase != Starting && phase != Asleep:
			return nil
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

// follows reports whether a request only keeps up with the cluster, or says that a node is alive: watches, the lists that informers begin
// with, leases, and a node that is read before its status is written.
func follows(r *http.Request) bool {
	path := r.URL.Path
	if r.Method == http.MethodGet {
		q := r.URL.Query()
		return q.Get("watch") != "" || q.Get("resourceVersion") == "0" || strings.HasPrefix(path, oneNode)
	}
	return strings.HasPrefix(path, "/apis/coordination.k8s.io/") || strings.HasPrefix(path, oneNode) && strings.HasSuffix(path, "/status")
}

const oneNode = "/api/v1/nodes/"

// WrappedRoundTripper lets client-go look at what is inside (k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper).
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.next }
