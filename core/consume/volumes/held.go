package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// HeldSnapshot is a snapshot of this cluster's that a peer has, or makes.
type HeldSnapshot struct {
	Peer            string // its name here
	Namespace, Name string // of the VolumeSnapshot that it was made for
	UID             types.UID
	Class           string // of its volume there; "" for the default one
	Size            resource.Quantity
	Content         string // the VolumeSnapshotContent that stands for it
	Deleted         bool   // that is deleted, and stays until its VolumeSnapshot goes and the peer has deleted it
	Of              corev1.ObjectReference
}

// handle names it as contents do (snapshotHandle).
func (s *HeldSnapshot) handle() string {
	return s.Peer + "/" + s.Namespace + "/" + s.Name + "/" + string(s.UID)
}

// heldOf reads a content of driver v1alpha1.StorageProvisioner.
func heldOf(c *snapshotv1.Content) (s HeldSnapshot, err error) {
	s = HeldSnapshot{Class: c.Annotations[v1alpha1.AnnotationClass], Content: c.Name, Deleted: c.DeletionTimestamp != nil, Of: c.Spec.Snapshot}
	s.Size, _ = resource.ParseQuantity(c.Annotations[v1alpha1.AnnotationSize])
	if c.Status.RestoreSize != nil {
		s.Size = *resource.NewQuantity(*c.Status.RestoreSize, resource.BinarySI)
	}
	handle := c.Status.Handle
	if handle == "" {
		handle = c.Spec.Source.Snapshot
	}
	if handle == "" { // it is not made yet
		peer, _, _ := strings.Cut(c.Spec.Source.Volume, "/")
		s.Peer, s.Namespace, s.Name, s.UID = peer, c.Spec.Snapshot.Namespace, c.Spec.Snapshot.Name, types.UID(strings.TrimPrefix(c.Name, snapshotv1.ContentFor("")))
		return s, nil
	}
	part := strings.Split(handle, "/")
	if len(part) != 4 || slices.Contains(part, "") {
		return s, fmt.Errorf("%q is no name of a snapshot at a peer (PEER/NAMESPACE/SNAPSHOT/UID)", handle)
	}
	s.Peer, s.Namespace, s.Name, s.UID = part[0], part[1], part[2], types.UID(part[3])
	return s, nil
}

// Snapshots are those at one peer, or of one namespace, where these are not "". There are none where the cluster has no such kind, or kithd may not read them.
func Snapshots(ctx context.Context, from client.Reader, peer, namespace string) (held []HeldSnapshot, err error) {
	contents, err := listSnapshotKind[snapshotv1.Content](ctx, from, snapshotv1.KindContent)
	if err != nil {
		return nil, err
	}
	for _, c := range contents {
		if c.Spec.Driver != v1alpha1.StorageProvisioner || c.Status.Handle == "" && c.Spec.Source.Snapshot == "" { // no peer has said yes
			continue
		}
		if s, err := heldOf(c); err == nil && (peer == "" || peer == s.Peer) && (namespace == "" || namespace == s.Namespace) {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b HeldSnapshot) int { return strings.Compare(a.handle(), b.handle()) })
	return held, nil
}

// SnapshotWords name snapshots at peers for people: "snapshot shop/monday (10Gi at bob)", with commas.
func SnapshotWords(held []HeldSnapshot) string {
	var words []string
	for i := range held {
		words = append(words, fmt.Sprintf("snapshot %s/%s (%s at %s)", held[i].Namespace, held[i].Name, held[i].Size.String(), held[i].Peer))
	}
	return strings.Join(words, ", ")
}

func unstructuredOf(kind, namespace, name string) *unstructured.Unstructured {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	o := new(metav1.PartialObjectMetadata)
	o.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind))
	return o
}

func readSnapshotKind[T any](ctx context.Context, from client.Reader, kind string, key client.ObjectKey) (*T, error) {
	u := unstructuredOf(kind, "", "")
	if err := from.Get(ctx, key, u); err != nil {
		return nil, err
	}
	return snapshotv1.Read[T](u)
}

func listSnapshotKind[T any](ctx context.Context, from client.Reader, kind string) (list []*T, err error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind + "List"))
	err = from.List(ctx, &all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%ss: %w", kind, err)
	}
	for i := range all.Items {
		o, err := snapshotv1.Read[T](&all.Items[i])
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// saySnapshot says of a snapshot why it is not ready, once.
func (c *Controller) saySnapshot(ctx context.Context, snap *snapshotv1.Snapshot, why string) error {
	if is := snap.Status.Error; is != nil && is.Message == why {
		return nil
	}
	return c.patchStatus(ctx, snapshotv1.KindSnapshot, &snap.ObjectMeta, map[string]any{"readyToUse": false, "error": snapshotv1.Error{Time: new(metav1.Now()), Message: why}})
}

func (c *Controller) patchStatus(ctx context.Context, kind string, is *metav1.ObjectMeta, status any) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": is.UID, "resourceVersion": is.ResourceVersion}, "status": status})
	if err != nil {
		return err
	}
	u := unstructuredOf(kind, is.Namespace, is.Name)
	if err := c.client.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("%s %s: %w", kind, is.Name, err)
	}
	is.ResourceVersion = u.GetResourceVersion()
	return nil
}

// hold has an object stay until its finalizer is taken off, and changes it.
func (c *Controller) hold(ctx context.Context, kind string, is *metav1.ObjectMeta, finalizer string, change map[string]any) error {
	finalizers := slices.Clone(is.Finalizers)
	if !slices.Contains(finalizers, finalizer) {
		finalizers = append(finalizers, finalizer)
	}
	return c.patchObject(ctx, kind, is, finalizers, change)
}

func (c *Controller) releaseFinalizer(ctx context.Context, kind string, is *metav1.ObjectMeta, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(is.Finalizers), func(f string) bool { return f == finalizer })
	return client.IgnoreNotFound(c.patchObject(ctx, kind, is, left, map[string]any{}))
}

// patchObject changes an object, if it is as it was read.
func (c *Controller) patchObject(ctx context.Context, kind string, is *metav1.ObjectMeta, finalizers []string, change map[string]any) error {
	change["metadata"] = map[string]any{"uid": is.UID, "resourceVersion": is.ResourceVersion, "finalizers": finalizers}
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	u := unstructuredOf(kind, is.Namespace, is.Name)
	if err := c.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, text)); err != nil {
		return err
	}
	is.ResourceVersion, is.Finalizers = u.GetResourceVersion(), u.GetFinalizers()
	return nil
}
