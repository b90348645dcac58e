package laptop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// night is a sleep with a logind that counts its locks, and peers who take a while to be told.
type night struct {
	sleep
	given, closed atomic.Int32 // locks
	refuses       bool
	told, cut     atomic.Int32 // calls of tell; those that ended with their context
	takes         time.Duration
	woken         atomic.Int32
}

type lock struct{ n *night }

func (l lock) Close() error { l.n.closed.Add(1); return nil }

func newNight() *night {
	n := &night{}
	n.sleep = sleep{
		inhibit: func(context.Context) (io.Closer, error) {
			if n.refuses {
				return nil, errors.New("the operation is already running")
			}
			n.given.Add(1)
			return lock{n}, nil
		},
		tell: func(ctx context.Context) {
			n.told.Add(1)
			select {
			case <-time.After(n.takes):
			case <-ctx.Done():
				n.cut.Add(1)
			}
		},
		woke: func() { n.woken.Add(1) },
		log:  slog.New(slog.DiscardHandler),
	}
	return n
}

func (n *night) counts() [5]int32 {
	return [...]int32{n.given.Load(), n.closed.Load(), n.told.Load(), n.cut.Load(), n.woken.Load()}
}

func (n *night) is(t *testing.T, given, closed, told, cut, woken int32) {
	t.Helper()
	synctest.Wait()
	if got, want := n.counts(), [...]int32{given, closed, told, cut, woken}; got != want {
		t.Errorf("locks given, closed; peers told, cut short; woken: %d, want %d", got, want)
	}
}

func TestASuspendWaitsUntilPeersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNight(), t.Context()
		n.takes = time.Second
		n.hold(ctx)
		n.hold(ctx)
		n.is(t, 1, 0, 0, 0, 0)
		n.falls(ctx)
		n.is(t, 1, 0, 1, 0, 0)
		time.Sleep(n.takes)
		n.is(t, 1, 1, 1, 0, 0)
		time.Sleep(time.Hour)
		n.rises(ctx)
		n.is(t, 2, 1, 1, 0, 1)
		n.falls(ctx)
		time.Sleep(n.takes)
		n.is(t, 2, 2, 2, 0, 1)
		n.rises(ctx)
		n.gone()
		n.is(t, 3, 3, 2, 0, 2)
	})
}

// What logind says may come twice, or not at all.
func TestSignalsOfASuspendMayComeInAnyNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNight(), t.Context()
		n.hold(ctx)
		n.falls(ctx)
		n.falls(ctx)
		n.is(t, 1, 1, 1, 0, 0)
		n.falls(ctx) // it was never said that it is awake
		n.is(t, 1, 1, 1, 0, 0)
		n.rises(ctx)
		n.rises(ctx)
		n.is(t, 2, 1, 1, 0, 2)
		n.rises(ctx) // nobody said that it falls asleep
		n.is(t, 2, 1, 1, 0, 3)
		n.gone()
		n.gone()
		n.is(t, 2, 2, 1, 0, 3)
	})
}

// Peers who cannot be told delay nobody's suspend for longer than logind would wait.
func TestTheLockIsClosedInTimeWhoeverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNight(), t.Context()
		n.takes = time.Hour
		n.hold(ctx)
		n.falls(ctx)
		time.Sleep(mostTelling - time.Millisecond)
		n.is(t, 1, 0, 1, 0, 0)
		time.Sleep(time.Millisecond)
		n.is(t, 1, 1, 1, 1, 0)
		n.rises(ctx)
		n.is(t, 2, 1, 1, 1, 1)

		n.falls(ctx) // and it does not go to sleep at all
		time.Sleep(time.Second)
		n.rises(ctx)
		n.is(t, 3, 2, 2, 2, 2)
		n.gone()
	})
}

func TestALogindThatGivesNoLockIsAskedWhenItIsAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNight(), t.Context()
		n.refuses = true // as while a suspend is under way
		n.hold(ctx)
		n.falls(ctx) // they are told all the same
		n.is(t, 0, 0, 1, 0, 0)
		n.refuses = false
		n.rises(ctx)
		n.is(t, 1, 0, 1, 0, 1)
		n.gone()
	})
}

// Who was told that this machine sleeps hears that it does not when nobody is left to say so.
func TestALogindThatIsGoneMeansAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNight(), t.Context()
		n.takes = time.Second
		n.hold(ctx)
		n.falls(ctx)
		synctest.Wait()
		n.gone() // in the middle
		n.is(t, 1, 1, 1, 1, 1)
		n.hold(ctx) // another one
		n.gone()    // and that, while it is awake
		n.is(t, 2, 2, 1, 1, 1)
	})
}
