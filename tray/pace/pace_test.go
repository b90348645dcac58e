package pace_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"kith.dev/tray/pace"
)

func TestSomeAtOnceAndThenOneInSoLong(t *testing.T) {
	now, l, p := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), pace.Limit{Burst: 3, Every: time.Hour}, pace.Pace(nil).Clone()
	say := func(after time.Duration, left int, wait time.Duration) {
		t.Helper()
		now = now.Add(after)
		if got := p.Left("bob", l, now); got != left {
			t.Errorf("at %s: %d are left, want %d", now.Format("15:04"), got, left)
		}
		if got := p.When("bob", l, now).Sub(now); got != wait {
			t.Errorf("at %s: it waits for %s, want %s", now.Format("15:04"), got, wait)
		}
		if left > 0 {
			p.Said("bob", l, now)
		}
	}
	say(0, 3, 0)
	say(0, 2, 0)
	say(0, 1, 0)
	say(0, 0, time.Hour)
	say(59*time.Minute, 0, time.Minute)
	say(time.Minute, 1, 0)
	say(0, 0, time.Hour)
	if p.Left("carol", l, now) != 3 {
		t.Error("the one counts for the other")
	}
	say(3*time.Hour-time.Second, 2, 0) // not all of it is back
	p.Forget(now)
	if len(p) != 1 {
		t.Error("what counts is forgotten")
	}
	now = now.Add(100 * time.Hour)
	p.Forget(now)
	if len(p) != 0 {
		t.Error("what does not count is kept")
	}
	say(0, 3, 0)
}

func TestACloneIsOfItsOwn(t *testing.T) {
	now, l := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), pace.Limit{Burst: 1, Every: time.Hour}
	p := pace.Pace{}
	p.Said("bob", l, now)
	q := p.Clone()
	q.Said("carol", l, now)
	q.Forget(now.Add(time.Hour))
	if len(p) != 1 || len(q) != 0 {
		t.Error(p, q)
	}
}

// Whatever comes when, no time has more than the limit says, and who waits until When may say it.
func TestNoTimeHasMoreThanTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		l := pace.Limit{Burst: 1 + r.IntN(5), Every: time.Duration(1+r.IntN(60)) * time.Minute}
		now, p := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), pace.Pace{}
		var said []time.Time
		for range 300 {
			now = now.Add(time.Duration(r.IntN(int(20 * time.Minute))))
			at := p.When("x", l, now)
			if at.Before(now) || at.After(now.Add(l.Every)) || (p.Left("x", l, now) > 0) != at.Equal(now) || p.Left("x", l, at) == 0 {
				t.Fatalf("%+v: at %s it waits until %s, and %d are left", l, now, at, p.Left("x", l, now))
			}
			if p.Left("x", l, now) > 0 {
				p.Said("x", l, now)
				said = append(said, now)
			}
			if r.IntN(4) == 0 {
				p.Forget(now)
			}
		}
		for i := range said {
			for j := i; j < len(said); j++ {
				if most := l.Burst + int(said[j].Sub(said[i])/l.Every); j-i+1 > most {
					t.Fatalf("%+v: %d within %s", l, j-i+1, said[j].Sub(said[i]))
				}
			}
		}
	}
}
