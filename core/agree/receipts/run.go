package receipts

import (
	"context"
	"errors"
	"time"

	"kith.dev/core/trust/receipt"
)

// pause is the least time between two looks at what is in force: what changes in between counts from the next one on.
const pause = time.Second

// Run observes lines whenever they may have changed, and when there is a receipt to close, and fetches receipts from providers, until ctx ends.
func (b *Book) Run(ctx context.Context, lines func(context.Context) ([]Line, error), changed func() <-chan struct{}) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	fetched := make(chan struct{}, 1)
	fetching := false
	for {
		news := changed()
		there, err := lines(ctx)
		if ctx.Err() != nil {
			return nil
		}
		next := time.Time{}
		if err == nil {
			err = b.Observe(there)
			next = b.Next(there)
		}
		if err != nil {
			b.Log.Error("what contracts use was not counted", "err", err)
			next = b.Now().Wall.Add(checkpoint)
		}
		if !fetching {
			due, again := b.Due()
			if next.IsZero() || !again.IsZero() && again.Before(next) {
				next = again
			}
			if fetching = len(due) > 0; fetching {
				go func() { b.fetchAll(ctx, due); fetched <- struct{}{} }()
			}
		}
		timer.Reset(until(next, b.Now().Wall))
		select {
		case <-news:
		case <-b.pokes:
		case <-fetched:
			fetching = false
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// until is how long to wait, a day where there is nothing to wait for.
func until(next, now time.Time) time.Duration {
	if next.IsZero() {
		return 24 * time.Hour
	}
	return max(0, next.Sub(now))
}

func (b *Book) fetchAll(ctx context.Context, due []string) {
	for _, id := range due {
		err := b.Fetch(ctx, id)
		if _, theirs := errors.AsType[*receipt.Fault](err); err != nil && !theirs && ctx.Err() == nil { // a fault was told already
			b.Log.Debug("receipts were not fetched", "contract", id, "err", err)
		}
	}
}

// Told notes that a provider has a receipt of a contract.
func (b *Book) Told(id string) {
	b.mu.Lock()
	if a := b.accounts[id]; a != nil && !a.Provides {
		a.pull, a.delivered = b.Now().Wall, false
	}
	b.mu.Unlock()
	select {
	case b.pokes <- struct{}{}:
	default:
	}
}
