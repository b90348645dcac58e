package backend

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
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

// unread is a cluster that lists nothing.
type unread struct {
	client.Reader
	err error
}

func (u unread) List(context.Context, client.ObjectList, ...client.ListOption) error { return u.err }
