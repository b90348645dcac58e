package grants

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
)

// Allocations sums up what the guests of each contract request. A pod is counted before it is created, until it is deleted or has
// ended for good, so the sum never lags behind the API server, whatever the order of requests. It is kept in memory, one addition per
// pod, and rebuilt from the Pods when the daemon starts.
type Allocations struct {
	mu        sync.Mutex
	pods      map[types.NamespacedName]allocation
	sums      map[string]corev1.ResourceList // by contract, and part of one (allocation.sums)
	storage   map[string]corev1.ResourceList // of claims, by contract
	refused   map[types.NamespacedName]RefusedPod
	onRefused func()       // called when refused has changed, with mu held
	changed   queues.Inbox // of contracts, by ID
}

type allocation struct {
	contract string
	part     string // the ID of the cluster that is to run it; "" when that is not said
	requests corev1.ResourceList
}

// sums are the keys under which it is summed up.
func (e allocation) sums() []string {
	if e.part == "" {
		return []string{e.contract}
	}
	return []string{e.contract, e.contract + "/" + e.part} // no ID of a contract has a slash
}

// RefusedPod is a refused pod, or one that runs and was refused other amounts.
type RefusedPod struct {
	Contract string
	No       Refusal
	Runs     bool
}

func NewAllocations() *Allocations {
	return &Allocations{
		pods:      map[types.NamespacedName]allocation{},
		sums:      map[string]corev1.ResourceList{},
		storage:   map[string]corev1.ResourceList{},
		refused:   map[types.NamespacedName]RefusedPod{},
		onRefused: func() {},
	}
}

// Admit enters the pod unless the contract's sum would exceed limit. A pod that is entered already with the
// same amounts keeps its place, even if the limit was lowered since. What limit does not name is not offered.
func (b *Allocations) Admit(key types.NamespacedName, contract string, requests, limit corev1.ResourceList) *Refusal {
	return b.AdmitTo(key, contract, nil, requests, limit)
}

// AdmitTo is Admit for a pod that is to run at one of the places among which the contract is divided; nil: where there is room.
func (b *Allocations) AdmitTo(key types.NamespacedName, contract string, part *Part, requests, limit corev1.ResourceList) *Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := allocation{contract: contract, requests: requests}
	if part != nil {
		next.part = part.ID
	}
	old := b.pods[key]
	if old.contract == contract && old.part == next.part && equality.Semantic.DeepEqual(old.requests, requests) {
		return nil
	}
	for i, sum := range next.sums() {
		most, what := limit, "contract "+contract
		if i > 0 {
			most, what = part.Limit, "what contract "+contract+" has at "+cmp.Or(part.Peer, "this provider itself")
		}
		if over := b.over(sum, old, requests, most); over != "" {
			return Refused(reasonExceeded, "%s would be exceeded: %s", what, over)
		}
	}
	b.set(key, next)
	return nil
}

// over says by what a sum would be more than limit; old is what the pod holds already.
func (b *Allocations) over(sum string, old allocation, requests, limit corev1.ResourceList) string {
	var over []string
	for name, want := range requests {
		allowed, held := limit[name], b.sums[sum][name].DeepCopy()
		if slices.Contains(old.sums(), sum) {
			held.Sub(old.requests[name])
		}
		sum := held.DeepCopy()
		sum.Add(want)
		if sum.Cmp(allowed) > 0 {
			over = append(over, fmt.Sprintf("%s: the pod asks for %s, %s of %s is in use", name, want.String(), held.String(), allowed.String()))
		}
	}
	slices.Sort(over)
	return strings.Join(over, "; ")
}

// Exceeds reports whether the guests under the contract (its spec.id) hold more than limit together, which was lowered then.
func (b *Allocations) Exceeds(contract string, limit corev1.ResourceList) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, sum := range b.sums[contract] {
		if allowed := limit[name]; sum.Cmp(allowed) > 0 {
			return true
		}
	}
	return false
}

// Enter counts a pod that exists, within the limit or not. Of one that is entered already the greater amounts count:
// what was admitted may be another pod of that name than the one that is there. part is the ID of the cluster that is to run it; "" when that is not said.
func (b *Allocations) Enter(key types.NamespacedName, contract, part string, requests corev1.ResourceList) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.pods[key]; ok && old.contract == contract {
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
		requests, part = most, old.part
	}
	b.set(key, allocation{contract, part, requests})
}

// Correct changes what a pod that was admitted counts for, whether within the limit or not. It returns the refused pods of the same
// contract that may fit now.
func (b *Allocations) Correct(key types.NamespacedName, requests corev1.ResourceList) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, had := b.pods[key]
	if !had || equality.Semantic.DeepEqual(old.requests, requests) {
		return nil
	}
	b.set(key, allocation{old.contract, old.part, requests})
	return b.refusedForRoom(old.contract)
}

// Release forgets the pod and gives those that wait for room under its contract.
func (b *Allocations) Release(key types.NamespacedName) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, had := b.pods[key]
	if !had {
		return nil
	}
	b.set(key, allocation{})
	return b.refusedForRoom(old.contract)
}

func (b *Allocations) refusedForRoom(contract string) []types.NamespacedName {
	return b.refusedWhere(func(w RefusedPod) bool { return w.Contract == contract && w.No.Reason == reasonExceeded })
}

// NoteRefused records a refused pod; ForgetRefused removes it.
func (b *Allocations) NoteRefused(key types.NamespacedName, w RefusedPod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, waited := b.refused[key]; !waited || was != w {
		b.refused[key] = w
		b.onRefused()
	}
}

func (b *Allocations) ForgetRefused(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waited := b.refused[key]; waited {
		delete(b.refused, key)
		b.onRefused()
	}
}

// Under gives the pods of the contract, also refused ones, and those refused for want of any contract.
func (b *Allocations) Under(contract string) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.refusedWhere(func(w RefusedPod) bool { return w.Contract == "" || w.Contract == contract })
	for key, has := range b.pods {
		if has.contract == contract {
			all = append(all, key)
		}
	}
	return all
}

// RefusedPods are those that were refused and do not run.
func (b *Allocations) RefusedPods() map[types.NamespacedName]RefusedPod {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.refused)
	maps.DeleteFunc(all, func(_ types.NamespacedName, w RefusedPod) bool { return w.Runs })
	return all
}

func (b *Allocations) refusedWhere(match func(RefusedPod) bool) []types.NamespacedName {
	var out []types.NamespacedName
	for key, w := range b.refused {
		if match(w) {
			out = append(out, key)
		}
	}
	return out
}

// set puts what the pod holds in the place of what it held; the zero value is nothing.
func (b *Allocations) set(key types.NamespacedName, next allocation) {
	old, had := b.pods[key]
	if had {
		b.sum(old, (*resource.Quantity).Sub)
	}
	delete(b.pods, key)
	if next.contract != "" {
		b.pods[key] = next
		b.sum(next, (*resource.Quantity).Add)
	}
}

// sum adds what a pod holds to its contract's sum, or subtracts it.
func (b *Allocations) sum(e allocation, change func(*resource.Quantity, resource.Quantity)) {
	for _, of := range e.sums() {
		sum := b.sums[of]
		if sum == nil {
			sum = corev1.ResourceList{}
			b.sums[of] = sum
		}
		for name, q := range e.requests {
			s := sum[name]
			change(&s, q)
			sum[name] = s
		}
		maps.DeleteFunc(sum, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
		if len(sum) == 0 {
			delete(b.sums, of)
		}
	}
	b.MarkDirty(e.contract)
}

// MarkDirty queues the contract (its spec.id) for its use to be written into its status.
func (b *Allocations) MarkDirty(contract string) { b.changed.Add(types.NamespacedName{Name: contract}) }

// SetStorage notes what the claims under the contract (its spec.id) ask for together, by the resource that their class takes of.
func (b *Allocations) SetStorage(contract string, sums corev1.ResourceList) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums = maps.Clone(sums)
	maps.DeleteFunc(sums, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	if equality.Semantic.DeepEqual(b.storage[contract], sums) {
		return
	}
	b.storage[contract] = sums
	if len(sums) == 0 {
		delete(b.storage, contract)
	}
	b.MarkDirty(contract)
}

// Used is the sum of the requests of the guests under the contract (its spec.id), and of its claims.
func (b *Allocations) Used(contract string) corev1.ResourceList {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := b.sums[contract].DeepCopy()
	for name, sum := range b.storage[contract] {
		if used == nil {
			used = corev1.ResourceList{}
		}
		used[name] = sum.DeepCopy()
	}
	return used
}

// OnRefused calls f whenever the set of refused guests changes; no object of the API need change with it. f is called under the lock
// and must not call Allocations.
func (b *Allocations) OnRefused(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onRefused = f
}

// publishEvery is the least time between two writes of a contract's use into its status. Since that names each namespace, a contract with more
// than publishAtOne of them is written more seldom: publishEvery for every publishAtOne namespaces.
const (
	publishEvery = time.Second
	publishAtOne = 50
)

// WatchUse keeps status.used and status.namespaces of the contracts up to date while mgr runs.
func (c *Contracts) WatchUse(mgr manager.Manager, allocations *Allocations) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-use").WatchesRawSource(&allocations.changed).
		WithOptions(controller.Options{
			NewQueue:    queues.New,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](publishEvery, 30*time.Second),
		}).Complete(c.publisher(allocations))
}

func (c *Contracts) publisher(allocations *Allocations) reconcile.Func {
	written := map[string]time.Time{} // by contract, of the one worker
	return func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
		pause := max(publishEvery, publishEvery*time.Duration(len(c.TwinsOf(r.Name)))/publishAtOne)
		if wait := pause - time.Since(written[r.Name]); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		maps.DeleteFunc(written, func(id string, _ time.Time) bool { return c.Of(id) == nil })
		written[r.Name] = time.Now()
		return ctrl.Result{}, c.publishOne(ctx, allocations, r.Name)
	}
}

// publishOne patches the two fields only: the rest of a contract's status is not hosting's.
func (c *Contracts) publishOne(ctx context.Context, allocations *Allocations, id string) error {
	t := c.Of(id)
	if t == nil {
		return nil
	}
	var old v1alpha1.Contract
	if err := c.agreed.Get(ctx, types.NamespacedName{Name: t.Object}, &old); err != nil {
		return client.IgnoreNotFound(err)
	}
	next := old.DeepCopy()
	next.Status.Used = allocations.Used(id)
	next.Status.Namespaces = nil
	for _, tw := range c.TwinsOf(id) {
		next.Status.Namespaces = append(next.Status.Namespaces, v1alpha1.TwinNamespace{Home: tw.Home, Abroad: tw.Name})
	}
	patch := client.MergeFrom(&old)
	if data, err := patch.Data(next); err != nil || string(data) == "{}" {
		return err
	}
	if err := c.agreed.Status().Patch(ctx, next, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("contract %s: %w", old.Name, err)
	}
	return nil
}
