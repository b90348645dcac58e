package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/guests"
)

// informersWithin bounds how long the first view waits until what it is made of was read.
const informersWithin = 15 * time.Second

// watchForViews sets up the sources of views: the manager's cache for Pods, OffloadedPods and Namespaces, and for the other kinds informers of
// their own, which start with the first view.
func (h *Host) watchForViews(mgr manager.Manager) error {
	for kind, o := range map[string]client.Object{viewPod: &corev1.Pod{}, viewOffloaded: guests.NewOffloaded(), remote.KindNamespace: &corev1.Namespace{}} {
		// Before the manager runs this gives an informer that begins with it; else it would wait for it.
		informer, err := mgr.GetCache().GetInformer(context.Background(), o, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("view of %ss: %w", kind, err)
		}
		changed := func(o any, gone bool) { h.views.changed(kind, o, gone) }
		switch kind {
		case remote.KindNamespace:
			changed = h.namespaceChanged
		case viewPod:
			h.views.lists[kind] = ofInformer(informer, func(o any) bool {
				pod, ok := o.(*corev1.Pod)
				return ok && pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
			})
		default:
			h.views.lists[kind] = ofInformer(informer, func(any) bool { return true })
		}
		if _, err := informer.AddEventHandler(handlerOf(changed)); err != nil {
			return fmt.Errorf("view of %ss: %w", kind, err)
		}
	}
	nodes, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Node{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("views: %w", err)
	}
	all := ofInformer(nodes, func(any) bool { return true })
	if _, err := nodes.AddEventHandler(handlerOf(func(any, bool) { h.views.nodesChanged(all()) })); err != nil {
		return fmt.Errorf("views: %w", err)
	}
	full, err := kubernetes.NewForConfigAndClient(binary(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("views: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(binary(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("views: %w", err)
	}
	own := map[string]cache.SharedIndexInformer{viewEvent: h.events(full, "involvedObject.kind=Pod"), remote.KindOtherEvent: h.events(full, otherEvents)}
	for _, k := range kinds.Reflected() {
		own[k.Name] = metadataOf(meta, k.Resource)
	}
	for kind, informer := range own {
		h.views.lists[kind] = informer.GetStore().List
		changed := func(o any, gone bool) { h.views.changed(kind, o, gone) }
		if kind == remote.KindOtherEvent {
			h.views.lists[kind] = func() []any {
				return slices.DeleteFunc(informer.GetStore().List(), func(o any) bool { return !ofTravelled(o) })
			}
			changed = func(o any, gone bool) {
				if gone || ofTravelled(o) {
					h.views.changed(kind, o, gone)
				}
			}
		}
		if _, err := informer.AddEventHandler(handlerOf(changed)); err != nil {
			return fmt.Errorf("view of %ss: %w", kind, err)
		}
	}
	h.Reconciler.PodEvents = own[viewEvent].GetStore().List
	begin := &onDemand{informers: own, ready: make(chan context.Context, 1)}
	h.views.begin = begin.do
	return mgr.Add(manager.RunnableFunc(begin.run))
}

// binary is the configuration with protobuf: what stays on this machine need not be JSON.
func binary(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg
}

func handlerOf(changed func(o any, gone bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(o, false) },
		UpdateFunc: func(_, o any) { changed(o, false) },
		DeleteFunc: func(o any) { changed(o, true) },
	}
}

// ofInformer is what an informer of the manager holds, as far as it is wanted.
func ofInformer(informer ctrlcache.Informer, wanted func(any) bool) func() []any {
	stored := informer.(cache.SharedInformer) // of a cache for all namespaces
	return func() []any {
		return slices.DeleteFunc(stored.GetStore().List(), func(o any) bool { return !wanted(o) })
	}
}

// namespaceChanged keeps contracts and views in step with a namespace.
func (h *Host) namespaceChanged(o any, gone bool) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return
	}
	tw, known, is := h.Contracts.NamespaceChanged(ns, gone)
	if known || is {
		h.views.twinChanged(tw, !is)
		if !is {
			h.Tenants.Gone(tw.Name)
		}
		h.Allocations.MarkDirty(tw.Contract)
	}
}

// metadataOf watches the metadata of objects with the label of Kith's consumers. The label is no proof: the namespace decides.
func metadataOf(meta metadata.Interface, resource schema.GroupVersionResource) cache.SharedIndexInformer {
	informer := metadatainformer.NewFilteredMetadataInformer(meta, resource, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedBy
	}).Informer()
	_ = informer.SetTransform(ctrlcache.TransformStripManagedFields()) // fails once it runs
	return informer
}

// otherEvents selects what may be about an object of kinds.EventsOf: one watch, without the kinds that have most events in a cluster. What concerns an
// OffloadedPod its status says.
const otherEvents = "involvedObject.kind!=Pod,involvedObject.kind!=OffloadedPod,involvedObject.kind!=Node,involvedObject.kind!=ReplicaSet,involvedObject.kind!=Job"

// ofTravelled reports whether an Event is about something that a consumer's pods brought along.
func ofTravelled(o any) bool {
	event, ok := o.(*corev1.Event)
	return ok && slices.Contains(kinds.EventsOf, event.InvolvedObject.Kind)
}

// events watches Events. Of those that no consumer is told of only the names are kept.
func (h *Host) events(c kubernetes.Interface, which string) cache.SharedIndexInformer {
	informer := coreinformers.NewFilteredEventInformer(c, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = which
	})
	_ = informer.SetTransform(func(o any) (any, error) {
		if event, ok := o.(*corev1.Event); ok {
			event.ManagedFields = nil
			if h.Contracts.TermsIn(event.Namespace) == nil || which == otherEvents && !ofTravelled(event) {
				return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: event.Namespace, Name: event.Name, UID: event.UID, ResourceVersion: event.ResourceVersion}}, nil
			}
		}
		return o, nil
	})
	return informer
}

// onDemand runs informers from the first time that they are needed to the end of the manager.
type onDemand struct {
	informers map[string]cache.SharedIndexInformer
	ready     chan context.Context // holds the manager's, once it runs
	once      sync.Once
}

func (d *onDemand) run(ctx context.Context) error {
	d.ready <- ctx
	<-ctx.Done()
	return nil
}

// do starts the informers, and waits until they have synced.
func (d *onDemand) do() error {
	var life context.Context
	select {
	case life = <-d.ready:
		d.ready <- life
	case <-time.After(informersWithin):
		return errors.New("the manager does not run")
	}
	d.once.Do(func() {
		for _, informer := range d.informers {
			go informer.RunWithContext(life)
		}
	})
	ctx, cancel := context.WithTimeout(life, informersWithin)
	defer cancel()
	var synced []cache.DoneChecker
	for _, informer := range d.informers {
		synced = append(synced, informer.HasSyncedChecker())
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return fmt.Errorf("what the twins hold could not be read within %s", informersWithin)
	}
	return nil
}
