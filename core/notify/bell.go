// Package notify wakes goroutines that wait for a change. Rooms that answer long polls and the daemon use it; it carries no word of what
// changed: whoever is woken looks for itself.
package notify

import "sync"

// Bell wakes everybody who waits, any number of times.
type Bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// Wait gives a channel that is closed by the next Ring. Take it before looking at what may change.
func (b *Bell) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

// Ring wakes those who wait now.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
