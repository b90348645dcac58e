package provider

import (
	"context"
	"sync"

	"kith.dev/core/identity"
	"kith.dev/core/peering"
)

// noticeQueue bounds what waits for a peer whose stream does not drain; it asks for the books when it comes back.
const noticeQueue = 16

// Notices hands what peers must know to the presence streams that are open to them. It outlives the Provider.
type Notices struct {
	mu     sync.Mutex
	listen map[identity.ID]map[chan peering.Notice]bool
}

// Subscribe gives the notices for one peer until ctx ends.
func (n *Notices) Subscribe(ctx context.Context, id identity.ID) <-chan peering.Notice {
	ch := make(chan peering.Notice, noticeQueue)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listen == nil {
		n.listen = map[identity.ID]map[chan peering.Notice]bool{}
	}
	if n.listen[id] == nil {
		n.listen[id] = map[chan peering.Notice]bool{}
	}
	n.listen[id][ch] = true
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listen[id], ch)
		if len(n.listen[id]) == 0 {
			delete(n.listen, id)
		}
	})
	return ch
}

// Send never blocks: a peer that misses a notice compares the books when it connects again.
func (n *Notices) Send(id identity.ID, notice peering.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.listen[id] {
		select {
		case ch <- notice:
		default:
		}
	}
}
