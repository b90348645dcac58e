package clusterset

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	metadataclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	mcsclient "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned/typed/apis/v1beta1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/definition"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/queue"
)

// Config is what a Set needs; all must be set.
type Config struct {
	Self   string // compact ID of this cluster
	Ledger *ledger.Ledger
	Kube   kubernetes.Interface
	MCS    mcsclient.MulticlusterV1beta1Interface
	Log    *slog.Logger
}

// Set is what this cluster exports and imports. Make it with NewSet.
type Set struct {
	cfg     Config
	ctx     context.Context // of what is watched
	exports cache.SharedIndexInformer
	definer client.Client // which reads past caches
	begun   atomic.Bool   // the cluster has the kinds, and ServiceExports are known
	inbox   queue.Inbox

	changed notify.Broadcast // what this cluster exports, or who may have it, may be otherwise

	mu     sync.Mutex
	places map[string]*place
	peers  map[string]*Peer                           // by compact ID
	told   map[types.NamespacedName]map[string]Export // what peers export, by cluster
	owns   map[types.NamespacedName]*Export           // what this cluster exports
	unread map[types.NamespacedName]bool              // what it exported at the start, and is not in owns yet
}

// NewSet makes a Set that works while mgr runs, as soon as the cluster has the kinds of Multi-Cluster Services: Kith's own engine has them, in other
// clusters they are for somebody to install.
func NewSet(ctx context.Context, mgr manager.Manager, agreed *ledger.Ledger, self string, log *slog.Logger) (*Set, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	kube, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for services: %w", err)
	}
	imports, err := mcsclient.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for multi-cluster services: %w", err)
	}
	kinds, err := metadataclient.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for definitions of kinds: %w", err)
	}
	direct, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("client for definitions of kinds: %w", err)
	}
	s := newSet(ctx, Config{Self: self, Ledger: agreed, Kube: kube, MCS: imports, Log: log})
	s.definer = direct
	review := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		s.Review()
		return nil
	})
	noUpdates := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	err = ctrl.NewControllerManagedBy(mgr).Named("multi-cluster-services").
		WatchesRawSource(&s.inbox).
		Watches(&v1alpha1.SharingPolicy{}, review).
		Watches(&v1alpha1.Peer{}, review, builder.WithPredicates(predicate.Funcs{UpdateFunc: peerChanged})).
		Watches(&v1alpha1.Contract{}, review, noUpdates).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(s.inNamespace), noUpdates).
		WithOptions(controller.Options{NewQueue: queue.New, MaxConcurrentReconciles: 4}).
		Complete(s)
	if err != nil {
		return nil, fmt.Errorf("multi-cluster services: %w", err)
	}
	return s, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return s.begin(ctx, kinds) }))
}

func newSet(ctx context.Context, cfg Config) *Set {
	s := &Set{
		cfg: cfg, ctx: ctx, places: map[string]*place{}, peers: map[string]*Peer{},
		told: map[types.NamespacedName]map[string]Export{}, owns: map[types.NamespacedName]*Export{}, unread: map[types.NamespacedName]bool{},
	}
	s.exports = follow(cfg.MCS.ServiceExports(metav1.NamespaceAll), &mcs.ServiceExport{}, "", s.named, nil)
	return s
}

// peerChanged: of Peers, whom policies mean by it, and the addresses that were agreed on.
func peerChanged(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	ranges := func(p *v1alpha1.Peer) (here, there string) {
		if n := p.Status.Network; n != nil {
			return n.GuestsHere, n.GuestsThere
		}
		return "", ""
	}
	hereWas, thereWas := ranges(was)
	here, there := ranges(is)
	return !maps.Equal(was.Labels, is.Labels) || sharing.Accepted(was) != sharing.Accepted(is) || here != hereWas || there != thereWas
}

// begin waits until the cluster has the kinds, and follows what is exported.
func (s *Set) begin(ctx context.Context, kinds metadataclient.Interface) error {
	go s.define(ctx)
	if !definition.Await(ctx, kinds, mcs.ServiceExportFullName, nil) {
		return nil
	}
	go s.exports.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), s.exports.HasSynced) {
		return nil
	}
	s.mu.Lock()
	for _, o := range s.exports.GetStore().List() {
		e := o.(*mcs.ServiceExport)
		s.unread[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = true
	}
	s.mu.Unlock()
	s.begun.Store(true)
	// What was imported before this process started may be exported by nobody now.
	_ = wait.PollUntilContextCancel(ctx, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := s.cfg.MCS.ServiceImports(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: ours})
		if err != nil {
			s.cfg.Log.Warn("what was imported before is not known yet", "err", err)
			return false, nil
		}
		for i := range list.Items {
			s.named(&list.Items[i])
		}
		return true, nil
	})
	s.Review()
	<-ctx.Done()
	return nil
}

// ours are the objects that Kith made.
const ours = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedBy

// Review has everything looked at again: a policy, a peer or a contract is otherwise.
func (s *Set) Review() {
	s.mu.Lock()
	peers := slices.Collect(maps.Values(s.peers))
	keys := slices.AppendSeq(slices.Collect(maps.Keys(s.told)), maps.Keys(s.owns))
	places := slices.Collect(maps.Values(s.places))
	s.mu.Unlock()
	for _, p := range places {
		for _, o := range p.imports.GetStore().List() {
			s.named(o)
		}
	}
	for _, p := range peers {
		p.review()
	}
	if s.begun.Load() {
		for _, o := range s.exports.GetStore().List() {
			s.named(o)
		}
	}
	s.inbox.Add(keys...)
	s.changed.Notify()
}

// inNamespace are the services that peers export in a namespace that was made here, or is gone.
func (s *Set) inNamespace(_ context.Context, o client.Object) (list []reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.told {
		if key.Namespace == o.GetName() {
			list = append(list, reconcile.Request{NamespacedName: key})
		}
	}
	return list
}

// Changed gives a channel that is closed when what this cluster exports, or who may have it, may be otherwise.
func (s *Set) Changed() <-chan struct{} { return s.changed.Wait() }

// Exports are what this cluster exports, with the addresses that endpoints have here; they are not to be changed. False: all of it is not known yet.
func (s *Set) Exports() (list []*Export, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.owns)), s.begun.Load() && len(s.unread) == 0
}

// put has a peer export a service, or no more.
func (s *Set) put(cluster string, name Name, e *Export) {
	key := types.NamespacedName{Namespace: name.Namespace, Name: name.Name}
	s.mu.Lock()
	of := s.told[key]
	switch {
	case e != nil:
		if of == nil {
			of = map[string]Export{}
			s.told[key] = of
		}
		of[cluster] = *e
	default:
		if delete(of, cluster); len(of) == 0 {
			delete(s.told, key)
		}
	}
	s.mu.Unlock()
	s.inbox.Add(key)
}

// of are the services that a cluster exports, as far as it is known.
func (s *Set) of(cluster string) (names []Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.told {
		if _, there := of[cluster]; there {
			names = append(names, Name{key.Namespace, key.Name})
		}
	}
	return names
}

// again has what a cluster exports reconciled, and what it exported when that is not known any more.
func (s *Set) again(cluster string) {
	for _, name := range s.of(cluster) {
		s.inbox.Add(types.NamespacedName{Namespace: name.Namespace, Name: name.Name})
	}
	s.mu.Lock()
	places := slices.Collect(maps.Values(s.places))
	s.mu.Unlock()
	for _, p := range places {
		for _, o := range p.slices.GetStore().List() {
			if o.(*discoveryv1.EndpointSlice).Labels[mcs.LabelSourceCluster] == cluster {
				s.sliceChanged(o)
			}
		}
	}
}

// known are the exports of a service by peers; not those of one that cannot be reached: these are not ready.
func (s *Set) known(key types.NamespacedName) (list []from) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cluster, e := range s.told[key] {
		if p := s.peers[cluster]; p == nil || p.away.Load() {
			e = unready(e)
		}
		list = append(list, from{cluster, e})
	}
	return list
}

// unready is an export no endpoint of which is ready.
func unready(e Export) Export {
	all := slices.Clone(e.Slices)
	for i := range all {
		all[i].Endpoints = slices.Clone(all[i].Endpoints)
		for k := range all[i].Endpoints {
			all[i].Endpoints[k].Ready, all[i].Endpoints[k].Serving = false, false
		}
	}
	e.Slices = all
	return e
}

// held reports whether it is not known what a cluster exports now: it was not heard since this process started, and there is a contract.
func (s *Set) held(cluster string) bool {
	s.mu.Lock()
	p := s.peers[cluster]
	s.mu.Unlock()
	if p != nil {
		return !p.synced.Load()
	}
	now := s.cfg.Ledger.Now()
	for _, peer := range now.Peers {
		if compact(peer.Spec.ID) == cluster && len(now.With(peer.Name, v1alpha1.RoleConsumer)) > 0 {
			return len(s.patterns(peer)) > 0
		}
	}
	return false
}

// patterns of namespaces in which this cluster has services in common with a peer.
func (s *Set) patterns(peer *v1alpha1.Peer) []string {
	return sharing.Services(sharing.Select(s.cfg.Ledger.Now().Policies, peer))
}

// Reconcile implements reconcile.Reconciler: it brings what is here of one name in step with who exports it.
func (s *Set) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if !s.begun.Load() {
		return reconcile.Result{}, nil
	}
	within, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	key := r.NamespacedName
	here, err := s.place(within, key.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	export := get[mcs.ServiceExport](s.exports, key.Namespace, key.Name)
	var own *Export
	var bad *invalid
	if export != nil && export.DeletionTimestamp == nil {
		endpoints, _ := here.slices.GetIndexer().ByIndex(byService, key.Name)
		own, bad = exportOf(export, get[corev1.Service](here.services, key.Namespace, key.Name), typed[discoveryv1.EndpointSlice](endpoints))
	}
	s.setOwn(key, own)
	all := s.known(key)
	if own != nil {
		all = append(all, from{s.cfg.Self, *own})
	}
	var m merged
	if len(all) > 0 {
		m = merge(all)
	}
	err = s.write(within, here, key, all, &m)
	if said := s.say(within, export, bad, &m, err); err == nil {
		err = said
	}
	if len(all) == 0 && err == nil {
		s.leave(key.Namespace)
	}
	return reconcile.Result{}, err
}

func typed[T any](list []any) (out []*T) {
	for _, o := range list {
		out = append(out, o.(*T))
	}
	return out
}

// setOwn notes what this cluster exports.
func (s *Set) setOwn(key types.NamespacedName, own *Export) {
	s.mu.Lock()
	was := s.owns[key]
	if own == nil {
		delete(s.owns, key)
	} else {
		s.owns[key] = own
	}
	read := s.unread[key]
	delete(s.unread, key)
	s.mu.Unlock()
	if read || !reflect.DeepEqual(was, own) {
		s.changed.Notify()
	}
}
