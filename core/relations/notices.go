package relations

import (
	"sync"

	"kith.dev/core/identity"
	"kith.dev/core/peering"
)

// noticeQueue bounds what waits for a peer whose stream does not drain; it asks for the books when it comes back.
const noticeQueue = 16

// notices hands what peers must know to the presence streams that are open to them.
type notices struct {
	mu     sync.Mutex
	listen map[identity.ID]map[chan peering.Notice]bool
}

// subscribe gives a channel for one stream, and the function that gives it back.
func (n *notices) subscribe(id identity.ID) (chan peering.Notice, func()) {
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
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listen[id], ch)
		if len(n.listen[id]) == 0 {
			delete(n.listen, id)
		}
	}
}

// send never blocks: a peer that misses a notice compares the books when it connects again.
func (n *notices) send(id identity.ID, notice peering.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.listen[id] {
		select {
		case ch <- notice:
		default:
		}
	}
}
