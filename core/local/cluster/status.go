package cluster

import (
	"context"
	"fmt"
	"sync"

	"kith.dev/core/base/notify"
)

// status keeps the State of a cluster, for all kinds of Engine.
type status struct {
	changed notify.Broadcast

	mu     sync.Mutex
	state  State
	asleep bool // it is to sleep: no other state is taken on
	down   bool // what sleeps has ended
}

func newStatus(phase Phase, why string) *status { return &status{state: State{phase, why}} }

// State is how the cluster is.
func (s *status) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Changed tells of the next State.
func (s *status) Changed() <-chan struct{} { return s.changed.Wait() }

// WaitReady waits until the API server answers and all there is to know of the cluster is known.
func (s *status) WaitReady(ctx context.Context) error {
	return s.wait(ctx, func(state State) bool { return state.Phase == Ready })
}

// set reports whether it changed anything.
func (s *status) set(phase Phase, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := (State{phase, why}); next != s.state && !s.asleep {
		s.state = next
		s.changed.Notify()
		return true
	}
	return false
}

// wait returns when done is true for the state; it calls done after every change. Where ctx has ended that is an error in any case: callers
// wait in loops, which would go on for ever.
func (s *status) wait(ctx context.Context, done func(State) bool) error {
	for {
		changed := s.changed.Wait()
		if ctx.Err() == nil && done(s.State()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the local cluster is %s: %w", s.State(), ctx.Err())
		}
	}
}
