package mode

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/local/frontdoor"
)

// life is one process of alice's kithd. It dies when deaths effects have been counted, before the last one or after it.
type life struct {
	*world
	*Machine
	ctx  context.Context
	kill context.CancelFunc
	over chan struct{}

	mu       sync.Mutex
	effect   int
	dies     int // 0: never
	after    bool
	stumbles bool // in place of dying it hears of an error
	at       step // where it died
	led      []frontdoor.Destination
}

var errDead = errors.New("killed")

// do has an effect on the world, unless the process is dead or dies by it.
func (l *life) do(effect func() error) error {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return errDead
	}
	l.effect++
	dies := l.effect == l.dies
	if dies {
		if j := l.Machine.now.Load(); j != nil {
			l.at = j.Step
		}
		if !l.stumbles {
			l.kill()
		}
	}
	l.mu.Unlock()
	if dies && !l.after {
		return errDead
	}
	err := effect()
	if dies {
		return errDead
	}
	return err
}

// sure has an effect that cannot fail.
func (l *life) sure(effect func()) {
	l.mu.Lock()
	if l.stumbles && l.effect+1 == l.dies {
		l.dies++
	}
	l.mu.Unlock()
	_ = l.do(func() error { effect(); return nil })
}

// begin starts a process.
func (w *world) begin(change func(*Config), dies int, after bool) *life {
	l := &life{world: w, dies: dies, after: after, over: make(chan struct{})}
	l.ctx, l.kill = context.WithCancel(context.Background())
	written := func(call func() error) error {
		err := l.do(call)
		w.react(20 * time.Millisecond)
		return err
	}
	own := ledgertest.Over(w.t, interceptor.NewClient(w.objects.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return written(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return written(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return written(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return written(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}))
	cfg := Config{
		Path: w.path, ID: aliceID, Engine: l, Ours: true, Door: l, Directory: l, Changed: w.changed.Wait, Notify: func() {}, Log: slog.New(slog.DiscardHandler),
		Home: func() (frontdoor.Destination, error) { return frontdoor.Destination{Name: "home"}, nil },
		Company: func(p *v1alpha1.Peer) (frontdoor.Destination, error) {
			return frontdoor.Destination{Name: p.Name, Base: &url.URL{}}, nil
		},
		Cluster: func() *Cluster {
			return &Cluster{Client: own, Fresh: own, SetBinding: func(on bool) {
				l.sure(func() { w.mu.Lock(); w.binds = on; w.mu.Unlock() })
			}}
		},
		Announce: func(e api.Event) { w.mu.Lock(); w.events = append(w.events, e); w.mu.Unlock() },
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	l.Machine = m
	m.reach = func(*v1alpha1.Peer) (company, error) { return l, nil }
	m.write = func(path string, j *journal) error { return l.do(func() error { return writeJournal(path, j) }) }
	w.mu.Lock()
	w.machine = m
	w.mu.Unlock()
	go func() {
		defer close(l.over)
		for l.ctx.Err() == nil {
			_ = m.Run(l.ctx)
			select {
			case <-time.After(time.Second):
			case <-l.ctx.Done():
			}
		}
	}()
	w.react(0)
	synctest.Wait()
	return l
}

func (l *life) stop() {
	l.kill()
	<-l.over
	l.world.mu.Lock()
	l.world.machine = nil
	l.world.mu.Unlock()
	synctest.Wait()
}

func (l *life) WaitReady(context.Context) error { return nil }
func (l *life) Decide(_ context.Context, on bool) error {
	return l.do(func() error { l.world.mu.Lock(); l.decides = on; l.world.mu.Unlock(); return nil })
}

func (l *life) Lead(to frontdoor.Destination) {
	l.sure(func() { l.mu.Lock(); l.led = append(l.led, to); l.mu.Unlock() })
}

// leads is where the front door leads.
func (l *life) leads() frontdoor.Destination {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.led) == 0 {
		return frontdoor.Destination{}
	}
	return l.led[len(l.led)-1]
}

func (l *life) Client(*v1alpha1.Peer) (*peering.Client, error) { return nil, errors.ErrUnsupported }
func (l *life) Contact(*v1alpha1.Peer) peering.Contact {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.contact
}

var errAway = errors.New("no answer in time")

func (l *life) call(what func() error) error {
	err := l.do(func() error {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		if !l.contact.Reachable() {
			return errAway
		}
		return what()
	})
	l.react(50 * time.Millisecond)
	return err
}

func (l *life) Tether(context.Context) (peering.Tether, error) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.answer, l.answers
}

func (l *life) BeginTether(context.Context) (peering.Tether, error) {
	t := peering.Tether{Runs: true, Grant: &peering.TetherGrant{User: "kith:laptop:bbb", Namespaces: []peering.TetherNamespace{{Name: "team-a", Role: "edit"}}}}
	return t, l.call(func() error {
		switch {
		case l.refuses != nil:
			return l.refuses
		case !l.accepted && !l.runs:
			return &peering.Problem{Code: peering.CodeForbidden, Message: "nothing was accepted"}
		}
		l.accepted, l.runs = false, true
		return nil
	})
}

func (l *life) EndTether(context.Context) error {
	return l.call(func() error { l.accepted, l.runs = false, false; return nil })
}

// tether begins a tether and gives its result.
func (l *life) tether(options api.TetherOptions) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Machine.Tether(l.ctx, l.world.peer(), options, func(api.Progress) {}) }()
	return result
}

func (l *life) untether(options api.UntetherOptions, report func(api.Progress)) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Untether(l.ctx, options, report) }()
	return result
}

// settled checks that all of the world fits to the mode.
func (l *life) settled(want api.Mode) {
	l.t.Helper()
	synctest.Wait()
	mode, _ := l.Status()
	if mode != want {
		_, t := l.Status()
		l.t.Fatalf("mode %s (%+v), want %s", mode, t, want)
	}
	is, peer, ctr := mode == api.Tethered, l.world.peer(), l.world.contract()
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	if l.decides == is {
		l.t.Errorf("%s: the engine decides: %v", mode, l.decides)
	}
	if l.binds != is {
		l.t.Errorf("%s: guests are bound here: %v", mode, l.binds)
	}
	if door := l.leads().Name; door != map[bool]string{true: "corp", false: "home"}[is] {
		l.t.Errorf("%s: the front door leads to %q", mode, door)
	}
	if (ctr != nil) != is {
		l.t.Errorf("%s: contract %v", mode, ctr)
	}
	if l.runs != is {
		l.t.Errorf("%s: corp runs alice: %v", mode, l.runs)
	}
	if (peer.Spec.Request != nil) != is || (peer.Status.Tether != nil) != is {
		l.t.Errorf("%s: request %v, status %v", mode, peer.Spec.Request, peer.Status.Tether)
	}
	if is && (peer.Status.Tether.Step != "tethered" || peer.Status.Tether.User == "") {
		l.t.Errorf("the Peer shows %+v", peer.Status.Tether)
	}
}
