package laptop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/base/power"
)

// vigil is an awake with guests and batteries as a test wants them, and a logind that counts its locks.
type vigil struct {
	awake
	n             int // guests; -1: not known
	is            power.State
	refuses       bool
	given, closed int
	said          []string
}

type counted struct{ v *vigil }

func (c counted) Close() error { c.v.closed++; return nil }

func newVigil(guests int) *vigil {
	v := &vigil{n: guests, is: power.State{Battery: 80}}
	v.awake = awake{
		inhibit: func(context.Context) (io.Closer, error) {
			if v.refuses {
				return nil, errors.New("not now")
			}
			v.given++
			return counted{v}, nil
		},
		guests: func() (int, bool) { return max(v.n, 0), v.n >= 0 },
		power:  func() power.State { return v.is },
		told: func(is Kept, why Ended) {
			if v.said = append(v.said, string(why)); (why == "") != (is != Kept{}) {
				panic("it is said to end, and to go on")
			}
		},
		log: slog.New(slog.DiscardHandler),
	}
	return v
}

// held reports what the locks say, which must be one for all that is kept.
func (v *vigil) held(t *testing.T) bool {
	t.Helper()
	if open := v.given - v.closed; open < 0 || open > 1 || (open == 1) != (v.kept != Kept{}) {
		t.Errorf("%d locks are held, and it is kept as %+v", open, v.kept)
	}
	return v.given > v.closed
}

// run lets time pass as the goroutine on the bus does, until it is kept awake no more or so much time has passed.
func (v *vigil) run(t *testing.T, most time.Duration) {
	t.Helper()
	for end := time.Now().Add(most); v.held(t); {
		next := v.look()
		if next < 0 || next == 0 && v.held(t) {
			t.Fatalf("it is looked at again after %s", next)
		}
		left := time.Until(end)
		if left <= 0 || next == 0 {
			return
		}
		time.Sleep(min(next, left))
	}
}

func TestItIsKeptAwakeUntilTheLastGuestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVigil(3)
		if err := v.keep(t.Context(), true, 0); err != nil || !v.held(t) {
			t.Fatal(err)
		}
		v.run(t, 2*time.Hour)
		v.n = 0 // a guest is made again
		v.run(t, alone-time.Second)
		v.n = 1
		v.run(t, time.Hour)
		v.n = -1 // the API server is being started anew
		v.run(t, time.Hour)
		if !v.held(t) {
			t.Fatal("it may sleep, and nobody said that the guests have ended")
		}
		v.n = 0
		v.run(t, alone-time.Second)
		if !v.held(t) {
			t.Error("a guest that is made again is not waited for")
		}
		v.run(t, time.Second)
		if v.held(t) || !slices.Equal(v.said, []string{"", string(EndedGuests)}) {
			t.Errorf("said %q", v.said)
		}
	})
}

func TestItIsKeptAwakeNoLongerThanItsOwnerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			guests bool
			most   time.Duration
			lasts  time.Duration
		}{
			{false, 2 * time.Hour, 2 * time.Hour},
			{true, 2 * time.Hour, 2 * time.Hour},
			{true, 0, AwakeAtMost},
			{false, 1000 * time.Hour, AwakeAtMost},
		} {
			v := newVigil(1)
			if err := v.keep(t.Context(), c.guests, c.most); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			v.run(t, 48*time.Hour)
			if lasted := time.Since(begin); lasted != c.lasts || v.held(t) || v.said[1] != string(EndedTime) {
				t.Errorf("%+v: it lasted %s; %q", c, lasted, v.said)
			}
		}
	})
}

func TestItIsNotKeptAwakeByAnEmptyBattery(t *testing.T) {
	for _, c := range []struct {
		is   power.State
		kept bool
	}{
		{power.State{Battery: 21}, true},
		{power.State{Battery: 20}, false},
		{power.State{Battery: 0}, false},
		{power.State{OnMains: true, Battery: 5}, true},
		{power.State{OnMains: true, Battery: power.None}, true},
	} {
		v := newVigil(1)
		v.is = c.is
		if err := v.keep(t.Context(), true, 0); (err == nil) != c.kept || !c.kept && !errors.Is(err, ErrBattery) || v.held(t) != c.kept {
			t.Errorf("%+v: %v", c.is, err)
		}
		v = newVigil(1)
		if err := v.keep(t.Context(), true, 0); err != nil {
			t.Fatal(err)
		}
		v.is = c.is // it drained meanwhile
		v.look()
		if v.held(t) != c.kept || !c.kept && v.said[1] != string(EndedBattery) {
			t.Errorf("%+v: kept %v, %q", c.is, v.held(t), v.said)
		}
	}
}

func TestWithoutGuestsThereIsNothingToKeepItAwakeFor(t *testing.T) {
	v := newVigil(0)
	if err := v.keep(t.Context(), true, 0); !errors.Is(err, ErrNoGuests) || v.held(t) || v.said != nil {
		t.Errorf("%v, %q", err, v.said)
	}
	if err := v.keep(t.Context(), false, time.Hour); err != nil || !v.held(t) { // as long as the owner says, whoever runs
		t.Error(err)
	}
	v.n = 1
	since := v.kept.Since
	if err := v.keep(t.Context(), true, 0); err != nil || !v.held(t) || !v.kept.Guests || v.kept.Since != since { // what was wanted last counts
		t.Errorf("%v, %+v", err, v.kept)
	}
	v.end(EndedOwner)
	v.end(EndedOwner)
	if v.held(t) || !slices.Equal(v.said, []string{"", "", string(EndedOwner)}) || v.look() != 0 {
		t.Errorf("%q", v.said)
	}
}

func TestAnotherLogindGivesAnotherLock(t *testing.T) {
	v := newVigil(1)
	v.renew(t.Context())
	if err := v.keep(t.Context(), true, 0); err != nil {
		t.Fatal(err)
	}
	v.renew(t.Context())
	if !v.held(t) || v.given != 2 {
		t.Errorf("%d locks were given", v.given)
	}
	v.refuses = true
	v.renew(t.Context())
	if v.held(t) || v.said[1] != string(EndedLogind) {
		t.Errorf("%q", v.said)
	}
	if err := v.keep(t.Context(), true, 0); err == nil || v.held(t) {
		t.Error("it is kept awake without a lock")
	}
}
