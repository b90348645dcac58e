package virtualnode

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/base/store"
)

type object interface {
	store.Object
	runtime.Object
	metav1.Object
}

// informer holds the objects of one list of the home API server as a client-go Reflector brings them, and tells of each change. It is no
// client-go informer, for those reconnect after up to half a minute, and nobody can set that: the pods of a peer would stand still that long
// after each restart of the engine. And they tell of changes later, from a buffer, where the view of the peer, by the same Store, tells at once.
type informer[T object] struct {
	*store.Store[T]
	listed    func()      // called after each list; may be nil
	hasSynced atomic.Bool // everything was listed
}

func newInformer[T object](changed func(was, is T)) *informer[T] {
	i := &informer[T]{Store: store.New[T](math.MaxInt)}
	i.OnChange(changed)
	return i
}

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

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

// run lists and watches until ctx ends.
func (i *informer[T]) run(ctx context.Context, lw cache.ListerWatcher, example T) error {
	cache.NewReflectorWithOptions(lw, example, i, cache.ReflectorOptions{
		Name:    fmt.Sprintf("virtualnode %T", example),
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 10 * time.Second},
	}).RunWithContext(ctx)
	return nil
}

// The methods below are for the Reflector (cache.ReflectorStore).

func (i *informer[T]) Add(o any) error    { return i.put(o) }
func (i *informer[T]) Update(o any) error { return i.put(o) }
func (i *informer[T]) Resync() error      { return nil }

func (i *informer[T]) put(o any) error {
	is, ok := o.(T)
	if !ok {
		return fmt.Errorf("a %T came where another kind was watched", o)
	}
	is.SetManagedFields(nil) // half of a pod's size, and nobody here reads it
	return i.Put(is)
}

// Delete takes the last state along, which is newer than what was held.
func (i *informer[T]) Delete(o any) error {
	is, ok := o.(T)
	if !ok {
		return fmt.Errorf("a %T came where another kind was watched", o)
	}
	i.Store.Delete(is.GetNamespace(), is.GetName(), is)
	return nil
}

func (i *informer[T]) Replace(all []any, _ string) error {
	i.Begin()
	for _, o := range all {
		if err := i.put(o); err != nil {
			return err
		}
	}
	i.Sweep()
	i.hasSynced.Store(true)
	if i.listed != nil {
		i.listed()
	}
	return nil
}
