package virtualnode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/wire/codec"
)

type object interface {
	comparable
	runtime.Object
	metav1.Object
}

// watched holds the objects of one list of an API server as a Reflector brings them, and tells of each
// change. An informer would do the same, but it cannot be told to look afresh: after a link healed, its
// watch may hang on a dead connection for minutes, or sleep until its next attempt.
type watched[T object] struct {
	changed func(was, is T) // one of both may be nil
	listed  func()          // called after each list, and each time a list is denied; may be nil

	mu     sync.RWMutex
	items  map[key]T
	passed map[key]string // what could not be decoded, and is passed over: by its version
	fresh  bool           // the items are those of a list made after the last refresh
	denied bool           // the last list was: what is watched is not there any more, or not ours
	stop   context.CancelFunc
	log    *slog.Logger
}

const (
	maxWatchDelay = 10 * time.Second
	// maxWatched bounds what a peer can have us keep.
	maxWatched = 50_000
)

func newWatched[T object](changed func(was, is T)) *watched[T] {
	return &watched[T]{changed: changed, items: map[key]T{}, passed: map[key]string{}}
}

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

func either[T object](was, is T) T {
	var none T
	if is != none {
		return is
	}
	return was
}

// get returns the object, nil when there is none. Nobody may change it.
func (w *watched[T]) get(k key) T {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.items[k]
}

func (w *watched[T]) list() []T {
	w.mu.RLock()
	defer w.mu.RUnlock()
	all := make([]T, 0, len(w.items))
	for _, o := range w.items {
		all = append(all, o)
	}
	return all
}

func (w *watched[T]) isFresh() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.fresh
}

func (w *watched[T]) isDenied() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.denied
}

// refresh lists again at once, whatever the watch is doing.
func (w *watched[T]) refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh = false
	if w.stop != nil {
		w.stop()
	}
}

// run lists and watches until ctx ends, coming back after failures with growing delays.
func (w *watched[T]) run(ctx context.Context, lw cache.ListerWatcher, example T, log *slog.Logger) error {
	reflector := cache.NewReflectorWithOptions(lw, example, w, cache.ReflectorOptions{Name: fmt.Sprintf("virtualnode %T", example)})
	delay, lastErr := time.Duration(0), ""
	w.mu.Lock()
	w.log = log
	w.mu.Unlock()
	for {
		attempt, stop := context.WithCancel(ctx)
		w.mu.Lock()
		w.stop = stop
		w.mu.Unlock()
		began := time.Now()
		err := reflector.ListAndWatchWithContext(attempt)
		if err != nil && attempt.Err() == nil && err.Error() != lastErr {
			lastErr = err.Error()
			log.Warn("watch failed, will be tried again", "kind", fmt.Sprintf("%T", example), "err", err)
		}
		if attempt.Err() == nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
			w.deny()
		}
		switch {
		case attempt.Err() != nil: // the end, or somebody wants it afresh
			delay = 0
		case err != nil, time.Since(began) < time.Second:
			delay = min(max(2*delay, 200*time.Millisecond), maxWatchDelay)
		default:
			lastErr, delay = "", 0
		}
		if delay > 0 {
			timer := time.NewTimer(delay/2 + rand.N(delay))
			select {
			case <-timer.C:
			case <-attempt.Done():
				delay = 0
			}
			timer.Stop()
		}
		stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (w *watched[T]) deny() {
	w.mu.Lock()
	w.denied = true
	w.mu.Unlock()
	if w.listed != nil {
		w.listed()
	}
}

// The methods below are for the Reflector (cache.ReflectorStore).

func (w *watched[T]) Add(o any) error    { return w.put(o) }
func (w *watched[T]) Update(o any) error { return w.put(o) }
func (w *watched[T]) Resync() error      { return nil }

func (w *watched[T]) put(o any) error {
	is, ok := o.(T)
	if !ok {
		return fmt.Errorf("a %T came where another kind was watched", o)
	}
	if w.unreadable(is) {
		return w.Delete(is)
	}
	is.SetManagedFields(nil) // half of a pod's size, and nobody here reads it
	w.mu.Lock()
	was, known := w.items[keyOf(is)]
	if !known && len(w.items) >= maxWatched {
		w.mu.Unlock()
		return fmt.Errorf("more than %d objects of %T", maxWatched, is)
	}
	w.items[keyOf(is)] = is
	w.mu.Unlock()
	w.changed(was, is)
	return nil
}

// unreadable reports whether the object could not be decoded, and tells of it once. One such object is passed over, as if
// it were not there; the others are as they are.
func (w *watched[T]) unreadable(is T) bool {
	why := codec.Unreadable(is)
	if why == "" {
		return false
	}
	w.mu.Lock()
	told := w.passed[keyOf(is)] == is.GetResourceVersion()
	if len(w.passed) > 1000 {
		clear(w.passed)
	}
	w.passed[keyOf(is)] = is.GetResourceVersion()
	log := w.log
	w.mu.Unlock()
	if !told && log != nil {
		log.Warn("an object of the peer cannot be read and is passed over", "kind", fmt.Sprintf("%T", is), "name", is.GetName(), "err", why)
	}
	return true
}

func (w *watched[T]) Delete(o any) error {
	is, ok := o.(T)
	if !ok {
		return fmt.Errorf("a %T came where another kind was watched", o)
	}
	var none T
	w.mu.Lock()
	last, known := w.items[keyOf(is)]
	delete(w.items, keyOf(is))
	w.mu.Unlock()
	if codec.Unreadable(is) != "" { // of which the name is known, and nothing else
		if !known {
			return nil
		}
		is = last
	}
	w.changed(is, none) // the event carries the last state, newer than what was held
	return nil
}

func (w *watched[T]) Replace(all []any, _ string) error {
	if len(all) > maxWatched {
		return fmt.Errorf("more than %d objects in a list", maxWatched)
	}
	var none T
	items := make(map[key]T, len(all))
	for _, o := range all {
		is, ok := o.(T)
		if !ok {
			return fmt.Errorf("a %T came where another kind was listed", o)
		}
		if w.unreadable(is) {
			continue
		}
		is.SetManagedFields(nil)
		items[keyOf(is)] = is
	}
	w.mu.Lock()
	old := w.items
	w.items, w.fresh, w.denied = items, true, false
	w.mu.Unlock()
	for k, is := range items {
		w.changed(old[k], is)
	}
	for k, was := range old {
		if _, still := items[k]; !still {
			w.changed(was, none)
		}
	}
	if w.listed != nil {
		w.listed()
	}
	return nil
}
