package idle

import (
	"context"
	"log/slog"
	"time"

	"kith.dev/core/local/cluster"
)

const (
	downPatience = time.Minute // how long an engine may take to end
	clockLook    = time.Minute // a timer stands still while the laptop is suspended, and the clock on the wall does not
	forever      = time.Duration(1<<63 - 1)
)

// Engine is the part of cluster.Engine that a Sleeper needs.
type Engine interface {
	WaitReady(ctx context.Context) error
	State() cluster.State
	Changed() <-chan struct{}
	Sleep(ctx context.Context, used func() bool) error
	Wake(by string)
}

// Sleeper puts an engine to sleep when nobody used it for a while and it has nothing to do, and wakes it for what it has to do at a time.
// Everything else wakes it by asking it something (cluster.Patient).
type Sleeper struct {
	Engine Engine
	Uses   *cluster.Uses
	After  time.Duration // without use
	May    func(ctx context.Context) (Verdict, error)
	Log    *slog.Logger
}

// Run returns when ctx ends.
func (s *Sleeper) Run(ctx context.Context) error {
	quiet := time.Now() // since when nobody used it and, as far as is known, it had nothing to do
	for s.Engine.WaitReady(ctx) == nil {
		if used := s.Uses.Last(); used.After(quiet) {
			quiet = used
		}
		if left := s.After - time.Since(quiet); left > 0 {
			pause(ctx, left, nil)
			continue
		}
		quiet = time.Now() // what keeps it awake now may have ended after another while
		v, err := s.look(ctx)
		switch {
		case err != nil:
			s.Log.Warn("whether the Kubernetes of this laptop may sleep is not known, so it stays awake", "err", err)
		case v.Stay != "":
			s.Log.Debug("the Kubernetes of this laptop stays awake", "reason", v.Stay, "for", v.What)
		default:
			s.sleep(ctx, v, func() bool { return s.Uses.Last().After(quiet) })
			_ = s.Engine.WaitReady(ctx) // until then nobody could use it; ctx alone ends it
			quiet = time.Now()
		}
	}
	return nil
}

func (s *Sleeper) look(ctx context.Context) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, downPatience)
	defer cancel()
	return s.May(ctx)
}

// sleep returns when the engine was woken: by somebody who needs it, or for what is due.
func (s *Sleeper) sleep(ctx context.Context, v Verdict, used func() bool) {
	down, cancel := context.WithTimeout(ctx, downPatience)
	err := s.Engine.Sleep(down, used)
	cancel()
	if err != nil {
		s.Log.Info("the Kubernetes of this laptop does not sleep", "err", err)
	}
	for ctx.Err() == nil {
		changed := s.Engine.Changed()
		if s.Engine.State().Phase != cluster.Asleep {
			return
		}
		if v.Until.IsZero() {
			pause(ctx, forever, changed)
			continue
		}
		left := time.Until(v.Until) // by the clock on the wall, which is all that it has
		if left <= 0 {
			s.Engine.Wake("what is due: " + v.What)
			return
		}
		pause(ctx, min(left, clockLook), changed)
	}
}

// pause returns after some time, when something else happened, or when ctx ends.
func pause(ctx context.Context, d time.Duration, other <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-other:
	case <-ctx.Done():
	}
}
