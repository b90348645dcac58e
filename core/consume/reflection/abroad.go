package reflection

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/wire/codec"
)

// abroad is the client for the peer's API server.
type abroad struct {
	groups map[schema.GroupVersion]rest.Interface
}

// codecs are of all peers. An answer names its own kind, so none is known but those that are written, and metadata. None has amounts in it.
var codecs = sync.OnceValues(func() (*codec.Codec, error) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	for _, k := range kinds.Reflected() {
		scheme.AddKnownTypes(k.Resource.GroupVersion(), k.New())
		metav1.AddToGroupVersion(scheme, k.Resource.GroupVersion())
	}
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	return codec.New(scheme), nil
})

func newAbroad(api *remote.API) (*abroad, error) {
	serializer, err := codecs()
	if err != nil {
		return nil, err
	}
	a := &abroad{groups: map[schema.GroupVersion]rest.Interface{}}
	for _, k := range kinds.Reflected() {
		if a.groups[k.Resource.GroupVersion()], err = api.Group(k.Resource.GroupVersion(), serializer); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *abroad) of(k *kinds.Kind) rest.Interface { return a.groups[k.Resource.GroupVersion()] }

// metadataOfOne is the form in which the API server gives metadata alone: KEP-2334 and its API conventions.
const metadataOfOne = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// apply writes want whole, and takes out what others added to what it says. It gives the version written.
func (a *abroad) apply(ctx context.Context, k *kinds.Kind, want kinds.Object) (version string, err error) {
	want.GetObjectKind().SetGroupVersionKind(k.GVK())
	body, err := json.Marshal(want)
	if err != nil {
		return "", err
	}
	got := want.DeepCopyObject().(kinds.Object)
	force := metav1.PatchOptions{FieldManager: FieldOwner, Force: new(true)}
	err = a.of(k).Patch(types.ApplyPatchType).Namespace(want.GetNamespace()).Resource(k.Resource.Resource).Name(want.GetName()).
		VersionedParams(&force, metav1.ParameterCodec).Body(body).Do(ctx).Into(got)
	if err != nil {
		return "", err
	}
	if k.TakeOut != nil && k.TakeOut(got, want) {
		got.SetManagedFields(nil) // as they are; the peer takes none
		got.GetObjectKind().SetGroupVersionKind(k.GVK())
		err := a.of(k).Put().Namespace(want.GetNamespace()).Resource(k.Resource.Resource).Name(want.GetName()).
			VersionedParams(&metav1.UpdateOptions{FieldManager: FieldOwner}, metav1.ParameterCodec).Body(got).Do(ctx).Into(got)
		if err != nil {
			return "", err
		}
	}
	return got.GetResourceVersion(), nil
}

// create is apply for what is not there yet: it costs the peer's API server a fraction. What others add later, apply takes out.
func (a *abroad) create(ctx context.Context, k *kinds.Kind, want kinds.Object) (version string, err error) {
	want.GetObjectKind().SetGroupVersionKind(k.GVK())
	got := want.DeepCopyObject().(kinds.Object)
	err = a.of(k).Post().Namespace(want.GetNamespace()).Resource(k.Resource.Resource).
		VersionedParams(&metav1.CreateOptions{FieldManager: FieldOwner}, metav1.ParameterCodec).Body(want).Do(ctx).Into(got)
	if apierrors.IsAlreadyExists(err) {
		return a.apply(ctx, k, want)
	}
	return got.GetResourceVersion(), err
}

// delete takes one away, unless another has its name by now.
func (a *abroad) delete(ctx context.Context, k *kinds.Kind, have metav1.Object) error {
	err := a.of(k).Delete().Namespace(have.GetNamespace()).Resource(k.Resource.Resource).Name(have.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// metadata gives that of one object; nil when there is none.
func (a *abroad) metadata(ctx context.Context, k *kinds.Kind, twin, name string) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	err := a.of(k).Get().Namespace(twin).Resource(k.Resource.Resource).Name(name).SetHeader("Accept", metadataOfOne).Do(ctx).Into(o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// foreign reports whether the name belongs to an object at the peer that was not made from here.
func (a *abroad) foreign(ctx context.Context, k *kinds.Kind, twin, name string) (bool, error) {
	o, err := a.metadata(ctx, k, twin, name)
	if err != nil {
		return false, fmt.Errorf("look at %s %s at the peer: %w", k, name, err)
	}
	return o != nil && !ours(o), nil
}

// reachable asks whether the rights in a new twin hold by now.
func (a *abroad) reachable(ctx context.Context, twin string) error {
	_, err := a.metadata(ctx, kinds.Secret, twin, "kith-none")
	return err
}
