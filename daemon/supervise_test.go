package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatFailsIsStartedAgainMoreAndMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runs := 0
		supervise(ctx, slog.New(slog.DiscardHandler), "test", func(context.Context) error {
			runs++
			return errors.New("no")
		})
		if runs < 5 || runs > 8 {
			t.Errorf("ran %d times within a minute, want 5 to 8", runs)
		}
	})
}

func TestWhatIsToldToEndIsNotStartedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	supervise(ctx, slog.New(slog.DiscardHandler), "test", func(context.Context) error {
		runs++
		cancel()
		return nil
	})
	if runs != 1 {
		t.Errorf("ran %d times, want once", runs)
	}
}

// notMade is an error as of a part that is not made for this system.
type notMade struct{}

func (notMade) Error() string { return "needs another system" }
func (notMade) Final() bool   { return true }

func TestWhatIsNotMadeForThisSystemIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		began, runs := time.Now(), 0
		supervise(ctx, slog.New(slog.DiscardHandler), "test", func(context.Context) error {
			runs++
			return fmt.Errorf("gateway: %w", notMade{})
		})
		if runs != 1 || time.Since(began) != 24*time.Hour {
			t.Errorf("ran %d times, ended after %s", runs, time.Since(began))
		}
	})
}
