package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/volumes"
)

// snapshotsOf are the VolumeSnapshots of a cluster, at home and at peers, but those that are guests'; none where it has no such kind, or kithd may not read them. They are not
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
	abroad, err := volumes.Snapshots(ctx, from, "", "")
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		if all.Items[i].GetLabels()[v1alpha1.LabelHomeSnapshot] != "" {
			continue
		}
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
		if at := slices.IndexFunc(abroad, func(h volumes.HeldSnapshot) bool { return h.Of.UID == s.UID }); at >= 0 {
			v.Peer, v.Class, v.Volume = abroad[at].Peer, abroad[at].Class, abroad[at].Content
			if v.Size == "" {
				v.Size = abroad[at].Size.String()
			}
			abroad = slices.Delete(abroad, at, at+1)
		}
		list = append(list, v)
	}
	for _, h := range abroad { // retained: nothing else shows them, and they are counted
		list = append(list, api.Volume{
			Direction: api.Outgoing, Peer: h.Peer, Namespace: h.Namespace, Snapshot: h.Name, Size: h.Size.String(), Class: h.Class, Volume: h.Content, Phase: api.SnapshotRetained,
		})
	}
	return list, nil
}

// guestSnapshots are those that this cluster keeps of peers' volumes here.
func guestSnapshots(ctx context.Context, from client.Reader) (list []api.Volume, err error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindContent + "List"))
	err = from.List(ctx, &all, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, client.HasLabels{v1alpha1.LabelConsumer, v1alpha1.LabelHomeSnapshot})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshots of peers' volumes: %w", err)
	}
	for i := range all.Items {
		c, err := snapshotv1.Read[snapshotv1.Content](&all.Items[i])
		if err != nil {
			return nil, err
		}
		v := api.Volume{
			Direction: api.Incoming, Peer: c.Labels[v1alpha1.LabelConsumerName], Size: c.Annotations[v1alpha1.AnnotationSize], Class: c.Annotations[v1alpha1.AnnotationClass],
			Volume: c.Name, Phase: api.SnapshotPending,
		}
		_, v.Snapshot, _ = strings.Cut(c.Annotations[v1alpha1.AnnotationHomeSnapshot], "/")
		v.Namespace, v.Claim, _ = strings.Cut(c.Annotations[v1alpha1.AnnotationHomeClaim], "/")
		v.KeptUntil, _ = time.Parse(time.RFC3339, c.Annotations[v1alpha1.AnnotationKeptUntil])
		if c.Status.Ready {
			v.Phase = api.SnapshotReady
		}
		list = append(list, v)
	}
	return list, nil
}

// deleteSnapshot has a peer delete a snapshot, and deletes what stands for it here. The peer is asked first: without a contract nobody could.
func (c *Cluster) deleteSnapshot(ctx context.Context, s *volumes.HeldSnapshot, report func(api.Progress)) error {
	err := c.Fleet.Unsnapshot(ctx, s.Peer, s.Namespace, s.Name, s.UID)
	if err != nil && !errors.Is(err, &peering.Problem{Code: peering.CodeUnavailable}) { // it is at it
		report(api.Progress{Message: fmt.Sprintf("%s cannot be asked to delete snapshot %s/%s, and does so by itself in some days: %v", s.Peer, s.Namespace, s.Name, err)})
	}
	kind := func(kind, namespace, name string) *unstructured.Unstructured {
		u := new(unstructured.Unstructured)
		u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(kind))
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	content := kind(snapshotv1.KindContent, "", s.Content)
	policy := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, snapshotv1.Delete))
	if err := client.IgnoreNotFound(c.Client.Patch(ctx, content, policy)); err != nil {
		return err
	}
	return errors.Join(
		client.IgnoreNotFound(c.Client.Delete(ctx, kind(snapshotv1.KindSnapshot, s.Of.Namespace, s.Of.Name), client.Preconditions{UID: &s.Of.UID})),
		client.IgnoreNotFound(c.Client.Delete(ctx, kind(snapshotv1.KindContent, "", s.Content))),
	)
}
