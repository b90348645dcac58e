// Package definition waits for a cluster to know a kind, by the CustomResourceDefinition of that. Others define such kinds, at any time, or never; until
// then nothing is asked of the API server but to be told. It must never define a kind itself.
package definition

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// Resource is that of definitions.
var Resource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Await waits until there is a definition of that name that wanted accepts; nil accepts each. False: ctx ended.
func Await(ctx context.Context, kinds metadata.Interface, name string, wanted func(metav1.Object) bool) bool {
	definitions := kinds.Resource(Resource)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	there := make(chan struct{}, 1)
	look := func(o any) {
		if is, ok := o.(metav1.Object); ok && (wanted == nil || wanted(is)) {
			select {
			case there <- struct{}{}:
			default:
			}
		}
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return definitions.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return definitions.Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, 0, nil)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	go informer.RunWithContext(watched)
	select {
	case <-there:
		return true
	case <-ctx.Done():
		return false
	}
}
