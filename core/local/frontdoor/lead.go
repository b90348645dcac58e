package frontdoor

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"kith.dev/core/local/apiproxy"
)

// Destination is where the front door leads. Either there is a Refusal, or the rest is complete.
type Destination struct {
	// Refusal is the sentence that is said to everybody, with 503 Service Unavailable, instead of passing anything on.
	Refusal string
	// Soon: the Refusal will be over within seconds, and programs are told to ask again. kubectl does so for ten seconds, in which
	// its user reads nothing.
	Soon bool

	// Name is how the cluster is called in sentences: "the Kubernetes of this laptop".
	Name string
	// Base is scheme, host and the path in front of those of the API.
	Base *url.URL
	// Transport carries requests; Upgrades, which speaks HTTP/1.1 alone, those that change the protocol (apiproxy.Transports).
	Transport, Upgrades http.RoundTripper
	// As gives the headers that tell that cluster who asks; nil: its transports do. The asker's own Impersonate-* headers, which do not
	// travel by themselves, are in asked. An error is said to the asker, with 403 Forbidden.
	As func(user User, asked http.Header) (http.Header, error)
}

// To is the Destination that is the API server of config.
func To(name string, config *rest.Config, as func(User, http.Header) (http.Header, error)) (Destination, error) {
	d := Destination{Name: name, As: as}
	var err error
	if d.Base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return Destination{}, err
	}
	d.Transport, d.Upgrades, err = apiproxy.Transports(config)
	return d, err
}

// errLed is why what was open ended when the front door was led elsewhere.
var errLed = errors.New("the front door leads to another cluster now")

// How long a switch waits for what is under way.
const (
	grace   = 500 * time.Millisecond // for short requests, to be answered whole
	goodbye = 300 * time.Millisecond // for those that are cut then, to say so
	latest  = 2 * time.Second        // for connections that are closed at last, to be noticed
)

// generation is the time between two switches. All that is asked belongs to one, and so does what is remembered of it.
type generation struct {
	Destination
	proxy apiproxy.Proxy
	book  book

	streams cut // ends watches, followed logs and upgraded connections
	all     cut // ends what is still asked
	writing cut // ends what a client does not read

	mu    sync.Mutex
	open  int
	empty chan struct{} // closed when nothing is open; nil: nobody waits for that
}

// cut is a context and what ends it.
type cut struct {
	context.Context
	end context.CancelCauseFunc
}

func newCut() cut {
	ctx, end := context.WithCancelCause(context.Background())
	return cut{ctx, end}
}

func (g *generation) enter() {
	g.mu.Lock()
	g.open++
	g.mu.Unlock()
}

func (g *generation) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open--; g.open == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// end ends everything that is open, in three steps, and returns when that is done. Nobody enters any more.
func (g *generation) end() (done bool) {
	g.mu.Lock()
	empty := make(chan struct{})
	if g.open == 0 {
		close(empty)
	} else {
		g.empty = empty
	}
	g.mu.Unlock()
	g.streams.end(errLed)
	for _, step := range []struct {
		wait time.Duration
		then cut
	}{{grace, g.all}, {goodbye, g.writing}} {
		within(step.wait, empty)
		step.then.end(errLed)
	}
	return within(latest, empty)
}

// within reports whether it is closed in this time.
func within(patience time.Duration, closed <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// Lead has the front door lead to another Destination. It ends what is open by the former one, as an API server does that restarts:
// watches in good order, others cut when they were not answered within a moment. Who asks meanwhile waits and is answered by
// the new one. It returns when nothing of the former is under way; that takes less than three seconds, most often none.
func (d *Door) Lead(to Destination) {
	d.leading.Lock()
	defer d.leading.Unlock()
	d.mu.Lock()
	former := d.now
	d.now, d.next = nil, make(chan struct{})
	d.mu.Unlock()
	if !former.end() {
		d.cfg.Log.Warn("front door: requests did not end when they were cut; what they read from is closed", "of", former.Name)
	}
	former.rest()
	d.mu.Lock()
	d.now = d.newGeneration(to)
	close(d.next)
	d.mu.Unlock()
	d.cfg.Log.Info("the front door leads elsewhere", "to", to.Name, "refusal", to.Refusal)
}

// rest closes connections that nobody uses any more.
func (g *generation) rest() {
	for _, t := range []http.RoundTripper{g.Transport, g.Upgrades} {
		if t != nil {
			(&http.Client{Transport: t}).CloseIdleConnections()
		}
	}
}

// enter gives the generation of now, which lasts until its leave is called, at least; during a switch it waits for the next one.
func (d *Door) enter(ctx context.Context) (*generation, error) {
	for {
		d.mu.Lock()
		now, next := d.now, d.next
		if now != nil {
			now.enter() // under the same lock: else a switch between the two would miss it
		}
		d.mu.Unlock()
		if now != nil {
			return now, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *Door) newGeneration(to Destination) *generation {
	return &generation{
		Destination: to, book: newBook(), streams: newCut(), all: newCut(), writing: newCut(),
		proxy: apiproxy.Proxy{Transport: to.Transport, Upgrades: to.Upgrades, All: true, Log: d.copies},
	}
}
