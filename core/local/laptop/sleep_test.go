package laptop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// night is a sleep with a logind that counts its locks, and peers who take a while to be told.
type night struct {
	sleep
	given, closed int // locks
	refuses       bool
	told, cut     int // calls of tell; those that ended with their context
	takes         time.Duration
	woken         int
}

type lock struct{ n *night }

func (l lock) Close() error { l.n.closed++; return nil }

func newNight() *night {
	n := &night{}
	n.sleep = sleep{
		inhibit: func(context.Context) (io.Closer, error) {
			if n.refuses {
				return nil, errors.New("the operation is already running")
			}
			n.given++
			return lock{n}, nil
		},
		tell: func(ctx context.Context) {
			n.told++
			select {
			case <-time.After(n.takes):
			case <-ctx.Done():
				n.cut++
			}
		},
		woke: func() { n.woken++ },
		log:  slog.New(slog.DiscardHandler),
	}
	return n
}

func (n *night) is(t *testing.T, given, closed, told, cut, woken int) {
	t.Helper()
	synctest.Wait()
	if n.given != given || n.closed != closed || n.told != told || n.cut != cut || n.woken != woken {
		t.Errorf("%d locks given, %d closed, told %d times, %d cut short, woken %d times; want %d, %d, %d, %d, %d",
			n.given, n.closed, n.told, n.cut, n.woken, given, closed, told, cut, woken)
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
