package clusterset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// place is a namespace in which something is exported or imported: what is there is known as long as that is so. Most namespaces of most clusters
// are none.
type place struct {
	services, slices, imports cache.SharedIndexInformer
	stop                      context.CancelFunc
}

// lister is a client of one kind in a namespace.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow makes an informer of what a client lists. Managed fields are dropped.
func follow[L runtime.Object](c lister[L], of runtime.Object, selector string, changed func(object any), by cache.Indexers) cache.SharedIndexInformer {
	list := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return c.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return c.Watch(ctx, o)
		},
	}
	informer := cache.NewSharedIndexInformer(list, of, 0, by)
	_ = informer.SetTransform(func(o any) (any, error) { // which fails of one that runs
		if object, err := meta.Accessor(o); err == nil {
			object.SetManagedFields(nil)
		}
		return o, nil
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed})
	return informer
}

// The index of slices by the service whose endpoints they are, and by the import.
const (
	byService = "service"
	byImport  = "import"
)

func labelled(label string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		if name := o.(*discoveryv1.EndpointSlice).Labels[label]; name != "" {
			return []string{name}, nil
		}
		return nil, nil
	}
}

// place gives the one of a namespace, which is known when this returns without an error.
func (s *Set) place(ctx context.Context, namespace string) (*place, error) {
	s.mu.Lock()
	p := s.places[namespace]
	if p == nil {
		p = &place{}
		p.services = follow(s.cfg.Kube.CoreV1().Services(namespace), &corev1.Service{}, "", func(o any) { s.serviceChanged(o) }, nil)
		p.slices = follow(s.cfg.Kube.DiscoveryV1().EndpointSlices(namespace), &discoveryv1.EndpointSlice{}, "", func(o any) { s.sliceChanged(o) },
			cache.Indexers{byService: labelled(discoveryv1.LabelServiceName), byImport: labelled(mcs.LabelServiceName)})
		p.imports = follow(s.cfg.MCS.ServiceImports(namespace), &mcs.ServiceImport{}, "", func(o any) { s.named(o) }, nil)
		var running context.Context
		running, p.stop = context.WithCancel(s.ctx)
		for _, i := range []cache.SharedIndexInformer{p.services, p.slices, p.imports} {
			go i.RunWithContext(running)
		}
		s.places[namespace] = p
	}
	s.mu.Unlock()
	if !cache.WaitForCacheSync(ctx.Done(), p.services.HasSynced, p.slices.HasSynced, p.imports.HasSynced) {
		return nil, fmt.Errorf("services in namespace %s are not known yet: %w", namespace, context.Cause(ctx))
	}
	return p, nil
}

// leave forgets a namespace in which nothing is exported or imported any more.
func (s *Set) leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[namespace]
	if p == nil || len(p.imports.GetStore().ListKeys()) > 0 {
		return
	}
	for key := range s.owns {
		if key.Namespace == namespace {
			return
		}
	}
	for key := range s.told {
		if key.Namespace == namespace {
			return
		}
	}
	for _, o := range s.exports.GetStore().List() {
		if o.(*mcs.ServiceExport).Namespace == namespace {
			return
		}
	}
	p.stop()
	delete(s.places, namespace)
}

// named has what has the object's name reconciled.
func (s *Set) named(o any) {
	if object := accessor(o); object != nil {
		s.inbox.Add(types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
	}
}

func (s *Set) serviceChanged(o any) {
	object := accessor(o)
	if object == nil {
		return
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == mcs.ServiceImportKindName {
		s.inbox.Add(types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name})
		return
	}
	s.inbox.Add(types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
}

func (s *Set) sliceChanged(o any) {
	object := accessor(o)
	if object == nil {
		return
	}
	name := object.GetLabels()[mcs.LabelServiceName]
	if name == "" {
		name = object.GetLabels()[discoveryv1.LabelServiceName]
	}
	if name != "" {
		s.inbox.Add(types.NamespacedName{Namespace: object.GetNamespace(), Name: name})
	}
}

func accessor(o any) metav1.Object {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	object, err := meta.Accessor(o)
	if err != nil {
		return nil
	}
	return object
}

// get finds an object of an informer; nil when there is none.
func get[T any](informer cache.SharedIndexInformer, namespace, name string) *T {
	o, exists, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return o.(*T)
}
