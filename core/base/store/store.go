// Package store holds the objects of one kind that a stream reports, and calls back on each change. core/consume/remote keeps in it what a peer reports,
// core/consume/virtualnode the pods at home that a client-go Reflector reports.
//
// It makes no calls. It keeps nothing from earlier streams: what a new stream has not reported is removed by Sweep.
package store

import (
	"fmt"
	"slices"
	"sync"
)

// Object is what a store can hold.
type Object interface {
	comparable
	GetNamespace() string
	GetName() string
}

// Store holds the objects of one kind by namespace and name, as they were told last. Make it with New; all methods but OnChange may
// be called by many at once. Nobody may change what it gives.
type Store[T Object] struct {
	most    int
	changed []func(was, is T)

	mu    sync.RWMutex
	items map[string]map[string]kept[T]
	size  int
	round int // counts streams: what was told in none but earlier ones is swept away
}

type kept[T Object] struct {
	object T
	round  int
}

// New makes an empty Store, which holds at most so many objects.
func New[T Object](most int) *Store[T] {
	return &Store[T]{most: most, items: map[string]map[string]kept[T]{}}
}

// OnChange has f called for each object that came (was is nil), changed, or went (is is nil), in their order, one after another.
// It must be called before anything is put in.
func (s *Store[T]) OnChange(f func(was, is T)) { s.changed = append(s.changed, f) }

func (s *Store[T]) tell(was, is T) {
	for _, f := range s.changed {
		f(was, is)
	}
}

// Get gives the object, nil when there is none.
func (s *Store[T]) Get(namespace, name string) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[namespace][name].object
}

// In lists what is in a namespace.
func (s *Store[T]) In(namespace string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return objects(nil, s.items[namespace])
}

// All lists everything.
func (s *Store[T]) All() (all []T) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, in := range s.items {
		all = objects(all, in)
	}
	return all
}

func objects[T Object](all []T, in map[string]kept[T]) []T {
	all = slices.Grow(all, len(in))
	for _, k := range in {
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

// Begin is called at the beginning of each stream, or list.
func (s *Store[T]) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
}

// Put takes an object in, or the new state of one; an error says that there are too many.
func (s *Store[T]) Put(is T) error {
	namespace, name := is.GetNamespace(), is.GetName()
	s.mu.Lock()
	in := s.items[namespace]
	was, known := in[name]
	if !known && s.size >= s.most {
		s.mu.Unlock()
		return fmt.Errorf("more than %d objects of %T", s.most, is)
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

// Delete takes one out; last is the state it had in the end, nil when that is not known.
func (s *Store[T]) Delete(namespace, name string, last T) {
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

// DeleteAll takes out whatever is in a namespace.
func (s *Store[T]) DeleteAll(namespace string) {
	var none T
	for _, o := range s.In(namespace) {
		s.Delete(namespace, o.GetName(), none)
	}
}

// Sweep takes out what was not told of since Begin.
func (s *Store[T]) Sweep() {
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
