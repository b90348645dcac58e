// Package queue makes the work queues of controllers, and serves queues without one.
//
// Whoever sets up a controller gives New as its NewQueue. Left to itself, controller-runtime gives every queue metrics that nobody here reads, with a
// timer that keeps them up to date twice a second, and another that looks each ten seconds whether to log what waits: with two dozen controllers
// these were most of what woke an idle daemon. An Inbox adds requests that come from no watch. The package must never hold state of its own.
package queue

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	_ "kith.dev/core/base/queue/unmeasured"
)

// New makes a queue for a controller. Its name is left out: only queues with a name have metrics.
func New(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return Of(limiter)
}

// Of makes a queue that does not wake up by itself.
func Of[R comparable](limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[R]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[R]{Clock: tickless{}}),
	})
}

// tickless is the clock of a queue: timers come when something in it is due, but no ticks, by which it would look again each ten seconds.
type tickless struct{ clock.RealClock }

func (tickless) NewTicker(time.Duration) clock.Ticker { return never{} }

type never struct{}

func (never) C() <-chan time.Time { return nil }
func (never) Stop()               {}

// Serve calls serve for what is in the queue, for so many at a time, until ctx ends, and then shuts the queue down. What gives an error is
// called for again, later each time, as the queue's limiter says; errors are the caller's to log. It is for what begins and ends with a peer: a
// controller keeps its workers waiting, which for a hundred peers are thousands.
func Serve[R comparable](ctx context.Context, log *slog.Logger, queue workqueue.TypedRateLimitingInterface[R], workers int, serve func(context.Context, R) error) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, workers)
	for {
		item, ended := queue.Get()
		if ended {
			return
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			defer queue.Done(item)
			if err := safely(ctx, log, item, serve); err != nil && ctx.Err() == nil {
				queue.AddRateLimited(item)
				return
			}
			queue.Forget(item)
		})
	}
}

// safely makes an error of a panic: what one peer says shall not end the daemon of all.
func safely[R any](ctx context.Context, log *slog.Logger, item R, serve func(context.Context, R) error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			log.Error("a bug in Kith: please report it", "item", item, "panic", why, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", why)
		}
	}()
	return serve(ctx, item)
}

// Inbox is a source.Source of a controller, for requests that come from no watch. The zero value is ready, and safe for concurrent use;
// requests added before the controller runs wait for it.
type Inbox struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // nil until the controller runs
	early []types.NamespacedName
}

// Start implements source.Source.
func (i *Inbox) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	i.mu.Lock()
	early := i.early
	i.queue, i.early = queue, nil
	i.mu.Unlock()
	i.Add(early...)
	return nil
}

// Add has the objects of these names reconciled.
func (i *Inbox) Add(names ...types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queue == nil {
		i.early = append(i.early, names...)
		return
	}
	for _, name := range names {
		i.queue.Add(reconcile.Request{NamespacedName: name})
	}
}
