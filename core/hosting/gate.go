package hosting

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// gates holds one gate per consumer that has a contract.
type gates struct {
	mu sync.Mutex
	by map[string]*gate
}

// gate counts what a consumer has open, and closes it all at once.
type gate struct {
	open  context.Context // done once the gate was shut
	close context.CancelFunc

	bucket *rate.Limiter
	lists  chan struct{} // holds one for each list under way

	kept stock

	mu                sync.Mutex
	requests, streams int
	bodies            int64
}

func (g *gates) of(consumerID string, limits Limits) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[string]*gate{}
	}
	one := g.by[consumerID]
	if one == nil {
		one = &gate{bucket: rate.NewLimiter(rate.Limit(limits.Rate), limits.Burst), lists: make(chan struct{}, limits.Lists)}
		one.open, one.close = context.WithCancel(context.Background())
		g.by[consumerID] = one
	}
	return one
}

// shut closes the consumer's gate and forgets it: the next contract begins with a new one.
func (g *gates) shut(consumerID string) {
	g.mu.Lock()
	one := g.by[consumerID]
	delete(g.by, consumerID)
	g.mu.Unlock()
	if one != nil {
		one.close()
	}
}

// enter lets one request in, or says which limit it is over. Call leave when it is done.
func (g *gate) enter(ctx context.Context, w way, body int64, limits Limits) (leave func(), err error) {
	count, limit, what := &g.requests, limits.Requests, "requests"
	if w.stream {
		count, limit, what = &g.streams, limits.Streams, "watches and streams"
	}
	g.mu.Lock()
	if *count >= limit {
		g.mu.Unlock()
		return nil, fmt.Errorf("%s: %d are open, more are not allowed at the same time", what, limit)
	}
	if g.bodies+body > limits.Bodies {
		g.mu.Unlock()
		return nil, fmt.Errorf("request bodies: more than %d bytes at the same time", limits.Bodies)
	}
	*count++
	g.bodies += body
	g.mu.Unlock()
	leave = func() {
		g.mu.Lock()
		*count--
		g.bodies -= body
		g.mu.Unlock()
	}
	if err := g.wait(ctx, limits); err != nil {
		leave()
		return nil, err
	}
	if w.list {
		if err := g.turn(ctx, limits); err != nil {
			leave()
			return nil, err
		}
		uncount := leave
		return func() { <-g.lists; uncount() }, nil
	}
	return leave, nil
}

// turn waits until few enough lists are under way.
func (g *gate) turn(ctx context.Context, limits Limits) error {
	timer := time.NewTimer(limits.Turn)
	defer timer.Stop()
	select {
	case g.lists <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("lists: %d are under way, and none ended within %s", limits.Lists, limits.Turn)
	case <-g.open.Done():
		return errShut
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait smooths a burst over the rate, as long as that takes less than the patience.
func (g *gate) wait(ctx context.Context, limits Limits) error {
	turn := g.bucket.Reserve()
	delay := turn.Delay()
	if !turn.OK() || delay > limits.Patience {
		turn.Cancel()
		return fmt.Errorf("requests: more than %g per second", limits.Rate)
	}
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-g.open.Done():
		return errShut
	case <-ctx.Done():
		turn.Cancel()
		return ctx.Err()
	}
}
