package laptop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kith.dev/core/base/notify"
	"kith.dev/core/base/power"
	"kith.dev/test/bustest"
)

// vigilant is a Laptop on a bus of its own, with guests and batteries as the test wants them.
type vigilant struct {
	watched
	n, battery atomic.Int32
	counted    atomic.Int32 // how often guests were
	moved      notify.Broadcast

	mu  sync.Mutex
	why []Ended
}

func keeper(t *testing.T, b *bustest.Bus, guests int32) *vigilant {
	t.Helper()
	v := &vigilant{}
	v.n.Store(guests)
	v.battery.Store(80)
	v.Laptop = New(Config{
		Connect: on(b), Log: slog.New(slog.DiscardHandler), Tell: func(context.Context) {}, Woke: func() {},
		Guests: func() (int, bool) { v.counted.Add(1); return int(v.n.Load()), true }, GuestsMoved: v.moved.Wait,
		Power: func() power.State { return power.State{Battery: int(v.battery.Load())} },
		Kept: func(_ Kept, why Ended) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.why = append(v.why, why)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return v
}

func (v *vigilant) last() Ended {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.why) == 0 {
		return "nothing was said"
	}
	return v.why[len(v.why)-1]
}

// blocked reports whether logind knows of the lock that stops suspends.
func blocked(t *testing.T, m *bustest.Mock) bool {
	t.Helper()
	var list []struct {
		What, Who, Why, Mode string
		UID, PID             uint32
	}
	if err := m.Call(t, loginManager+".ListInhibitors").Store(&list); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range list {
		if l.What == "sleep:handle-lid-switch" && l.Mode == "block" && l.Who == "Kith" {
			n++
		}
	}
	if n > 1 {
		t.Fatalf("%d locks", n)
	}
	return n == 1
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestALockOfLogindsKeepsItAwake(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	v := keeper(t, b, 2)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep })
	if err := v.KeepAwake(t.Context(), true, time.Hour); err != nil {
		t.Fatal(err)
	}
	if is := v.Now().Kept; !blocked(t, m) || !is.Guests || time.Until(is.Until) > time.Hour || time.Until(is.Until) < 59*time.Minute {
		t.Fatalf("%+v", is)
	}
	if n := locks(t, m); n != 1 {
		t.Errorf("%d delay locks beside it", n)
	}
	if err := v.LetSleep(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the lock is kept", func() bool { return !blocked(t, m) })
	if v.last() != EndedOwner || v.Now().Kept != (Kept{}) {
		t.Errorf("%s, %+v", v.last(), v.Now().Kept)
	}
}

func TestItMaySleepWhenItsBatteryIsLow(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	v := keeper(t, b, 2)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep })
	if err := v.KeepAwake(t.Context(), true, 0); err != nil {
		t.Fatal(err)
	}
	power := b.Mock(t, "upower", upower, upowerPath) // it comes while it is kept awake
	battery := b.Connect(t).Object(upower, upowerBatteries)
	v.battery.Store(20)
	waitFor(t, "nobody hears UPower", func() bool { // whoever listens from when on
		power.Update(t, battery, "org.freedesktop.UPower.Device", map[string]any{"Percentage": 20.0})
		return !blocked(t, m)
	})
	if v.last() != EndedBattery {
		t.Error(v.last())
	}
	if err := v.KeepAwake(t.Context(), true, 0); !errors.Is(err, ErrBattery) {
		t.Error(err)
	}
	v.battery.Store(50)
	if err := v.KeepAwake(t.Context(), true, 0); err != nil || !blocked(t, m) {
		t.Fatal(err)
	}
	v.battery.Store(10) // and UPower is there from the beginning
	power.Update(t, power.Object, upower, map[string]any{"OnBattery": true})
	waitFor(t, "it drains the battery", func() bool { return !blocked(t, m) })
}

func TestGuestsAreCountedWhenTheyMove(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	v := keeper(t, b, 0)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep })
	if err := v.KeepAwake(t.Context(), true, 0); !errors.Is(err, ErrNoGuests) || blocked(t, m) {
		t.Fatal(err)
	}
	v.n.Store(1)
	if err := v.KeepAwake(t.Context(), true, 0); err != nil {
		t.Fatal(err)
	}
	v.n.Store(0)
	counted := v.counted.Load()
	v.moved.Notify()
	waitFor(t, "nobody counts the guests", func() bool { return v.counted.Load() > counted })
	if !blocked(t, m) { // how long it waits then is TestItIsKeptAwakeUntilTheLastGuestEnds'
		t.Error("it did not wait whether a guest is made again")
	}
}

func TestOneLogindAfterTheOtherKeepsItAwake(t *testing.T) {
	b := bustest.Start(t)
	v := keeper(t, b, 1)
	if err := v.KeepAwake(t.Context(), true, 0); !errors.Is(err, ErrCannot) {
		t.Errorf("without a logind: %v", err)
	}
	if err := v.LetSleep(t.Context()); err != nil {
		t.Error(err)
	}
	m := logind(t, b)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep })
	if err := v.KeepAwake(t.Context(), true, 0); err != nil || !blocked(t, m) {
		t.Fatal(err)
	}
	m.Stop()
	v.becomes(t, "no logind", func(s State) bool { return !s.CanKeep })
	m = logind(t, b)
	waitFor(t, "the other logind has no lock", func() bool { return blocked(t, m) })
	m.Stop()
	v.becomes(t, "no logind", func(s State) bool { return !s.CanKeep })
	if err := v.LetSleep(t.Context()); err != nil || v.Now().Kept != (Kept{}) {
		t.Errorf("while logind starts anew: %v, %+v", err, v.Now().Kept)
	}
	m = logind(t, b)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep && s.Locked })
	if blocked(t, m) {
		t.Error("it is kept awake against its owner's word")
	}
	if err := v.KeepAwake(t.Context(), true, 0); err != nil || !blocked(t, m) {
		t.Fatal(err)
	}
	b.Stop()
	waitFor(t, "the bus is gone, and nobody says so", func() bool { return v.last() == EndedLogind })
	if v.Now().Kept != (Kept{}) {
		t.Errorf("%+v", v.Now().Kept)
	}
}

// A machine that cannot be suspended needs no keeping awake.
func TestWhatLogindCannotSuspendIsNotKeptAwake(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	m.Call(t, "org.freedesktop.DBus.Mock.AddMethod", loginManager, "CanSuspend", "", "s", `ret = "na"`)
	v := keeper(t, b, 1)
	v.becomes(t, "logind", func(s State) bool { return s.Locked })
	if err := v.KeepAwake(t.Context(), true, 0); !errors.Is(err, ErrCannot) || blocked(t, m) {
		t.Error(err)
	}
}

// A lock that comes when nobody waits for it any more is closed: nothing else ever would.
func TestALockThatComesTooLateIsClosed(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	v := keeper(t, b, 1)
	v.becomes(t, "logind", func(s State) bool { return s.CanKeep && s.Locked })
	m.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*answerTime)
	defer cancel()
	if err := v.KeepAwake(ctx, true, 0); err == nil || ctx.Err() != nil || v.Now().Kept != (Kept{}) {
		t.Fatalf("a logind that hangs: %v, %+v", err, v.Now().Kept)
	}
	m.Resume(t) // it answers what it was asked, one after the other
	waitFor(t, "a lock is kept that nobody knows of", func() bool { return !blocked(t, m) })
	if err := v.KeepAwake(t.Context(), true, 0); err != nil || !blocked(t, m) {
		t.Error(err)
	}
}
