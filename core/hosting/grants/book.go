package grants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Book counts what guests hold of each contract. A pod is entered before it is made and leaves when it is
// gone or ended for good, so the sum never lags behind the API server, whatever the order of requests. It
// is kept in memory, one addition per pod, and rebuilt from the Pods when the daemon starts.
type Book struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]entry
	sums    map[string]corev1.ResourceList
	waiting map[types.NamespacedName]Waiter
	dirty   map[string]bool
	changed chan struct{} // has one item while dirty is not empty
	refused func()        // who waits is another than before
}

type entry struct {
	contract string
	requests corev1.ResourceList
}

// Waiter is a refused pod, or one that runs and was refused other amounts.
type Waiter struct {
	Contract string
	No       Refusal
	Runs     bool
}

func NewBook() *Book {
	return &Book{
		entries: map[types.NamespacedName]entry{},
		sums:    map[string]corev1.ResourceList{},
		waiting: map[types.NamespacedName]Waiter{},
		dirty:   map[string]bool{},
		changed: make(chan struct{}, 1),
		refused: func() {},
	}
}

// Admit enters the pod unless the contract's sum would exceed limit. A pod that is entered already with the
// same amounts keeps its place, even if the limit was lowered since. What limit does not name is not offered.
func (b *Book) Admit(key types.NamespacedName, contract string, requests, limit corev1.ResourceList) *Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, had := b.entries[key]
	if had {
		if old.contract == contract && equality.Semantic.DeepEqual(old.requests, requests) {
			return nil
		}
		b.take(key)
	}
	var over []string
	for name, want := range requests {
		allowed, held := limit[name], b.sums[contract][name]
		sum := held.DeepCopy()
		sum.Add(want)
		if sum.Cmp(allowed) > 0 {
			over = append(over, fmt.Sprintf("%s: the pod asks for %s, %s of %s is in use", name, want.String(), held.String(), allowed.String()))
		}
	}
	if len(over) > 0 {
		if had {
			b.put(key, old)
		}
		slices.Sort(over)
		return Refused(reasonExceeded, "contract %s would be exceeded: %s", contract, strings.Join(over, "; "))
	}
	b.put(key, entry{contract, requests})
	return nil
}

// Enter counts a pod that exists, within the limit or not. Of one that is entered already the greater amounts count:
// what was admitted may be another pod of that name than the one that is there.
func (b *Book) Enter(key types.NamespacedName, contract string, requests corev1.ResourceList) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.entries[key]; ok {
		if old.contract == contract {
			more := false
			most := maps.Clone(old.requests)
			for name, q := range requests {
				if q.Cmp(most[name]) > 0 {
					most[name], more = q, true
				}
			}
			if !more {
				return
			}
			requests = most
		}
		b.take(key)
	}
	b.put(key, entry{contract, requests})
}

// Correct counts other amounts for a pod that has its place, within the limit or not, and gives those that wait for room
// under its contract when there is more of it now.
func (b *Book) Correct(key types.NamespacedName, requests corev1.ResourceList) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, had := b.entries[key]
	if !had || equality.Semantic.DeepEqual(old.requests, requests) {
		return nil
	}
	b.take(key)
	b.put(key, entry{old.contract, requests})
	return b.waitingFor(func(w Waiter) bool { return w.Contract == old.contract && w.No.Reason == reasonExceeded })
}

// Release forgets the pod and gives those that wait for room under its contract.
func (b *Book) Release(key types.NamespacedName) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, had := b.entries[key]
	if !had {
		return nil
	}
	b.take(key)
	return b.waitingFor(func(w Waiter) bool { return w.Contract == old.contract && w.No.Reason == reasonExceeded })
}

// Wait notes a refused pod, settle that it is one no more.
func (b *Book) Wait(key types.NamespacedName, w Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, waited := b.waiting[key]; !waited || was != w {
		b.waiting[key] = w
		b.refused()
	}
}

func (b *Book) Settle(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waited := b.waiting[key]; waited {
		delete(b.waiting, key)
		b.refused()
	}
}

// RefusedUnder gives the refused pods of the contracts, and those refused for want of any contract.
func (b *Book) RefusedUnder(contracts []string) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitingFor(func(w Waiter) bool { return w.Contract == "" || slices.Contains(contracts, w.Contract) })
}

// RefusedPods are those that were refused and do not run.
func (b *Book) RefusedPods() map[types.NamespacedName]Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.waiting)
	maps.DeleteFunc(all, func(_ types.NamespacedName, w Waiter) bool { return w.Runs })
	return all
}

func (b *Book) waitingFor(match func(Waiter) bool) []types.NamespacedName {
	var out []types.NamespacedName
	for key, w := range b.waiting {
		if match(w) {
			out = append(out, key)
		}
	}
	return out
}

func (b *Book) put(key types.NamespacedName, e entry) {
	b.entries[key] = e
	sum := b.sums[e.contract]
	if sum == nil {
		sum = corev1.ResourceList{}
		b.sums[e.contract] = sum
	}
	for name, q := range e.requests {
		s := sum[name]
		s.Add(q)
		sum[name] = s
	}
	b.mark(e.contract)
}

func (b *Book) take(key types.NamespacedName) {
	e := b.entries[key]
	delete(b.entries, key)
	sum := b.sums[e.contract]
	for name, q := range e.requests {
		s := sum[name]
		s.Sub(q)
		if s.IsZero() {
			delete(sum, name)
		} else {
			sum[name] = s
		}
	}
	if len(sum) == 0 {
		delete(b.sums, e.contract)
	}
	b.mark(e.contract)
}

// mark has the contract's use published.
func (b *Book) mark(contract string) {
	b.dirty[contract] = true
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *Book) MarkDirty(contract string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark(contract)
}

// takeDirty gives the contracts whose use changed since it was last called.
func (b *Book) takeDirty() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for contract := range b.dirty {
		out = append(out, contract)
	}
	clear(b.dirty)
	return out
}

// Used is the sum of the requests of the guests under the contract (its spec.id).
func (b *Book) Used(contract string) corev1.ResourceList {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sums[contract].DeepCopy()
}

// OnRefused has f called whenever other guests than before are refused: no object need change with that. f must not call back.
func (b *Book) OnRefused(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = f
}
