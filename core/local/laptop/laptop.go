package laptop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/core/base/backoff"
	"kith.dev/core/base/power"
)

// Config is what a Laptop needs.
type Config struct {
	// Connect connects to the bus; nil: to that of the system.
	Connect func(...dbus.ConnOption) (*dbus.Conn, error)
	// Tell tells peers that this machine is about to be suspended. It returns when they know, or when ctx ends, which is soon.
	Tell func(ctx context.Context)
	// Woke is called when the machine is awake again, also when nobody was told before.
	Woke func()
	// Guests counts the guests that run here, while it is kept awake; not known: nothing follows. GuestsMoved gives a channel that is closed when
	// that may have changed. nil: there are none.
	Guests      func() (n int, known bool)
	GuestsMoved func() <-chan struct{}
	// Power says where this machine's power comes from; nil: as the kernel says.
	Power func() power.State
	// Kept is called when it is kept awake from now on, or is so under other terms, and with why when it is no more.
	Kept func(Kept, Ended)
	Log  *slog.Logger
}

func (c *Config) guests() (n int, known bool) {
	if c.Guests == nil {
		return 0, true
	}
	return c.Guests()
}

// State is what is known of the machine now.
type State struct {
	// IdleSince is since when nobody uses the desktop; zero: somebody does. IdleUnknown is why that is not known, for people, peers among them; ""
	// when it is.
	IdleSince   time.Time
	IdleUnknown string
	// Metered: the network is paid for by the amount. MeteredUnknown is why that is not known, likewise.
	Metered        bool
	MeteredUnknown string
	// Locked: a suspend waits until peers are told.
	Locked bool
	// CanKeep: the machine can be kept awake, since logind could suspend it. Kept says how it is.
	CanKeep bool
	Kept    Kept
}

// Laptop watches this machine. Safe for concurrent use.
type Laptop struct {
	cfg    Config
	wishes chan wish // of the owner, to be kept awake or not

	mu  sync.Mutex
	now State
}

// The pauses between attempts to connect to a bus that is not there: a machine that has none costs nothing.
const (
	firstPause = time.Second
	longest    = 10 * time.Minute
)

// New makes a Laptop, of which nothing is known until it runs.
func New(cfg Config) *Laptop {
	if cfg.Connect == nil {
		cfg.Connect = dbus.ConnectSystemBus
	}
	if cfg.Power == nil {
		cfg.Power = func() power.State { return power.Read(power.Root) }
	}
	return &Laptop{cfg: cfg, wishes: make(chan wish), now: unknown("it was not asked yet")}
}

// kept notes that it is kept awake, or is no more, and tells of it.
func (l *Laptop) kept(is Kept, why Ended) {
	l.set(func(now *State) { now.Kept = is })
	if l.cfg.Kept != nil {
		l.cfg.Kept(is, why)
	}
}

// unknown is the state of a machine of which nothing is known.
func unknown(why string) State { return State{IdleUnknown: why, MeteredUnknown: why} }

// Now is what is known.
func (l *Laptop) Now() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *Laptop) set(change func(*State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.now)
}

// Run watches until ctx ends; the error is nil. A bus that is not there, or ends, is looked for again with growing pauses.
func (l *Laptop) Run(ctx context.Context) error {
	growing := backoff.Doubling{First: firstPause, Most: longest, Jitter: 0.25}
	for ctx.Err() == nil {
		begin := time.Now()
		err := l.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		l.set(func(now *State) { *now = unknown("there is no system bus") })
		l.cfg.Log.Debug("no system bus; it will be looked for again", "err", err)
		if time.Since(begin) > longest {
			growing.Reset()
		}
		select {
		case <-time.After(growing.Next()):
		case <-ctx.Done():
		}
	}
	return nil
}
