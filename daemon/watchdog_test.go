package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoeverWatchesHearsOnlyOfADaemonThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, heard := time.Now(), []time.Duration{}
		hangs := func() bool { return time.Since(began) > 10*time.Minute }
		go watchdog(ctx, slog.New(slog.DiscardHandler), 3*time.Minute, func() error {
			heard = append(heard, time.Since(began))
			return nil
		}, func(ctx context.Context) error {
			if !hangs() {
				return nil
			}
			<-ctx.Done()
			return errors.New("no answer")
		})
		time.Sleep(20 * time.Minute)
		cancel()
		synctest.Wait()
		last := time.Duration(0)
		for _, at := range heard {
			if at-last > 2*time.Minute {
				t.Errorf("nothing was heard from %s to %s", last, at)
			}
			last = at
		}
		if last < 8*time.Minute || last > 10*time.Minute {
			t.Errorf("heard last after %s; it hung from 10 minutes on", last)
		}
	})
}
