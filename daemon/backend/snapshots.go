package backend

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
)

// snapshotsOf are the VolumeSnapshots of a cluster, which are all at home; none where it has no such kind, or kithd may not read them. They are not
// watched for that: nobody but who asks needs them.
func snapshotsOf(ctx context.Context, from client.Reader) (list []api.Volume, err error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot + "List"))
	err = from.List(ctx, &all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshots of volumes: %w", err)
	}
	for i := range all.Items {
		s, err := snapshotv1.Read[snapshotv1.Snapshot](&all.Items[i])
		if err != nil {
			return nil, err
		}
		v := api.Volume{Direction: api.Outgoing, Namespace: s.Namespace, Claim: s.Spec.Source.Claim, Snapshot: s.Name, Volume: s.Status.Content, Phase: api.SnapshotPending}
		if s.Status.Ready {
			v.Phase = api.SnapshotReady
		}
		if s.Status.RestoreSize != nil {
			v.Size = s.Status.RestoreSize.String()
		}
		if s.Status.Error != nil && !s.Status.Ready {
			v.Why = s.Status.Error.Message
		}
		list = append(list, v)
	}
	return list, nil
}
