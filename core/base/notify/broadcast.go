// Package notify wakes goroutines that wait for a change. It does not say what has changed: whoever is woken must check.
package notify

import "sync"

// Broadcast wakes everybody who waits, any number of times.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{}
}

// Wait gives a channel that is closed by the next Notify. Take it before looking at what may change.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Notify wakes those who wait now.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
