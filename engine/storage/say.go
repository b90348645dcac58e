package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/snapshotv1"
)

// say says of a snapshot why it is not ready, once.
func (s *snapshotter) say(ctx context.Context, snap *snapshotv1.Snapshot, why error) error {
	if is := snap.Status.Error; is != nil && is.Message == why.Error() || errors.Is(why, errBusy) {
		return nil
	}
	return s.status(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, map[string]any{"readyToUse": false, "error": snapshotv1.Error{Time: new(metav1.Now()), Message: why.Error()}})
}

// status writes what an object says, as it was read.
func (s *snapshotter) status(ctx context.Context, kind schema.GroupVersionResource, is *metav1.ObjectMeta, status any) error {
	return s.patch(ctx, kind, is, map[string]any{"status": status}, "status")
}

// hold has an object stay until its finalizer is taken off, and changes it.
func (s *snapshotter) hold(ctx context.Context, kind schema.GroupVersionResource, is *metav1.ObjectMeta, finalizer string, patch map[string]any) error {
	if !slices.Contains(is.Finalizers, finalizer) {
		is.Finalizers = append(is.Finalizers, finalizer)
	}
	patch["metadata"] = map[string]any{"finalizers": is.Finalizers}
	return s.patch(ctx, kind, is, patch)
}

// release takes a finalizer off.
func (s *snapshotter) release(ctx context.Context, kind schema.GroupVersionResource, is *metav1.ObjectMeta, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(is.Finalizers), func(f string) bool { return f == finalizer })
	return s.patch(ctx, kind, is, map[string]any{"metadata": map[string]any{"finalizers": left}})
}

// patch changes an object, if it is as it was read; it notes how it is then.
func (s *snapshotter) patch(ctx context.Context, kind schema.GroupVersionResource, is *metav1.ObjectMeta, patch map[string]any, sub ...string) error {
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = is.UID, is.ResourceVersion
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	next, err := within(s.kinds, kind, is.Namespace).Patch(ctx, is.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: Provisioner}, sub...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Resource, is.Name, err)
	}
	is.ResourceVersion, is.Finalizers = next.GetResourceVersion(), next.GetFinalizers()
	return nil
}
