package virtualnode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

type object interface {
	comparable
	runtime.Object
	metav1.Object
}

// watched holds the objects of one list of the home API server as a Reflector brings them, and tells of each change.
type watched[T object] struct {
	changed func(was, is T) // one of both may be nil
	listed  func()          // called after each list; may be nil

	mu    sync.RWMutex
	items map[key]T
	fresh bool // everything was listed
}

const maxWatchDelay = 10 * time.Second

func newWatched[T object](changed func(was, is T)) *watched[T] {
	return &watched[T]{changed: changed, items: map[key]T{}}
}

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

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

// selected is what a field selector picks of one kind at home.
func selected[L runtime.Object](home kubernetes.Interface, which fields.Selector, list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = which.String()
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = which.String()
			return follow(ctx, o)
		},
	}, home)
}

// run lists and watches until ctx ends, coming back after failures with growing delays.
func (w *watched[T]) run(ctx context.Context, lw cache.ListerWatcher, example T, log *slog.Logger) error {
	reflector := cache.NewReflectorWithOptions(lw, example, w, cache.ReflectorOptions{Name: fmt.Sprintf("virtualnode %T", example)})
	delay, lastErr := time.Duration(0), ""
	for {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != lastErr {
			lastErr = err.Error()
			log.Warn("watch failed, will be tried again", "kind", fmt.Sprintf("%T", example), "err", err)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil, time.Since(began) < time.Second:
			delay = min(max(2*delay, 200*time.Millisecond), maxWatchDelay)
		default:
			lastErr, delay = "", 0
		}
		if delay > 0 {
			timer := time.NewTimer(delay/2 + rand.N(delay))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
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
	is.SetManagedFields(nil) // half of a pod's size, and nobody here reads it
	w.mu.Lock()
	was := w.items[keyOf(is)]
	w.items[keyOf(is)] = is
	w.mu.Unlock()
	w.changed(was, is)
	return nil
}

func (w *watched[T]) Delete(o any) error {
	is, ok := o.(T)
	if !ok {
		return fmt.Errorf("a %T came where another kind was watched", o)
	}
	var none T
	w.mu.Lock()
	delete(w.items, keyOf(is))
	w.mu.Unlock()
	w.changed(is, none) // the event carries the last state, newer than what was held
	return nil
}

func (w *watched[T]) Replace(all []any, _ string) error {
	var none T
	items := make(map[key]T, len(all))
	for _, o := range all {
		is, ok := o.(T)
		if !ok {
			return fmt.Errorf("a %T came where another kind was listed", o)
		}
		is.SetManagedFields(nil)
		items[keyOf(is)] = is
	}
	w.mu.Lock()
	old := w.items
	w.items, w.fresh = items, true
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
