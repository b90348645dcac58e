package notice

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

var errAway = &api.Error{Code: api.CodeUnavailable, Message: "kithd does not answer"}

// away is a daemon that was switched off.
type away struct{ asked atomic.Int32 }

func (a *away) Events(context.Context, client.EventsFrom) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		a.asked.Add(1)
		yield(api.Event{}, errAway)
	}
}

// still is a screen on which nothing happens.
type still struct{}

func (still) Run(ctx context.Context, _ func(Answer)) error { <-ctx.Done(); return nil }
func (still) Show(Notice)                                   {}
func (still) Retract(string)                                {}

func TestADaemonThatIsOffIsHardlyAskedAndFoundWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &away{}
		n := New(still{}, feed, Settings{}, slog.New(slog.DiscardHandler))
		n.Observe(api.Snapshot{}, errAway)
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- n.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		asked := feed.asked.Load()
		if asked > 70 {
			t.Errorf("asked %d times in an hour", asked)
		}
		n.Observe(api.Snapshot{}, nil)
		synctest.Wait()
		if now := feed.asked.Load(); now != asked+1 {
			t.Errorf("asked %d times when it was back", now-asked)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
