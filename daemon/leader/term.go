package leader

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Term is the time for which a kithd works. Its methods may be called by many at once; nil is that of one that needs no lease.
type Term struct {
	good time.Duration // after a renewal: shorter than the lease, which another may take when it has run out

	mu    sync.Mutex
	until time.Time                  // it may write
	moved chan struct{}              // is closed when until moves; nil: nobody waits
	sure  func() (still func() bool) // of StayWhile
}

// StayWhile has work go on when the lease cannot be renewed, for as long as still says that nobody else has it. sure gives still at that moment.
func (t *Term) StayWhile(sure func() (still func() bool)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sure = sure
}

// Wait returns when this kithd may write in the cluster, which is at once while it has the lease. Its error is that of ctx.
func (t *Term) Wait(ctx context.Context) error {
	for t != nil {
		moved := t.next()
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("this kithd could not renew its lease, and changes nothing in the cluster until it has: %w", context.Cause(ctx))
		}
	}
	return nil
}

// next is closed with the next renewal; nil: there is no need to wait for it.
func (t *Term) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		return nil
	}
	if t.moved == nil {
		t.moved = make(chan struct{})
	}
	return t.moved
}

// renewed is told with the time at which the API server was asked.
func (t *Term) renewed(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = at.Add(t.good)
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// left is for how long it may write.
func (t *Term) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.until)
}

// still is that of StayWhile, and one that says no where nobody said anything.
func (t *Term) still() func() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sure == nil {
		return func() bool { return false }
	}
	return t.sure()
}

// lock is a Lease that one who works does not lose because the API server is away for all, and that one who stands by does not take for that. One
// goroutine calls it, the elector's.
type lock struct {
	resourcelock.Interface
	term *Term
	ends <-chan struct{} // nothing is renewed any more
	log  *slog.Logger

	works bool
	lost  bool
	seen  time.Time // by Get
	aways int       // that Get has met
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	at := time.Now()
	err := l.Interface.Create(ctx, r)
	if err == nil {
		l.works = true
		l.term.renewed(at)
	}
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.patiently(ctx, func(ctx context.Context) error {
		at := time.Now()
		if r.HolderIdentity != "" { // else it is given back
			r.RenewTime = metav1.NewTime(at)
		}
		err := l.Interface.Update(ctx, r)
		if err == nil && r.HolderIdentity != "" {
			l.works = true
			l.term.renewed(at)
		}
		return err
	})
}

// Get implements resourcelock.Interface. To who stands by a lease that it could not see for a while looks like another one, which it waits for
// anew: whoever holds it could not renew it either, and packets may have gone by that one all the time.
func (l *lock) Get(ctx context.Context) (r *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.patiently(ctx, func(ctx context.Context) error {
		r, raw, err = l.Interface.Get(ctx)
		return err
	})
	if away(err) {
		return r, raw, err
	}
	if !l.seen.IsZero() && time.Since(l.seen) > l.term.good {
		l.aways++
	}
	l.seen = time.Now()
	return r, append(raw, bytes.Repeat([]byte(" "), l.aways)...), err // white space, after JSON that the elector compares
}

// patiently asks again while this kithd works, the API server is away, and nobody else can have the lease. The elector's own deadline counts
// when it is answered.
func (l *lock) patiently(ctx context.Context, ask func(context.Context) error) error {
	if l.lost {
		return ErrLost // also for who would give it back: that would hold up the end of the work
	}
	if !l.works {
		return ask(ctx)
	}
	var still func() bool
	for {
		attempt := l.term.good / 2 // what is sent once more may arrive
		if left := l.term.left(); left > 0 {
			attempt = min(attempt, left)
		}
		one, done := context.WithTimeout(context.WithoutCancel(ctx), attempt)
		err := ask(one)
		done()
		if !away(err) {
			if still != nil {
				l.log.Info("the API server answers for the lease again", "err", err)
			}
			return err
		}
		if l.term.left() <= 0 {
			if still == nil {
				still = l.term.still()
				l.log.Warn("the lease cannot be renewed, so nothing is written in the cluster; packets go on while the other nodes ask for this one", "err", err)
			}
			if !still() {
				l.lost = true
				return err
			}
		}
		select {
		case <-time.After(again):
		case <-l.ends:
			return err
		}
	}
}

// away reports whether nothing that knows the lease has answered.
func away(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) &&
		!apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsInvalid(err)
}
