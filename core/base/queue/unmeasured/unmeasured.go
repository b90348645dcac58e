// Package unmeasured has work queues of client-go keep no metrics: each with a name would have a timer that keeps them up to date twice a second.
// controller-runtime has metrics kept for all of them as soon as it is linked, client-go's own queue for a certificate that is renewed on disk has a
// name, and nobody reads these figures (docs/metrics.md has Kith's).
//
// It must not import controller-runtime: it has to be initialised before that, since the first who sets a provider wins. Go initialises what is ready
// in the order of import paths, and this one comes before sigs.k8s.io.
package unmeasured

import (
	_ "unsafe" // for go:linkname

	"k8s.io/client-go/util/workqueue"
)

// none is the provider that client-go has at first. By it, and by no other that does nothing, a queue knows that it needs no timer.
//
//go:linkname none k8s.io/client-go/util/workqueue.globalMetricsProvider
var none workqueue.MetricsProvider

func init() { workqueue.SetProvider(none) }
