package laptop

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// mostTelling bounds how long this machine's suspend is delayed. logind waits for five seconds unless it is told otherwise (InhibitDelayMaxSec in
// logind.conf(5)), and then for nobody.
const mostTelling = 4 * time.Second

// sleep delays suspends until peers are told. Its lock is a delay lock of logind's (https://systemd.io/INHIBITOR_LOCKS/), which is given up by
// closing it. The signal before a suspend may come twice or not at all (github.com/systemd/systemd issue 17579, github.com/elogind/elogind
// issue 380), and so may the one after it; each call is right in any state. One goroutine makes all calls.
type sleep struct {
	inhibit func(context.Context) (io.Closer, error)
	tell    func(context.Context) // returns when peers know, or ctx ends
	woke    func()
	log     *slog.Logger

	lock  io.Closer // nil while there is none
	wakes func()    // nil while it is awake: ends the telling, and waits for its end
}

// hold takes the lock where there is none. One that logind does not give now is asked for again when logind next says something of a suspend.
func (s *sleep) hold(ctx context.Context) {
	if s.lock != nil || s.wakes != nil {
		return
	}
	lock, err := s.inhibit(ctx)
	if err != nil {
		s.log.Warn("peers may not be told when this laptop is suspended: logind gives no delay lock", "err", err)
		return
	}
	s.lock = lock
}

// falls has peers told that the machine is about to be suspended, and gives the lock up then.
func (s *sleep) falls(ctx context.Context) {
	if s.wakes != nil {
		return // said before
	}
	ctx, cancel := context.WithTimeout(ctx, mostTelling)
	done := make(chan struct{})
	s.wakes = func() { cancel(); <-done }
	s.log.Info("this laptop goes to sleep; peers are told")
	release := s.release()
	context.AfterFunc(ctx, release) // also while somebody is still being told
	go func() {
		defer close(done)
		s.tell(ctx)
		cancel()
	}()
}

// rises notes that the machine is awake, after a suspend that was told or was not.
func (s *sleep) rises(ctx context.Context) {
	s.awake()
	s.hold(ctx)
	s.log.Info("this laptop is awake again; peers are looked for")
	s.woke()
}

// awake ends the telling, if one is under way.
func (s *sleep) awake() (slept bool) {
	if s.wakes == nil {
		return false
	}
	s.wakes()
	s.wakes = nil
	return true
}

// gone notes that there is no logind any more that would know of a lock, or say when the machine is awake.
func (s *sleep) gone() {
	slept := s.awake()
	s.release()()
	if slept {
		s.woke()
	}
}

// release gives what closes the lock that is held; it is not held from now on.
func (s *sleep) release() func() {
	lock := s.lock
	s.lock = nil
	return func() {
		if lock == nil {
			return
		}
		if err := lock.Close(); err != nil {
			s.log.Warn("the delay lock of logind cannot be closed", "err", err)
		}
	}
}
