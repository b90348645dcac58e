package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	storagev1ac "k8s.io/client-go/applyconfigurations/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
)

// class gives the class of guests' volumes of a class of this cluster, "" for the default class: as that one, but its volumes are retained. When that
// is another one by now, it is made anew; claims and volumes that have it are not concerned.
func (c *Claims) class(ctx context.Context, of string) (*storagev1.StorageClass, error) {
	var classes storagev1.StorageClassList
	if err := c.live.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("looking for a storage class: %w", err)
	}
	like := volumes.DefaultClass(classes.Items)
	var is, named *storagev1.StorageClass
	for i := range classes.Items {
		switch name := classes.Items[i].Name; {
		case name == v1alpha1.GuestClass(of):
			is = &classes.Items[i]
		case name == of && classes.Items[i].Provisioner != v1alpha1.StorageProvisioner:
			named = &classes.Items[i]
		}
	}
	switch _, ofGuests := v1alpha1.ClassOfGuests(of); {
	case of != "" && (named == nil || ofGuests):
		return nil, &api.Error{Code: api.CodeForbidden, Message: "volumes of storage class " + of, Reason: "this cluster has no storage class of that name"}
	case of != "":
		like = named
	case like == nil:
		return nil, &api.Error{Code: api.CodeForbidden, Message: "volumes", Reason: "this cluster has no default storage class"}
	}
	want := guestClass(like, of)
	if is != nil && is.Provisioner == want.Provisioner && equality.Semantic.DeepEqual(is.Parameters, want.Parameters) &&
		equality.Semantic.DeepEqual(is.AllowVolumeExpansion, want.AllowVolumeExpansion) && equality.Semantic.DeepEqual(is.MountOptions, want.MountOptions) && equality.Semantic.DeepEqual(is.AllowedTopologies, want.AllowedTopologies) {
		return want, nil
	}
	if is != nil {
		if err := c.client.Delete(ctx, is); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("making the storage class of guests anew: %w", err)
		}
	}
	// To create is allowed by no name (RBAC), to apply is.
	if err := c.client.Apply(ctx, applied(want), client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("making the storage class of guests %s: %w", want.Name, err)
	}
	return want, nil
}

func applied(class *storagev1.StorageClass) *storagev1ac.StorageClassApplyConfiguration {
	a := storagev1ac.StorageClass(class.Name).WithLabels(class.Labels).WithProvisioner(class.Provisioner).WithParameters(class.Parameters).WithMountOptions(class.MountOptions...).
		WithReclaimPolicy(*class.ReclaimPolicy).WithVolumeBindingMode(*class.VolumeBindingMode).WithAllowVolumeExpansion(*class.AllowVolumeExpansion)
	for _, term := range class.AllowedTopologies {
		t := corev1ac.TopologySelectorTerm()
		for _, r := range term.MatchLabelExpressions {
			t.WithMatchLabelExpressions(corev1ac.TopologySelectorLabelRequirement().WithKey(r.Key).WithValues(r.Values...))
		}
		a.WithAllowedTopologies(t)
	}
	return a
}

func guestClass(like *storagev1.StorageClass, of string) *storagev1.StorageClass {
	retain, late := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: v1alpha1.GuestClass(of), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Provisioner: like.Provisioner, Parameters: like.Parameters, MountOptions: like.MountOptions, AllowedTopologies: like.AllowedTopologies,
		ReclaimPolicy: &retain, VolumeBindingMode: &late, AllowVolumeExpansion: new(volumes.MayGrow(like)),
	}
}
