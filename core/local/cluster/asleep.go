package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"kith.dev/core/base/process"
)

// errSleeps says that the engine was ended because it is to sleep.
var errSleeps = errors.New("it sleeps")

// Sleep has Run end the engine, and waits for that. From now on requests that go through Patient wait.
func (c *child) Sleep(ctx context.Context, used func() bool) error {
	if c.lieDown == nil {
		return c.status.Sleep(ctx, used)
	}
	if err := c.fallAsleep(); err != nil {
		return err
	}
	if used() { // a request that was let through a moment ago would find nobody
		c.standUp(State{Phase: Ready})
		return errors.New("somebody uses it")
	}
	c.ring()
	for {
		changed := c.Changed()
		if asleep, down := c.lies(); !asleep {
			return errors.New(c.what + " was woken before it slept")
		} else if down {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("end %s, which is to sleep: %w", c.what, ctx.Err())
		}
	}
}

// Wake has Run start the engine again. Who waits for it waits as for one that starts.
func (c *child) Wake(by string) {
	if c.standUp(State{Starting, "it was asleep, and wakes up"}) {
		c.log.Info(c.what+" wakes up", "by", by)
		c.ring()
	}
}

// ring has Run look at what is wanted.
func (c *child) ring() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// rest ends what the engine left running and returns when it is to run again, or ctx ends.
func (c *child) rest(ctx context.Context) {
	if err := c.lieDown(ctx); err != nil {
		c.log.Warn(c.what+" sleeps, and a part of it still runs", "err", err)
	}
	c.log.Info(c.what + " sleeps until it is needed")
	c.takeDoorstep()
	defer c.watchDoorstep(ctx)()
	for c.liesDown(); c.sleeps(); {
		select {
		case <-c.news:
		case <-ctx.Done():
			return
		}
	}
}

// endRuntime ends containerd, which outlives the engine so that pods do. Containers, if there should be any, go on.
func (b *Builtin) endRuntime(ctx context.Context) error {
	p, _ := process.Find(filepath.Join(b.cfg.RunDir, "containerd", "containerd.pid"))
	if p == nil {
		return nil
	}
	defer p.Close()
	return p.End(ctx, b.pace.goodbye)
}

// Sleep always returns ErrNotOurs: most clusters are not Kith's to end.
func (s *status) Sleep(context.Context, func() bool) error {
	return fmt.Errorf("put it to sleep: %w", ErrNotOurs)
}

// Wake does nothing: what never sleeps is awake.
func (s *status) Wake(string) {}

func (s *status) fallAsleep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Phase != Ready {
		return fmt.Errorf("it is %s", s.state)
	}
	s.state, s.asleep, s.down = State{Asleep, "nobody needs it; it starts when somebody does"}, true, false
	s.changed.Notify()
	return nil
}

// standUp reports whether it slept, or was about to.
func (s *status) standUp(as State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asleep {
		return false
	}
	s.state, s.asleep = as, false
	s.changed.Notify()
	return true
}

func (s *status) liesDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.changed.Notify()
}

func (s *status) lies() (asleep, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asleep, s.down
}

func (s *status) sleeps() bool { asleep, _ := s.lies(); return asleep }
