package remote

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is what a store can hold.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// maxObjects bounds what a peer can have us keep of one kind.
const maxObjects = 50_000

// Store holds the objects of one kind by namespace and name, as the peer told last.
type Store[T Object] struct {
	changed []func(was, is T)

	mu    sync.RWMutex
	items map[string]map[string]kept[T]
	size  int
	round int // counts streams: what was told in none but earlier ones is swept away at Synced
}

type kept[T Object] struct {
	object T
	round  int
}

func newStore[T Object]() *Store[T] { return &Store[T]{items: map[string]map[string]kept[T]{}} }

// OnChange has f called for each object that came (was is nil), changed, or went (is is nil), in their order, one after another.
// It must be called before the view runs.
func (s *Store[T]) OnChange(f func(was, is T)) { s.changed = append(s.changed, f) }

func (s *Store[T]) tell(was, is T) {
	for _, f := range s.changed {
		f(was, is)
	}
}

// Get gives the object, nil when there is none. Nobody may change it.
func (s *Store[T]) Get(namespace, name string) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[namespace][name].object
}

// In lists what is in a namespace.
func (s *Store[T]) In(namespace string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.items[namespace]))
	for _, k := range s.items[namespace] {
		all = append(all, k.object)
	}
	return all
}

// Has reports whether anything is in a namespace.
func (s *Store[T]) Has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items[namespace]) > 0
}

func (s *Store[T]) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
}

func (s *Store[T]) put(is T) error {
	namespace, name := is.GetNamespace(), is.GetName()
	s.mu.Lock()
	in := s.items[namespace]
	was, known := in[name]
	if !known && s.size >= maxObjects {
		s.mu.Unlock()
		return fmt.Errorf("more than %d objects of %T", maxObjects, is)
	}
	if in == nil {
		in = map[string]kept[T]{}
		s.items[namespace] = in
	}
	if !known {
		s.size++
	}
	in[name] = kept[T]{is, s.round}
	s.mu.Unlock()
	s.tell(was.object, is)
	return nil
}

// drop takes one out; last is the state it had in the end, nil when that is not known.
func (s *Store[T]) drop(namespace, name string, last T) {
	var none T
	s.mu.Lock()
	was, known := s.items[namespace][name]
	if known {
		s.remove(namespace, name)
	}
	s.mu.Unlock()
	if last == none {
		last = was.object
	}
	if last != none {
		s.tell(last, none)
	}
}

func (s *Store[T]) remove(namespace, name string) {
	in := s.items[namespace]
	delete(in, name)
	s.size--
	if len(in) == 0 {
		delete(s.items, namespace)
	}
}

// leave takes out whatever is in a namespace.
func (s *Store[T]) leave(namespace string) {
	var none T
	for _, o := range s.In(namespace) {
		s.drop(namespace, o.GetName(), none)
	}
}

// sweep takes out what was not told of since begin.
func (s *Store[T]) sweep() {
	var gone []T
	s.mu.Lock()
	for namespace, in := range s.items {
		for name, k := range in {
			if k.round != s.round {
				gone = append(gone, k.object)
				s.remove(namespace, name)
			}
		}
	}
	s.mu.Unlock()
	var none T
	for _, o := range gone {
		s.tell(o, none)
	}
}
