package peering

import (
	"context"
	"maps"
	"net"
	"sync"
	"time"
)

// announcement is a notice for all who are recognised and have a presence stream.
type announcement struct {
	ctx    context.Context // how long its sender waits
	notice Notice
	told   chan struct{} // closed when the peer has it
}

// streams are the presence streams that are open, whoever's: to whom something is announced is looked at then.
type streams struct {
	mu  sync.Mutex
	all map[chan announcement]<-chan struct{} // and what is closed at the end of each
}

// enter adds a stream, which takes announcements from the channel until it leaves.
func (s *streams) enter() (announced <-chan announcement, leave func()) {
	c, left := make(chan announcement), make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan announcement]<-chan struct{}{}
	}
	s.all[c] = left
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, c)
		close(left)
	}
}

// Announce tells all who are recognised and have a presence stream open, and returns when their kernels have it, their streams ended, or ctx did.
func (s *Server) Announce(ctx context.Context, notice NoticeType) {
	s.streams.mu.Lock()
	open := maps.Clone(s.streams.all)
	s.streams.mu.Unlock()
	var all sync.WaitGroup
	for stream, left := range open {
		all.Go(func() {
			a := announcement{ctx, Notice{Type: notice}, make(chan struct{})}
			select {
			case stream <- a:
			case <-left:
				return
			case <-ctx.Done():
				return
			}
			select {
			case <-a.told:
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
}

const (
	// acknowledgedIn bounds the wait for one peer's kernel: over a way that is lost, none comes.
	acknowledgedIn = 2 * time.Second
	// looksForIt is how often the kernel is asked meanwhile, which has no word for it.
	looksForIt = 5 * time.Millisecond
)

// acknowledged waits until what was sent is at the peer, as far as that can be known, or ctx ends.
func acknowledged(ctx context.Context, conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	for end := time.Now().Add(acknowledgedIn); ok && inFlightOn(tcp) && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(looksForIt)
	}
}
