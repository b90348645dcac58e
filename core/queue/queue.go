// Package queue makes the work queues of controllers.
//
// Whoever sets up a controller gives New as its NewQueue. Left to itself, controller-runtime gives every queue metrics
// that nobody here reads, and a timer that keeps them up to date twice a second: with a dozen controllers these were most of
// what woke an idle daemon. The package must never hold state of its own.
package queue

import (
	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New makes a queue that does not wake up by itself. Its name is left out: only queues with a name have metrics.
func New(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return priorityqueue.New("", func(o *priorityqueue.Opts[reconcile.Request]) {
		o.RateLimiter, o.Log = limiter, logr.Discard()
	})
}
