// Package deciding is the switch of what decides in a cluster: the scheduler, and the controllers that make, scale and end pods. The server
// runs it; kithd tells it over a unix socket (Serve). Off is for a laptop whose pods somebody else decides on; the API server, the kubelet
// and the controllers that keep house go on, so what is there stays as it is.
//
// It must never say that something is off while it may still write.
package deciding

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"kith.dev/core/base/notify"
)

// ErrOverruled says that the switch was told the opposite before it had done what it was told.
var ErrOverruled = errors.New("it was told the opposite meanwhile")

// Switch runs what decides, or what goes on without it. Make it with New; all methods may be called by many at once.
type Switch struct {
	run     func(ctx context.Context, on bool) error
	changed notify.Broadcast

	mu      sync.Mutex
	want    bool
	is      bool // what was started last
	settled bool // it runs, and what ran before it has ended
}

// New makes a switch that is on or off at first. run runs one of both until ctx ends, and returns when all of it has ended.
func New(on bool, run func(ctx context.Context, on bool) error) *Switch {
	return &Switch{run: run, want: on}
}

// Run runs what is wanted until ctx ends, or what runs fails. What does not end as it should is a failure too: the process then is not one
// in which anything can be started again.
func (s *Switch) Run(ctx context.Context) error {
	for {
		on := s.begin()
		inner, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.run(inner, on) }()
		err, early := s.await(ctx, on, ended)
		stop()
		if !early {
			err = <-ended
		} else if err == nil {
			err = errors.New("ended by itself")
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// begin gives what is to run, and says that it does.
func (s *Switch) begin() (on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is, s.settled = s.want, true
	s.changed.Notify()
	return s.is
}

// await returns when something else is wanted, or ctx ends; early with the reason when what runs ended before.
func (s *Switch) await(ctx context.Context, on bool, ended <-chan error) (err error, early bool) {
	for {
		changed := s.changed.Wait()
		s.mu.Lock()
		if s.want != on {
			s.settled = false
			s.mu.Unlock()
			return nil, false
		}
		s.mu.Unlock()
		select {
		case err := <-ended:
			return err, true
		case <-ctx.Done():
			return nil, false
		case <-changed:
		}
	}
}

// On reports whether something that decides may be at work.
func (s *Switch) On() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}

// Set turns it on or off, and returns when that is done: off, nothing that decides writes any more. It returns ErrOverruled when
// another Set says the opposite meanwhile.
func (s *Switch) Set(ctx context.Context, on bool) error {
	s.mu.Lock()
	s.want = on
	s.mu.Unlock()
	s.changed.Notify()
	for {
		changed := s.changed.Wait()
		s.mu.Lock()
		want, done := s.want, s.settled && s.is == on
		s.mu.Unlock()
		switch {
		case want != on:
			return ErrOverruled
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("turn it %s: %w", word(on), context.Cause(ctx))
		}
	}
}

func word(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
