package hosting

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/consume/remote"
)

// objectRef names what a line is about.
type objectRef struct{ kind, namespace, name string }

// stream is an open view: the objects it has sent, and the queue of those still to be sent, in the order in which they first changed.
type stream struct {
	cut context.CancelCauseFunc

	mu    sync.Mutex
	queue []objectRef
	wait  map[objectRef]latest
	news  chan struct{} // has one item while queue is not empty

	sent map[objectRef]bool // of the one goroutine that sends
}

// latest is the newest state of an object.
type latest struct {
	object any
	gone   bool
}

func newStream(cut context.CancelCauseFunc) *stream {
	return &stream{cut: cut, wait: map[objectRef]latest{}, news: make(chan struct{}, 1), sent: map[objectRef]bool{}}
}

// put queues an object. It never blocks.
func (s *stream) put(ref objectRef, o any, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.wait[ref]; !waits {
		if len(s.queue) >= maxPending {
			s.cut(fmt.Errorf("more than %d objects wait to be told", maxPending))
			return
		}
		s.queue = append(s.queue, ref)
	}
	s.wait[ref] = latest{o, gone}
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *stream) next() (ref objectRef, is latest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil // its memory is that of the longest it ever was
		return ref, is, false
	}
	ref = s.queue[0]
	s.queue = s.queue[1:]
	is = s.wait[ref]
	delete(s.wait, ref)
	return ref, is, true
}

// send writes the queue until ctx ends or the reader stops reading. mine is checked for every object just before it is sent: one that is no
// longer the reader's is sent as gone.
func (s *stream) send(ctx context.Context, w io.Writer, mine func(objectRef) bool, clock *http.ResponseController) error {
	for {
		batch, err := s.batch(mine)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			select {
			case <-s.news:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		_ = clock.SetWriteDeadline(time.Now().Add(viewPatience))
		if _, err := w.Write(batch); err != nil {
			return err
		}
		if err := clock.Flush(); err != nil {
			return err
		}
		_ = clock.SetWriteDeadline(time.Time{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// batch is what is written next; empty when nothing waits.
func (s *stream) batch(mine func(objectRef) bool) (batch []byte, err error) {
	for len(batch) < viewBatch {
		ref, is, ok := s.next()
		if !ok {
			break
		}
		line, err := s.line(ref, is, mine)
		if err != nil {
			return nil, err
		}
		batch = append(batch, line...)
	}
	return batch, nil
}

// line is the line for an object, or for its deletion; none when the reader need not hear of it.
func (s *stream) line(ref objectRef, is latest, mine func(objectRef) bool) ([]byte, error) {
	if ref.kind != remote.KindSynced {
		ours := mine(ref)
		gone := is.gone || !ours
		if gone && !s.sent[ref] {
			return nil, nil
		}
		if is.gone = gone; gone {
			delete(s.sent, ref)
		} else {
			s.sent[ref] = true
		}
		if !ours { // no more than that it is
			is.object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ref.namespace, Name: ref.name}}
		}
	}
	line, err := encoded(ref, is.object, is.gone)
	return append(line, '\n'), err
}
