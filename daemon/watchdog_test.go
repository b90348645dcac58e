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

// TestALateAnswerUnderLoadIsNoHang: a daemon that stands still for a third of the patience, at whatever moment, is not started again.
func TestALateAnswerUnderLoadIsNoHang(t *testing.T) {
	const patience = 3 * time.Minute
	for from := time.Minute; from < time.Minute+patience; from += 5 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			began, last := time.Now(), time.Duration(0)
			ctx, cancel := context.WithCancel(t.Context())
			go watchdog(ctx, slog.New(slog.DiscardHandler), patience, func() error {
				if silent := time.Since(began) - last; silent > patience*9/10 {
					t.Errorf("stalled after %s, nothing was heard for %s", from, silent)
				}
				last = time.Since(began)
				return nil
			}, func(ctx context.Context) error {
				stalled := from + patience/3 - time.Since(began)
				if stalled <= 0 || stalled > patience/3 {
					return nil
				}
				select {
				case <-time.After(stalled):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			time.Sleep(10 * time.Minute)
			cancel()
			synctest.Wait()
			if last < 8*time.Minute {
				t.Errorf("stalled after %s, heard last after %s", from, last)
			}
		})
	}
}
