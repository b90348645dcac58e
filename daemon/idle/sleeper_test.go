package idle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/base/notify"
	"kith.dev/core/local/cluster"
)

// engine is ready three seconds after it was woken.
type engine struct {
	notify.Broadcast

	mu    sync.Mutex
	phase cluster.Phase
	slept []time.Duration // since the begin
	woken []string
	began time.Time
}

func (e *engine) set(p cluster.Phase) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phase = p
	e.Notify()
}

func (e *engine) State() cluster.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cluster.State{Phase: e.phase}
}

func (e *engine) Changed() <-chan struct{} { return e.Wait() }

func (e *engine) WaitReady(ctx context.Context) error {
	for {
		changed := e.Wait()
		if e.State().Phase == cluster.Ready {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *engine) Sleep(_ context.Context, used func() bool) error {
	if used() {
		return errors.New("somebody uses it")
	}
	e.slept = append(e.slept, time.Since(e.began))
	e.set(cluster.Asleep)
	return nil
}

func (e *engine) Wake(by string) {
	e.woken = append(e.woken, by)
	e.set(cluster.Starting)
	time.AfterFunc(3*time.Second, func() { e.set(cluster.Ready) })
}

// lasts runs a Sleeper of ten minutes for some time, and does something meanwhile.
func lasts(t *testing.T, d time.Duration, may func(context.Context) (Verdict, error), do func(*engine, *cluster.Uses)) *engine {
	t.Helper()
	e := &engine{phase: cluster.Ready, began: time.Now()}
	uses := &cluster.Uses{}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	s := &Sleeper{Engine: e, Uses: uses, After: 10 * time.Minute, May: may, Log: slog.New(slog.DiscardHandler)}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	do(e, uses)
	running.Wait()
	return e
}

func nothing(context.Context) (Verdict, error) { return Verdict{}, nil }

func TestAnEngineSleepsTenMinutesAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lasts(t, 2*time.Hour, nothing, func(e *engine, uses *cluster.Uses) {
			time.Sleep(7 * time.Minute)
			end := uses.Begin() // a watch of 20 minutes
			time.Sleep(20 * time.Minute)
			end()
			time.Sleep(30 * time.Minute)
			e.Wake("a question")
		})
		if want := []time.Duration{37 * time.Minute, 67*time.Minute + 3*time.Second}; !slices.Equal(e.slept, want) || len(e.woken) != 1 {
			t.Errorf("asleep after %v, want %v; woken by %v", e.slept, want, e.woken)
		}
	})
}

func TestWhatKeepsItAwakeIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		e := lasts(t, time.Hour, func(context.Context) (Verdict, error) {
			switch looks++; looks {
			case 1:
				return Verdict{Stay: Pods}, nil
			case 2:
				return Verdict{}, errors.New("it does not answer")
			}
			return Verdict{}, nil
		}, func(*engine, *cluster.Uses) {})
		if want := []time.Duration{30 * time.Minute}; !slices.Equal(e.slept, want) {
			t.Errorf("asleep after %v, want %v", e.slept, want)
		}
	})
}

func TestWhoUsesItWhileItIsLookedAtKeepsItAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := lasts(t, 35*time.Minute, func(context.Context) (Verdict, error) {
			time.Sleep(5 * time.Second)
			return Verdict{}, nil
		}, func(_ *engine, uses *cluster.Uses) {
			time.Sleep(10*time.Minute + 2*time.Second)
			uses.Begin()()
		})
		if len(e.slept) != 1 || e.slept[0] < 20*time.Minute {
			t.Errorf("asleep after %v", e.slept)
		}
	})
}

func TestWhatIsDueWakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := lasts(t, 50*time.Minute, func(context.Context) (Verdict, error) {
			if due := began.Add(40 * time.Minute); time.Now().Before(due) {
				return Verdict{Until: due, What: "cronjob shop/report"}, nil
			}
			return Verdict{}, nil
		}, func(e *engine, _ *cluster.Uses) {
			time.Sleep(20 * time.Minute)
			e.Wake("a question") // what is due is due all the same
		})
		if want := []string{"a question", "what is due: cronjob shop/report"}; !slices.Equal(e.woken, want) {
			t.Errorf("woken by %q, want %q", e.woken, want)
		}
	})
}
