package reflection

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// abroad are the clients for the peer's API server.
type abroad struct {
	client client.Client
	meta   metadata.Interface
}

func newAbroad(cfg *rest.Config) (*abroad, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // the peer has its own limits
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	httpClient.Transport = bounded{httpClient.Transport}
	// The kinds are known: nothing has to be asked before the first call.
	mapper := meta.NewDefaultRESTMapper(nil)
	// An answer names its own kind, and any that is known here is decoded. So none is that has amounts in it: to parse
	// one may take hours (v1alpha1.PlainAmount).
	scheme := runtime.NewScheme()
	for _, k := range watchedAbroad {
		mapper.Add(k.gvk(), meta.RESTScopeNamespace)
		object, err := clientgoscheme.Scheme.New(k.gvk())
		if err != nil {
			return nil, err
		}
		scheme.AddKnownTypes(k.gvk().GroupVersion(), object)
		metav1.AddToGroupVersion(scheme, k.gvk().GroupVersion())
	}
	a := &abroad{}
	if a.client, err = client.New(cfg, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, err
	}
	a.meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), httpClient)
	return a, err
}

// maxAnswer bounds what the peer can have us read in one answer. Watches have no end, but client-go bounds each event.
const maxAnswer = 64 << 20

type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil && !r.URL.Query().Has("watch") {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// informer follows the metadata of what was made in the twin from here. An edit of the content shows by its version.
func (a *abroad) informer(k kind, twin string) cache.SharedIndexInformer {
	ours := labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}.String()
	objects := a.meta.Resource(k.gvr()).Namespace(twin)
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = ours
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = ours
			return objects.Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
}

// apply writes want whole, and takes out what others added to what it says. It gives the version written.
func (a *abroad) apply(ctx context.Context, want client.Object) (version string, err error) {
	got := want.DeepCopyObject().(client.Object)
	//nolint:staticcheck // generated apply configurations would say field by field what is already there as an object
	if err := a.client.Patch(ctx, got, client.Apply, client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return "", err
	}
	if takeOut(got, want) {
		if err := a.client.Update(ctx, got, client.FieldOwner(FieldOwner)); err != nil {
			return "", err
		}
	}
	return got.GetResourceVersion(), nil
}

// create is apply for what is not there yet: it costs the peer's API server a fraction. What others add later, apply takes out.
func (a *abroad) create(ctx context.Context, want client.Object) (version string, err error) {
	got := want.DeepCopyObject().(client.Object)
	err = a.client.Create(ctx, got, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return a.apply(ctx, want)
	}
	return got.GetResourceVersion(), err
}

// takeOut removes from got what an apply leaves in it although want does not name it, and says whether there was any.
func takeOut(got, want client.Object) (found bool) {
	switch got := got.(type) {
	case *corev1.ConfigMap:
		want := want.(*corev1.ConfigMap)
		found = !sameKeys(got.Data, want.Data) || !sameKeys(got.BinaryData, want.BinaryData) || got.Immutable != nil
		got.Data, got.BinaryData, got.Immutable = want.Data, want.BinaryData, nil
	case *corev1.Secret:
		want := want.(*corev1.Secret)
		found = !sameKeys(got.Data, want.Data) || got.Immutable != nil
		got.Data, got.Immutable = want.Data, nil
	case *corev1.Service:
		want := want.(*corev1.Service)
		found = len(got.Spec.Selector) > 0 || len(got.Spec.ExternalIPs) > 0 || len(got.Spec.Ports) != len(want.Spec.Ports) || got.Spec.Type != want.Spec.Type
		got.Spec.Selector, got.Spec.ExternalIPs, got.Spec.Ports, got.Spec.Type = nil, nil, want.Spec.Ports, want.Spec.Type
	}
	return found
}

func sameKeys[V any](a, b map[string]V) bool {
	return len(a) == len(b) && slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}

// delete takes one away, unless another has its name by now.
func (a *abroad) delete(ctx context.Context, k kind, have metav1.Object) error {
	err := a.meta.Resource(k.gvr()).Namespace(have.GetNamespace()).Delete(ctx, have.GetName(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// foreign says whether the name belongs to an object at the peer that was not made from here.
func (a *abroad) foreign(ctx context.Context, k kind, twin, name string) (bool, error) {
	o, err := a.meta.Resource(k.gvr()).Namespace(twin).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %s %s at the peer: %w", k, name, err)
	}
	return o.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy, nil
}

// reachable asks whether the rights in a new twin hold by now: a watch that is refused once sleeps too long.
func (a *abroad) reachable(ctx context.Context, twin string) error {
	_, err := a.meta.Resource(kindSecret.gvr()).Namespace(twin).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}
