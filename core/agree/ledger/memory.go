package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/features"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Ledger is a client that remembers. What is written by it is in the next snapshot, and in the next Get; List and all other kinds are the
// client's own.
//
// A snapshot is made when it is asked for, of what is in the informers' stores then. Their events would be too late: they reach one handler
// sooner than another, so that a reconciler could be woken by a change that the ledger has not heard of, and nothing would wake it again.
type Ledger struct {
	client.Client
	now func() *Snapshot // nil: of the kinds

	mu                                   sync.Mutex
	peers, contracts, requests, policies *kind
}

// New remembers what is written by c until those informers have shown it.
func New(ctx context.Context, c client.Client, informers cache.Informers) (*Ledger, error) {
	if !features.FeatureGates().Enabled(features.AtomicFIFO) {
		return nil, errors.New("the environment turns client-go's AtomicFIFO off, without which nobody knows how far informers have read: take KUBE_FEATURE_AtomicFIFO away")
	}
	l := &Ledger{Client: c}
	for object, k := range map[client.Object]**kind{
		&v1alpha1.Peer{}: &l.peers, &v1alpha1.Contract{}: &l.contracts, &v1alpha1.PeeringRequest{}: &l.requests, &v1alpha1.SharingPolicy{}: &l.policies,
	} {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("follow %T: %w", object, err)
		}
		*k = newKind(informer.(toolscache.SharedIndexInformer).GetIndexer())
	}
	return l, nil
}

// Of is a ledger without informers: it has what now gives.
func Of(c client.Client, now func() *Snapshot) *Ledger { return &Ledger{Client: c, now: now} }

// Now is what was agreed.
func (l *Ledger) Now() *Snapshot {
	if l.now != nil {
		return l.now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Snapshot{Contracts: all[*v1alpha1.Contract](l.contracts), Requests: all[*v1alpha1.PeeringRequest](l.requests)}
	s.Peers = all[*v1alpha1.Peer](l.peers) // a peer is there before its contract is
	for _, policy := range all[*v1alpha1.SharingPolicy](l.policies) {
		s.Policies = append(s.Policies, *policy)
	}
	return s
}

func all[T client.Object](k *kind) (list []T) {
	for _, o := range k.objects() {
		list = append(list, o.(T))
	}
	return list
}

// of is nil for what is not remembered.
func (l *Ledger) of(o client.Object) *kind {
	switch o.(type) {
	case *v1alpha1.Peer:
		return l.peers
	case *v1alpha1.Contract:
		return l.contracts
	case *v1alpha1.PeeringRequest:
		return l.requests
	case *v1alpha1.SharingPolicy:
		return l.policies
	}
	return nil
}

func (l *Ledger) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	k := l.of(into)
	if k == nil {
		return l.Client.Get(ctx, key, into, opts...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := k.named(key.Name)
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: reflect.TypeOf(into).Elem().Name()}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

func (l *Ledger) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return l.wrote(o, l.Client.Create(ctx, o, opts...))
}

func (l *Ledger) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return l.wrote(o, l.Client.Update(ctx, o, opts...))
}

func (l *Ledger) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return l.wrote(o, l.Client.Patch(ctx, o, p, opts...))
}

func (l *Ledger) Status() client.SubResourceWriter { return status{l.Client.Status(), l} }

type status struct {
	client.SubResourceWriter
	l *Ledger
}

func (s status) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.l.wrote(o, s.SubResourceWriter.Update(ctx, o, opts...))
}

func (s status) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.l.wrote(o, s.SubResourceWriter.Patch(ctx, o, p, opts...))
}

// wrote takes in what the API server answered to a write.
func (l *Ledger) wrote(o client.Object, err error) error {
	if k := l.of(o); k != nil && err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		k.wrote(o.DeepCopyObject().(client.Object))
	}
	return err
}

func (l *Ledger) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	k := l.of(o)
	if k == nil {
		return l.Client.Delete(ctx, o, opts...)
	}
	l.mu.Lock()
	had := k.named(o.GetName())
	l.mu.Unlock()
	err := l.Client.Delete(ctx, o, opts...)
	if had != nil && client.IgnoreNotFound(err) == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		k.deleted[idOf(had)] = deletion{at: metav1.Now()}
	}
	return err
}

// kind is what is remembered of one kind beside what its informer stores. The store says up to which version it has read: what was written
// before that is in it, or was deleted since, and need not be remembered. See New for those that do not say so.
type kind struct {
	store   toolscache.Store
	written map[string]client.Object // by name
	deleted map[id]deletion
}

// id tells an object from the next of its name.
type id struct {
	name string
	uid  types.UID
}

func idOf(o client.Object) id { return id{o.GetName(), o.GetUID()} }

type deletion struct {
	at   metav1.Time
	done bool // its last finalizer was taken off
}

func newKind(store toolscache.Store) *kind {
	return &kind{store: store, written: map[string]client.Object{}, deleted: map[id]deletion{}}
}

// after reports whether a version is of later than another.
func after(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

func (k *kind) wrote(o client.Object) {
	if is := k.written[o.GetName()]; is != nil && !after(o.GetResourceVersion(), is.GetResourceVersion()) {
		return // the answers came in another order than the writes
	}
	if k.written[o.GetName()] = o; o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		k.deleted[idOf(o)] = deletion{done: true}
	}
}

func (k *kind) named(name string) client.Object {
	for _, o := range k.objects() {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

// objects are those there are now. What the store shows by itself is not remembered any longer.
func (k *kind) objects() []client.Object {
	read := k.store.LastStoreSyncResourceVersion() // before the list, which may have more than that
	maps.DeleteFunc(k.written, func(_ string, w client.Object) bool { return !after(w.GetResourceVersion(), read) })
	var there []client.Object
	for _, s := range k.store.List() {
		o := s.(client.Object)
		if w := k.written[o.GetName()]; w != nil && after(o.GetResourceVersion(), w.GetResourceVersion()) {
			delete(k.written, o.GetName())
		} else if w != nil {
			continue
		}
		there = append(there, o)
	}
	for _, w := range k.written {
		there = append(there, w)
	}
	if len(k.deleted) == 0 {
		return there
	}
	was, left := k.deleted, there[:0]
	k.deleted = map[id]deletion{}
	for _, o := range there {
		d, deleted := was[idOf(o)]
		ending := o.GetDeletionTimestamp() != nil
		if !deleted || ending && !d.done {
			left = append(left, o)
			continue
		}
		if k.deleted[idOf(o)] = d; !d.done && len(o.GetFinalizers()) > 0 {
			o = o.DeepCopyObject().(client.Object)
			o.SetDeletionTimestamp(&d.at)
			left = append(left, o)
		}
	}
	return left
}
