// Package backoff gives the pauses between attempts that fail, for packages that know no Kubernetes; all others take
// wait.Backoff of k8s.io/apimachinery.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Doubling gives pauses that double from First to Most. It is not safe for concurrent use.
type Doubling struct {
	First, Most time.Duration
	// Jitter lengthens each pause by a random part of it, which is at most this: with 0.5 a pause of 10 s is of 10 to 15 s.
	Jitter float64

	next time.Duration // without jitter; 0: First
}

// Next gives the pause before the next attempt.
func (d *Doubling) Next() time.Duration {
	pause := max(d.next, d.First)
	d.next = min(2*pause, d.Most)
	return pause + time.Duration(d.Jitter*rand.Float64()*float64(pause))
}

// Reset begins again with First: something succeeded, or changed.
func (d *Doubling) Reset() { d.next = 0 }
