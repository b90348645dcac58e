package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Objects are the storage class kith and what tells the scheduler that its capacity counts (KEP-1472).
func Objects() []client.Object {
	managed := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	late, del := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	return []client.Object{
		&storagev1.StorageClass{
			TypeMeta:    metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
			ObjectMeta:  metav1.ObjectMeta{Name: v1alpha1.StorageClassName, Labels: managed},
			Provisioner: v1alpha1.StorageProvisioner, ReclaimPolicy: &del, VolumeBindingMode: &late, AllowVolumeExpansion: new(true),
		},
		&storagev1.CSIDriver{
			TypeMeta:   metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSIDriver"},
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.StorageProvisioner, Labels: managed},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: new(false), StorageCapacity: new(true)},
		},
	}
}

// unbounded is what home's own nodes are said to have: how much that is, the class behind it knows.
var unbounded = resource.MustParse("1Ei")

// leftOf is how much storage of a class there a contract grants beside what the volumes and snapshots have that are of it; nil where it grants none.
func leftOf(ctr *v1alpha1.Contract, class string, volumes []corev1.PersistentVolume, snapshots []HeldSnapshot) *resource.Quantity {
	granted := ctr.Grants(time.Now())[corev1.ResourceName(api.StorageOf(class))]
	if ctr.Spec.Role != v1alpha1.RoleConsumer || ctr.DeletionTimestamp != nil || granted.Sign() <= 0 {
		return nil
	}
	left := Left(ctr.Grants(time.Now()), ctr.Spec.Peer, class, volumes, snapshots)
	return &left
}

// Left is how much storage of a class there a peer grants beside what the volumes and snapshots have that are of it.
func Left(grants corev1.ResourceList, peer, class string, volumes []corev1.PersistentVolume, snapshots []HeldSnapshot) resource.Quantity {
	granted := grants[corev1.ResourceName(api.StorageOf(class))]
	left := granted.DeepCopy()
	for _, v := range Held(volumes, peer, "") {
		if ClassOf(&v) == class {
			left.Sub(v.Spec.Capacity[corev1.ResourceStorage])
		}
	}
	for i := range snapshots {
		if snapshots[i].Peer == peer && snapshots[i].Class == class {
			left.Sub(snapshots[i].Size)
		}
	}
	if left.Sign() < 0 {
		left = resource.Quantity{Format: resource.BinarySI}
	}
	return left
}

// capacities keeps, for each class of this provisioner, a CSIStorageCapacity for each peer that lends storage of it, and one for the nodes of home
// where that has some.
func (c *Controller) capacities(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var contracts v1alpha1.ContractList
	var volumes corev1.PersistentVolumeList
	var classes storagev1.StorageClassList
	if err := errors.Join(c.client.List(ctx, &contracts), c.client.List(ctx, &volumes), c.client.List(ctx, &classes)); err != nil {
		return ctrl.Result{}, err
	}
	snapshots, _ := c.HeldSnapshots() // each time they are read this comes after it
	want := map[string]*storagev1.CSIStorageCapacity{}
	for i := range classes.Items {
		class, of := classes.Items[i].Name, classes.Items[i].Parameters[v1alpha1.ParameterClass]
		if classes.Items[i].Provisioner != v1alpha1.StorageProvisioner {
			continue
		}
		add := func(name string, nodes *metav1.LabelSelector, amount resource.Quantity) {
			if class != v1alpha1.StorageClassName {
				name = class + "." + name
			}
			want[name] = &storagev1.CSIStorageCapacity{
				ObjectMeta:       metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
				StorageClassName: class, NodeTopology: nodes, Capacity: &amount,
			}
		}
		for i := range contracts.Items {
			ctr := &contracts.Items[i]
			if left := leftOf(ctr, of, volumes.Items, snapshots); left != nil {
				add("at."+ctr.Spec.Peer, &metav1.LabelSelector{
					MatchLabels:      map[string]string{v1alpha1.LabelPeer: ctr.Spec.Peer},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelBroker, Operator: metav1.LabelSelectorOpDoesNotExist}}, // volumes go on to nobody
				}, *left)
			}
		}
		if _, none := behind(classes.Items, of); of == "" || none == nil {
			add("home", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelPeer, Operator: metav1.LabelSelectorOpDoesNotExist}}}, unbounded)
		}
	}

	var have storagev1.CSIStorageCapacityList
	if err := c.fresh.List(ctx, &have, client.InNamespace(Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for i := range have.Items {
		is := &have.Items[i]
		w := want[is.Name]
		delete(want, is.Name)
		switch {
		case w == nil:
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, is)))
		case is.StorageClassName != w.StorageClassName || !equality.Semantic.DeepEqual(is.NodeTopology, w.NodeTopology): // cannot be changed
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, is)), c.client.Create(ctx, w))
		case is.Capacity == nil || is.Capacity.Cmp(*w.Capacity) != 0:
			is.Capacity = w.Capacity
			errs = append(errs, c.client.Update(ctx, is))
		}
	}
	for _, w := range want {
		errs = append(errs, c.create(ctx, w))
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, fmt.Errorf("what storage is left: %w", err)
	}
	return ctrl.Result{}, nil
}

// create makes an object in Namespace, and that when it is missing.
func (c *Controller) create(ctx context.Context, o client.Object) error {
	err := c.client.Create(ctx, o)
	if !apierrors.IsNotFound(err) {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}}
	if err := c.client.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.client.Create(ctx, o)
}
