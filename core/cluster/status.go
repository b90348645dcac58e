package cluster

import (
	"context"
	"fmt"
	"sync"
)

// status is a State that can be waited for.
type status struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed at the next change
}

func newStatus(phase Phase, why string) *status {
	return &status{state: State{phase, why}, changed: make(chan struct{})}
}

func (s *status) get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *status) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// set tells whether it changed anything.
func (s *status) set(phase Phase, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := (State{phase, why}); next != s.state {
		s.state = next
		close(s.changed)
		s.changed = make(chan struct{})
		return true
	}
	return false
}

// wait returns when done says so of the state, which it is asked again after every change.
func (s *status) wait(ctx context.Context, done func(State) bool) error {
	for {
		s.mu.Lock()
		state, changed := s.state, s.changed
		s.mu.Unlock()
		if done(state) {
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
