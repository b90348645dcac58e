// Package notify wakes whoever waits for a change: one broadcast for all rooms. It carries no news; who is woken looks again.
package notify

import "sync"

// Broadcast wakes everybody who waits, any number of times. The zero value is ready.
type Broadcast struct {
	mu   sync.Mutex
	rung chan struct{}
}

// Wait gives a channel that is closed by the next Ring. Take it before looking at what may change.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

// Ring wakes those who wait now.
func (b *Broadcast) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
