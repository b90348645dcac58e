package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kith.dev/daemon/metrics"
)

func TestPartThatFailedIsAProblemUntilItRunsWell(t *testing.T) {
	p := newParts(metrics.New(func(context.Context) metrics.Facts { return metrics.Facts{} }, prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler)), func() {})
	fail := p.watched("the gateway", func(context.Context) error { return errors.New("no TUN") })
	if err := fail(t.Context()); err == nil {
		t.Error("the error is lost")
	}
	if got := p.problems(); len(got) != 1 || got[0].Why != "no TUN" || got[0].Do == "" {
		t.Errorf("%+v", got)
	}
	p.set("the gateway", nil) // as the timer does
	if got := p.problems(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if fail(ended) == nil || len(p.problems()) != 0 {
		t.Error("the end of the daemon is called a failure")
	}
}

func TestDesktopsHearOfPartsThatFailAndWorkAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Daemon
		d.parts = newParts(metrics.New(func(context.Context) metrics.Facts { return metrics.Facts{} }, prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler)), d.changed.Notify)
		ctx, cancel := context.WithCancel(t.Context())
		fail := d.parts.watched("the gateway", func(context.Context) error { return errors.New("no TUN") })
		rung := func(happens func()) bool {
			changed := d.changed.Wait()
			happens()
			synctest.Wait()
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		if !rung(func() { _ = fail(ctx) }) || len(d.parts.problems()) != 1 {
			t.Error("it failed, and nobody heard")
		}
		go func() {
			_ = d.parts.watched("the gateway", func(ctx context.Context) error { <-ctx.Done(); return nil })(ctx)
		}()
		if !rung(func() { time.Sleep(settled) }) || len(d.parts.problems()) != 0 {
			t.Error("it works again, and nobody heard")
		}
		if rung(func() { time.Sleep(time.Hour) }) {
			t.Error("somebody heard of a part that goes on")
		}
		cancel()
	})
}
