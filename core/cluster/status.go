package cluster

import (
	"context"
	"fmt"
	"sync"

	"kith.dev/core/notify"
)

// status is a State that can be waited for.
type status struct {
	changed notify.Broadcast

	mu    sync.Mutex
	state State
}

func newStatus(phase Phase, why string) *status { return &status{state: State{phase, why}} }

func (s *status) get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// set reports whether it changed anything.
func (s *status) set(phase Phase, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := (State{phase, why}); next != s.state {
		s.state = next
		s.changed.Notify()
		return true
	}
	return false
}

// wait returns when done says so of the state, which it is asked again after every change.
func (s *status) wait(ctx context.Context, done func(State) bool) error {
	for {
		changed := s.changed.Wait()
		if done(s.get()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the local cluster is %s: %w", s.get(), ctx.Err())
		}
	}
}

func (s *status) waitReady(ctx context.Context) error {
	return s.wait(ctx, func(state State) bool { return state.Phase == Ready })
}
