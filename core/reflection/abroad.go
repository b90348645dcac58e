package reflection

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/remote"
	"kith.dev/core/wire/codec"
)

// abroad is the client for the peer's API server.
type abroad struct {
	groups map[schema.GroupVersion]rest.Interface
}

func newAbroad(api *remote.API) (*abroad, error) {
	// An answer names its own kind, so none is known but those that are written, and metadata. None has amounts in it.
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	for _, k := range kindsAbroad {
		object, err := clientgoscheme.Scheme.New(k.gvk())
		if err != nil {
			return nil, err
		}
		scheme.AddKnownTypes(k.gvk().GroupVersion(), object)
		metav1.AddToGroupVersion(scheme, k.gvk().GroupVersion())
	}
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	a, codecs := &abroad{groups: map[schema.GroupVersion]rest.Interface{}}, codec.New(scheme)
	for _, k := range kindsAbroad {
		var err error
		if a.groups[k.gvk().GroupVersion()], err = api.Group(k.gvk().GroupVersion(), codecs); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *abroad) of(k kind) rest.Interface { return a.groups[k.gvk().GroupVersion()] }

// metadataOfOne is the form in which the API server gives metadata alone: KEP-2334 and its API conventions.
const metadataOfOne = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// apply writes want whole, and takes out what others added to what it says. It gives the version written.
func (a *abroad) apply(ctx context.Context, want client.Object) (version string, err error) {
	k := kindOf(want)
	body, err := json.Marshal(want)
	if err != nil {
		return "", err
	}
	got := want.DeepCopyObject().(client.Object)
	force := metav1.PatchOptions{FieldManager: FieldOwner, Force: new(true)}
	err = a.of(k).Patch(types.ApplyPatchType).Namespace(want.GetNamespace()).Resource(k.gvr().Resource).Name(want.GetName()).
		VersionedParams(&force, metav1.ParameterCodec).Body(body).Do(ctx).Into(got)
	if err != nil {
		return "", err
	}
	if takeOut(got, want) {
		got.SetManagedFields(nil) // as they are; the peer takes none
		err := a.of(k).Put().Namespace(want.GetNamespace()).Resource(k.gvr().Resource).Name(want.GetName()).
			VersionedParams(&metav1.UpdateOptions{FieldManager: FieldOwner}, metav1.ParameterCodec).Body(typed(k, got)).Do(ctx).Into(got)
		if err != nil {
			return "", err
		}
	}
	return got.GetResourceVersion(), nil
}

// create is apply for what is not there yet: it costs the peer's API server a fraction. What others add later, apply takes out.
func (a *abroad) create(ctx context.Context, want client.Object) (version string, err error) {
	k, got := kindOf(want), want.DeepCopyObject().(client.Object)
	err = a.of(k).Post().Namespace(want.GetNamespace()).Resource(k.gvr().Resource).
		VersionedParams(&metav1.CreateOptions{FieldManager: FieldOwner}, metav1.ParameterCodec).Body(want).Do(ctx).Into(got)
	if apierrors.IsAlreadyExists(err) {
		return a.apply(ctx, want)
	}
	return got.GetResourceVersion(), err
}

// kindOf is the kind that typed has set.
func kindOf(o client.Object) kind { return kind(o.GetObjectKind().GroupVersionKind().Kind) }

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
	err := a.of(k).Delete().Namespace(have.GetNamespace()).Resource(k.gvr().Resource).Name(have.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// foreign says whether the name belongs to an object at the peer that was not made from here.
func (a *abroad) foreign(ctx context.Context, k kind, twin, name string) (bool, error) {
	o := &metav1.PartialObjectMetadata{}
	err := a.of(k).Get().Namespace(twin).Resource(k.gvr().Resource).Name(name).SetHeader("Accept", metadataOfOne).Do(ctx).Into(o)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %s %s at the peer: %w", k, name, err)
	}
	return o.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy, nil
}

// reachable asks whether the rights in a new twin hold by now.
func (a *abroad) reachable(ctx context.Context, twin string) error {
	err := a.of(kindSecret).Get().Namespace(twin).Resource(kindSecret.gvr().Resource).Name("kith-none").SetHeader("Accept", metadataOfOne).
		Do(ctx).Into(&metav1.PartialObjectMetadata{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
