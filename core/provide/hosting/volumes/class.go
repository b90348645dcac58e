package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
)

// class gives the class of guests' volumes: that of the cluster's default class, whose volumes are retained. When the default class is
// another one by now, it is made anew; claims and volumes that have it are not concerned.
func (c *Claims) class(ctx context.Context) (*storagev1.StorageClass, error) {
	var classes storagev1.StorageClassList
	if err := c.live.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("looking for a storage class: %w", err)
	}
	like, is := volumes.DefaultClass(classes.Items), (*storagev1.StorageClass)(nil)
	for i := range classes.Items {
		if classes.Items[i].Name == v1alpha1.GuestStorageClass {
			is = &classes.Items[i]
		}
	}
	if like == nil {
		return nil, &api.Error{Code: api.CodeForbidden, Message: "volumes", Reason: "this cluster has no default storage class"}
	}
	want := guestClass(like)
	if is != nil && is.Provisioner == want.Provisioner && equality.Semantic.DeepEqual(is.Parameters, want.Parameters) &&
		equality.Semantic.DeepEqual(is.AllowVolumeExpansion, want.AllowVolumeExpansion) && equality.Semantic.DeepEqual(is.MountOptions, want.MountOptions) && equality.Semantic.DeepEqual(is.AllowedTopologies, want.AllowedTopologies) {
		return want, nil
	}
	if is != nil {
		if err := c.client.Delete(ctx, is); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("making the storage class of guests anew: %w", err)
		}
	}
	if err := c.client.Create(ctx, want); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("making the storage class of guests: %w", err)
	}
	return want, nil
}

func guestClass(like *storagev1.StorageClass) *storagev1.StorageClass {
	retain, late := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: v1alpha1.GuestStorageClass, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Provisioner: like.Provisioner, Parameters: like.Parameters, MountOptions: like.MountOptions, AllowedTopologies: like.AllowedTopologies,
		ReclaimPolicy: &retain, VolumeBindingMode: &late, AllowVolumeExpansion: new(volumes.MayGrow(like)),
	}
}
