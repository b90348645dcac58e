package hosting

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/remote"
)

// viewed names what a line is about.
type viewed struct{ kind, namespace, name string }

// viewer is one stream: what it was told of, and what it has to be told yet, in the order in which that came first.
type viewer struct {
	cut context.CancelCauseFunc

	mu    sync.Mutex
	queue []viewed
	wait  map[viewed]untold
	news  chan struct{} // has one item while queue is not empty

	told map[viewed]bool // of the one goroutine that sends
}

// untold is the newest state of an object.
type untold struct {
	object any
	gone   bool
}

func newViewer(cut context.CancelCauseFunc) *viewer {
	return &viewer{cut: cut, wait: map[viewed]untold{}, news: make(chan struct{}, 1), told: map[viewed]bool{}}
}

// put has the reader told of an object. It never waits.
func (s *viewer) put(ref viewed, o any, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.wait[ref]; !waits {
		if len(s.queue) >= maxUntold {
			s.cut(fmt.Errorf("more than %d objects wait to be told", maxUntold))
			return
		}
		s.queue = append(s.queue, ref)
	}
	s.wait[ref] = untold{o, gone}
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *viewer) next() (ref viewed, is untold, ok bool) {
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

// send writes until ctx ends or the reader takes nothing more. mine is asked of every object once more before it leaves: what is
// the reader's no longer is gone.
func (s *viewer) send(ctx context.Context, w io.Writer, mine func(viewed) bool, clock *http.ResponseController) error {
	var batch []byte
	for {
		select {
		case <-s.news:
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more; {
			batch = batch[:0]
			for more && len(batch) < viewBatch {
				ref, is, ok := s.next()
				if more = ok; ok {
					line, err := s.line(ref, is, mine)
					if err != nil {
						return err
					}
					batch = append(batch, line...)
				}
			}
			if len(batch) == 0 {
				break
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
		if cap(batch) > 4*viewBatch {
			batch = nil
		}
	}
}

// line is what is told of an object, and its end; none when that is no news to the reader.
func (s *viewer) line(ref viewed, is untold, mine func(viewed) bool) ([]byte, error) {
	if ref.kind != remote.KindSynced {
		ours := mine(ref)
		gone := is.gone || !ours
		if gone && !s.told[ref] {
			return nil, nil
		}
		if is.gone = gone; gone {
			delete(s.told, ref)
		} else {
			s.told[ref] = true
		}
		if !ours { // no more than that it is
			is.object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ref.namespace, Name: ref.name}}
		}
	}
	line, err := encoded(ref, is.object, is.gone)
	return append(line, '\n'), err
}
