package laptop

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"kith.dev/core/base/power"
)

// Kept says how this machine is kept awake. The zero value: it is not.
type Kept struct {
	Since time.Time
	Until time.Time // at the latest
	// Guests: it ends sooner, when no guest runs here any more.
	Guests bool
}

// Ended is why a machine is kept awake no more.
type Ended string

// The reasons.
const (
	EndedOwner   Ended = "Owner"      // its owner said so
	EndedGuests  Ended = "GuestsDone" // no guest runs here any more
	EndedTime    Ended = "TimeIsUp"
	EndedBattery Ended = "BatteryLow"
	EndedLogind  Ended = "NoLogind" // logind, or the bus, is gone, or gives no lock any more
	EndedStopped Ended = "Stopped"  // who held the lock ends
)

const (
	// AwakeAtMost bounds how long a machine is kept awake by one word of its owner: a guest that never ends is not to run down a laptop that was
	// forgotten with its lid closed.
	AwakeAtMost = 24 * time.Hour
	// LeastBattery is how full the batteries must be, in per cent, where they give the power.
	LeastBattery = 20
	// alone is how long no guest must run for all to have ended: one that is made again is away for a moment.
	alone = time.Minute
	// guestsSettle is how long after a change guests are counted.
	guestsSettle = time.Second
	// batteryEvery is how often the batteries are looked at where no UPower tells that they drain.
	batteryEvery = time.Minute
	// batteryAtLeast is how often all the same: a UPower that hangs says nothing, and the battery of a laptop whose lid is closed would be emptied.
	batteryAtLeast = 10 * time.Minute
)

// Why a machine is not kept awake.
var (
	// ErrNoGuests says that there is nothing to wait for.
	ErrNoGuests = fmt.Errorf("no guest runs here")
	// ErrBattery says that the batteries are too empty.
	ErrBattery = fmt.Errorf("it runs on its battery, which is not above %d %%", LeastBattery)
)

// awake keeps the machine awake, by a lock of logind's that stops its suspends, its owner's too, and what a closed lid does. The screen may go
// dark: there is no lock of `idle`. One goroutine makes all calls.
type awake struct {
	inhibit func(context.Context) (io.Closer, error)
	guests  func() (n int, known bool)
	power   func() power.State
	told    func(Kept, Ended) // that it is kept so from now on, or why it is no more
	log     *slog.Logger

	lock io.Closer // nil while it is not kept awake
	kept Kept
	none time.Time // since when no guest runs; zero while one does
}

// keep takes the lock, or goes on holding it under other terms.
func (a *awake) keep(ctx context.Context, guests bool, most time.Duration) error {
	now := clock()
	if n, known := a.guests(); guests && known && n == 0 {
		return ErrNoGuests
	}
	if low(a.power()) {
		return ErrBattery
	}
	if a.lock == nil {
		lock, err := a.inhibit(ctx)
		if err != nil {
			return fmt.Errorf("logind gives no lock: %w", err)
		}
		a.lock, a.kept = lock, Kept{Since: now}
	}
	if most <= 0 || most > AwakeAtMost {
		most = AwakeAtMost
	}
	a.kept.Until, a.kept.Guests, a.none = now.Add(most), guests, time.Time{}
	a.log.Info("this laptop is kept awake", "until", a.kept.Until, "untilGuestsEnd", guests)
	a.told(a.kept, "")
	return nil
}

// clock is the time on the wall alone: a suspend that happens all the same counts.
func clock() time.Time { return time.Now().Round(0) }

// low reports whether the batteries give the power, and are too empty for it.
func low(is power.State) bool {
	return !is.OnMains && is.Battery != power.None && is.Battery <= LeastBattery
}

// look ends it when it is time, and gives when to look again at the latest; 0: it is not kept awake.
func (a *awake) look() time.Duration {
	if a.lock == nil {
		return 0
	}
	now := clock()
	if n, known := a.guests(); known && n > 0 || !known {
		a.none = time.Time{}
	} else if a.none.IsZero() {
		a.none = now
	}
	switch {
	case low(a.power()):
		a.end(EndedBattery)
	case !now.Before(a.kept.Until):
		a.end(EndedTime)
	case a.kept.Guests && !a.none.IsZero() && now.Sub(a.none) >= alone:
		a.end(EndedGuests)
	default:
		next := a.kept.Until.Sub(now)
		if a.kept.Guests && !a.none.IsZero() {
			next = min(next, a.none.Add(alone).Sub(now))
		}
		return next
	}
	return 0
}

// end gives the lock up. With a lid that is closed logind suspends the machine then: it looks at it again by itself.
func (a *awake) end(why Ended) {
	if a.lock == nil {
		return
	}
	if err := a.lock.Close(); err != nil {
		a.log.Warn("the lock of logind cannot be closed", "err", err)
	}
	a.lock, a.kept, a.none = nil, Kept{}, time.Time{}
	a.log.Info("this laptop is kept awake no more", "why", string(why))
	a.told(Kept{}, why)
}

// renew takes the lock of another logind in place of that of the last one.
func (a *awake) renew(ctx context.Context) {
	if a.lock == nil {
		return
	}
	lock, err := a.inhibit(ctx)
	if err != nil {
		a.log.Warn("logind gives no lock any more", "err", err)
		a.end(EndedLogind)
		return
	}
	a.lock.Close()
	a.lock = lock
}
