package backend

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// snapshotOf is a VolumeSnapshot of shop/data.
func snapshotOf(name string, status map[string]any) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindSnapshot, "metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "data"}}, "status": status,
	}}
}

func TestSnapshotsAreListed(t *testing.T) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot), &unstructured.Unstructured{})
	s.AddKnownTypeWithName(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot+"List"), &unstructured.UnstructuredList{})
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(
		snapshotOf("monday", map[string]any{"readyToUse": true, "restoreSize": "300Mi", "boundVolumeSnapshotContentName": "snapcontent-1"}),
		snapshotOf("tuesday", map[string]any{"readyToUse": false, "error": map[string]any{"message": "no room"}}),
	).Build()
	list, err := snapshotsOf(t.Context(), c)
	want := []api.Volume{
		{Direction: api.Outgoing, Namespace: "shop", Claim: "data", Snapshot: "monday", Size: "300Mi", Volume: "snapcontent-1", Phase: api.SnapshotReady},
		{Direction: api.Outgoing, Namespace: "shop", Claim: "data", Snapshot: "tuesday", Phase: api.SnapshotPending, Why: "no room"},
	}
	if err != nil || len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("%+v, %v", list, err)
	}
	for _, c := range []struct{ err, want error }{{&meta.NoKindMatchError{}, nil}, {errors.ErrUnsupported, errors.ErrUnsupported}} {
		if list, err := snapshotsOf(t.Context(), unread{err: c.err}); !errors.Is(err, c.want) || len(list) > 0 {
			t.Errorf("%v: %+v, %v", c.err, list, err)
		}
	}
}

// contentAt is what stands for the snapshot shop/NAME at a peer.
func contentAt(peer, name string) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": map[string]any{"name": "snapcontent-" + name},
		"spec": map[string]any{
			"driver": v1alpha1.StorageProvisioner, "deletionPolicy": "Delete", "source": map[string]any{"volumeHandle": peer + "/shop/data/u"},
			"volumeSnapshotRef": map[string]any{"namespace": "shop", "name": name, "uid": name},
		},
		"status": map[string]any{"snapshotHandle": peer + "/shop/" + name + "/" + name, "restoreSize": int64(2 << 30)},
	}}
}

// What is at a peer says so, also when its VolumeSnapshot is gone; and what a peer has here says whose it is.
func TestSnapshotsAtPeersAreListed(t *testing.T) {
	monday := snapshotOf("monday", map[string]any{"readyToUse": true, "restoreSize": "2Gi"})
	monday.SetUID("monday")
	guests := snapshotOf("theirs", nil)
	guests.SetLabels(map[string]string{v1alpha1.LabelHomeSnapshot: "7"})
	kept := contentAt("", "kept").(*unstructured.Unstructured)
	kept.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: "x", v1alpha1.LabelConsumerName: "carol", v1alpha1.LabelHomeSnapshot: "7"})
	kept.SetAnnotations(map[string]string{
		v1alpha1.AnnotationHomeSnapshot: "web/theirs", v1alpha1.AnnotationHomeClaim: "web/files", v1alpha1.AnnotationSize: "1Gi", v1alpha1.AnnotationKeptUntil: "2026-12-06T20:41:00Z",
	})
	kept.Object["spec"].(map[string]any)["driver"] = snapshotv1.Driver
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(monday, guests, contentAt("bob", "monday"), contentAt("bob", "old"), kept).Build()
	list, err := snapshotsOf(t.Context(), c)
	want := []api.Volume{
		{Direction: api.Outgoing, Peer: "bob", Namespace: "shop", Claim: "data", Snapshot: "monday", Size: "2Gi", Volume: "snapcontent-monday", Phase: api.SnapshotReady},
		{Direction: api.Outgoing, Peer: "bob", Namespace: "shop", Snapshot: "old", Size: "2Gi", Volume: "snapcontent-old", Phase: api.SnapshotRetained},
	}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v, want %+v", list, err, want)
	}
	list, err = guestSnapshots(t.Context(), c)
	if err != nil || len(list) != 1 || list[0].Peer != "carol" || list[0].Namespace != "web" || list[0].Snapshot != "theirs" || list[0].Claim != "files" || list[0].Size != "1Gi" || list[0].KeptUntil.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
}

// What would leave a snapshot behind names it, with or without a volume.
func TestNothingEndsThatLeavesSnapshotsBehind(t *testing.T) {
	c := clusterWith(t, contentAt("bob", "monday"))
	report := func(api.Progress) {}
	conflict(t, c.leaveVolumes(t.Context(), "bob", "bob", api.EndOptions{}, report), "snapshot shop/monday (2Gi at bob)", "kith unpeer bob --delete-volumes")
	conflict(t, c.letGo(t.Context(), "", "shop", "bringing shop home", "kith unoffload shop", false, false, report), "snapshot shop/monday (2Gi at bob)", "VolumeSnapshots")
	conflict(t, c.checkVolumes(t.Context(), "shop", v1alpha1.VolumesAnywhere, v1alpha1.VolumesHome), "snapshot shop/monday (2Gi at bob)", "--volumes anywhere")
	for _, err := range []error{c.leaveVolumes(t.Context(), "carol", "carol", api.EndOptions{}, report), c.letGo(t.Context(), "", "other", "", "", false, false, report)} {
		if err != nil {
			t.Error(err)
		}
	}
}

// unread is a cluster that lists nothing.
type unread struct {
	client.Reader
	err error
}

func (u unread) List(context.Context, client.ObjectList, ...client.ListOption) error { return u.err }
