package mode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/local/frontdoor"
	"kith.dev/core/trust/wire"
)

// Engine is the local cluster, of which a switch needs little.
type Engine interface {
	WaitReady(ctx context.Context) error
	Decide(ctx context.Context, on bool) error
}

// Cluster is the local cluster, while its API server answers.
type Cluster struct {
	Client     *ledger.Ledger
	Fresh      client.Reader // past the cache
	SetBinding func(bool)    // of hosting: whether guests are bound here
}

// Door is the front door.
type Door interface{ Lead(frontdoor.Destination) }

// Config is what a Machine needs.
type Config struct {
	Path      string                                              // of the journal
	ID        string                                              // of this cluster
	Engine    Engine                                              // nil: there is no Kubernetes here
	Ours      bool                                                // Kith runs the cluster; in others it cannot turn scheduler and controllers off
	Home      func() (frontdoor.Destination, error)               // the local API server, once it is ready
	Company   func(*v1alpha1.Peer) (frontdoor.Destination, error) // the API server of a company, through its peer API
	Door      Door                                                // nil: there is none, and the laptop cannot be tethered
	Cluster   func() *Cluster                                     // nil while the API server does not answer
	Directory link.Directory
	Changed   func() <-chan struct{} // closed at the next change of a contact, a Peer, a Contract or the result of Cluster
	Patience  time.Duration          // autoUntetherAfter: after how long without an answer of the company the laptop is untethered; 0: never
	Announce  func(api.Event)
	Notify    func() // called when Status has changed
	Log       *slog.Logger
}

// company is what is asked of the company's kithd.
type company interface {
	Tether(ctx context.Context) (peering.Tether, error)
	BeginTether(ctx context.Context) (peering.Tether, error)
	EndTether(ctx context.Context) error
}

// Machine holds the mode and runs its switches. Make it with New. Safe for concurrent use.
type Machine struct {
	cfg   Config
	reach func(*v1alpha1.Peer) (company, error)
	write func(path string, j *journal) error

	now     atomic.Pointer[journal] // as it is on the disk; nil: autonomous
	changed notify.Broadcast        // notifies when now or said has changed

	mu      sync.Mutex
	cancel  context.CancelFunc // interrupts the current step of Run, because another switch was requested
	said    saying
	last    result
	resumed bool // the switch under way was begun by an earlier process

	// Used by Run's goroutine only.
	began  time.Time // when this process began the step
	begun  *journal  // the first one of the step
	led    string    // where this process last pointed the front door; "": not yet
	tidied bool
	awake  time.Time // when this laptop last woke from sleep, or this process started
	looked time.Time // when Run last compared the clocks, to notice a sleep
	// delivered: the one call that the current step makes has succeeded, so it is not repeated: in joining BeginTether, in leaving
	// EndTether, in tethered Engine.Decide(false).
	delivered bool
	pause     time.Duration
	asked     time.Time // when a company was asked last whether it still has this laptop
	shown     string    // in the Peer
}

// saying is what Status says about the current step.
type saying struct {
	why     string
	code    string
	confirm *api.Confirmation
}

// result is how the last switch back went.
type result struct {
	attempt int64
	journal *journal
}

// New reads the journal. A damaged one is an error that says what to do.
func New(cfg Config) (*Machine, error) {
	j, err := readJournal(cfg.Path)
	if err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg, write: writeJournal, resumed: j != nil && j.Step != tethered}
	m.reach = func(peer *v1alpha1.Peer) (company, error) { return cfg.Directory.Client(peer) }
	m.now.Store(j)
	return m, nil
}

// Run finishes what was begun, and keeps the mode until ctx ends.
func (m *Machine) Run(ctx context.Context) error {
	if m.cfg.Engine == nil {
		<-ctx.Done()
		return nil
	}
	m.begun, m.tidied, m.shown = nil, false, ""
	m.awake, m.looked = time.Now(), time.Now()
	m.mu.Lock()
	resumed := m.resumed
	m.mu.Unlock()
	if j := m.now.Load(); j != nil && resumed {
		m.cfg.Log.Info("a switch of the mode was broken off; it goes on", "goal", j.Goal, "peer", j.Peer, "step", j.Step)
	}
	for ctx.Err() == nil {
		if err := m.turn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waiting is the error of a step that is not done; it is looked at again when something changes, and after a while.
type waiting struct {
	why   string // for people; "" when there is nothing to say
	after time.Duration
}

func (w *waiting) Error() string { return w.why }

// failed is the error of a step that cannot be done: the switch is reverted, or the tether ended.
type failed struct {
	code    api.Code
	why, do string
	force   bool
}

func (f *failed) Error() string { return f.why }

const (
	maxWhy     = 512 // bytes
	firstPause = 100 * time.Millisecond
	longest    = 2 * time.Second
)

// turn tries the current step once, and waits if it is not done.
func (m *Machine) turn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := m.cfg.Changed()
	m.mu.Lock()
	m.cancel = cancel
	j := m.now.Load()
	m.mu.Unlock()
	if j == nil {
		return m.rest(ctx, changed)
	}
	m.tidied = false
	if m.begun == nil || m.begun.Step != j.Step || m.begun.Attempt != j.Attempt {
		m.begun, m.began, m.delivered, m.pause = j, time.Now(), false, firstPause
		m.say(saying{})
		m.cfg.Log.Info("the mode comes to a step", "step", j.Step, "peer", j.Peer, "goal", j.Goal)
	}
	m.point(j)
	m.show(ctx, j)
	err := stages[j.Step].do(m, ctx, j)
	if ctx.Err() != nil {
		return nil
	}
	var wait *waiting
	var fail *failed
	switch {
	case err == nil:
		return m.put(j, stages[j.Step].follow(j))
	case errors.As(err, &fail):
		m.cfg.Log.Warn("the laptop is untethered", "peer", j.Peer, "step", j.Step, "why", fail.why)
		next := j.back()
		next.Why, next.Problem, next.Do, next.Force = wire.Line(fail.why, maxWhy), fail.code, fail.do, j.Force || fail.force
		return m.put(j, next)
	case !errors.As(err, &wait):
		m.cfg.Log.Warn("a step of the mode's switch failed, and is tried again", "step", j.Step, "peer", j.Peer, "err", err)
		wait, changed = &waiting{why: err.Error(), after: m.pause}, nil // whatever changes, it is not tried more often
		m.pause = min(2*m.pause, longest)
	}
	m.saw(wait.why)
	after := wait.after
	if !m.show(ctx, j) && (after == 0 || after > longest) {
		after = longest
	}
	sleep(ctx, changed, after)
	return nil
}

// sleep waits for a change, or so long; 0: for the change alone.
func sleep(ctx context.Context, changed <-chan struct{}, after time.Duration) {
	var timeout <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-changed:
	case <-timeout:
	case <-ctx.Done():
	}
}

// rest is the loop body of an autonomous laptop: it makes sure once that nothing of a tether is left.
func (m *Machine) rest(ctx context.Context, changed <-chan struct{}) error {
	m.begun = nil
	if m.tidied {
		<-ctx.Done() // or an order
		return nil
	}
	err := m.cfg.Engine.WaitReady(ctx)
	if err == nil && m.cfg.Door != nil && m.led != home {
		err = m.leadHome()
	}
	if err == nil && m.cfg.Ours {
		err = m.cfg.Engine.Decide(ctx, true)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	c := m.cfg.Cluster()
	if c == nil {
		sleep(ctx, changed, 0)
		return nil
	}
	c.SetBinding(false)
	if err := m.tidy(ctx, c); err != nil {
		m.cfg.Log.Warn("what is left of a tether is not cleared away", "err", err)
		sleep(ctx, changed, longest)
		return nil
	}
	m.tidied = true
	return nil
}

// put replaces the journal, unless it was replaced meanwhile. An error is of the disk: nothing is done then.
func (m *Machine) put(from, to *journal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.replace(from, to)
	return err
}

// replace is called with mu held.
func (m *Machine) replace(from, to *journal) (bool, error) {
	if m.now.Load() != from {
		return false, nil
	}
	if err := m.write(m.cfg.Path, to); err != nil {
		return false, fmt.Errorf("write down the step of the mode's switch: %w", err)
	}
	if to == nil {
		m.last = result{from.Attempt, from}
	}
	m.now.Store(to)
	m.announce(from, to)
	m.changed.Notify()
	m.cfg.Notify()
	return true, nil
}

// Company is the cluster ID of the company that this laptop is tethered to, or is switching to; "" while it is autonomous. joins reports
// whether the switch has come so far that a contract may be signed with it.
func (m *Machine) Company() (id string, joins bool) {
	j := m.now.Load()
	if j == nil {
		return "", false
	}
	return j.ID, stages[j.Step].joins
}
