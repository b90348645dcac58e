package relations

import "sync"

// broadcast wakes everybody who waits, any number of times.
type broadcast struct {
	mu   sync.Mutex
	bell chan struct{}
}

// wait gives a channel that is closed by the next ring. Take it before looking at what may change.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bell == nil {
		b.bell = make(chan struct{})
	}
	return b.bell
}

func (b *broadcast) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bell != nil {
		close(b.bell)
		b.bell = nil
	}
}
