// Package queue makes the work queues of controllers, and has a controller serve a queue that somebody else made.
//
// Whoever sets up a controller gives New as its NewQueue. Left to itself, controller-runtime gives every queue metrics
// that nobody here reads, and a timer that keeps them up to date twice a second: with a dozen controllers these were most of
// what woke an idle daemon. An Inbox adds requests that come from no watch. The package must never hold state of its own.
package queue

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New makes a queue that does not wake up by itself. Its name is left out: only queues with a name have metrics.
func New(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return priorityqueue.New("", func(o *priorityqueue.Opts[reconcile.Request]) {
		o.RateLimiter, o.Log = limiter, logr.Discard()
	})
}

// Serve has so many workers call reconcile for what is in the queue until ctx ends, and then shuts the queue down. What gives an error is
// called for again, later each time, as the queue's limiter says. It is a controller without a manager, for what begins and ends with a peer:
// several may have the same name. Errors are the caller's to log.
func Serve[R comparable](ctx context.Context, name string, queue workqueue.TypedRateLimitingInterface[R], workers int, reconcileOne func(context.Context, R) error) error {
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[R]{
		SkipNameValidation:      new(true),
		MaxConcurrentReconciles: workers,
		NewQueue: func(string, workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
			return queue
		},
		Reconciler: reconcile.TypedFunc[R](func(ctx context.Context, r R) (reconcile.Result, error) {
			return reconcile.Result{}, reconcileOne(ctx, r)
		}),
		LogConstructor: func(*R) logr.Logger { return logr.Discard() },
	})
	if err != nil {
		return err
	}
	return c.Start(ctx)
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
