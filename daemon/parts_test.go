package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"kith.dev/daemon/metrics"
)

func TestPartThatFailedIsAProblemUntilItRunsWell(t *testing.T) {
	p := newParts(metrics.New(func(context.Context) metrics.Facts { return metrics.Facts{} }, nil, slog.New(slog.DiscardHandler)), func() {})
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
