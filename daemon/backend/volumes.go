package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
)

// Volumes gives the volumes of this cluster at peers, and of peers here.
func (b *Backend) Volumes(ctx context.Context) ([]api.Volume, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	var all corev1.PersistentVolumeList
	if err := c.Client.List(ctx, &all); err != nil {
		return nil, internal(err)
	}
	var list []api.Volume
	for i := range all.Items {
		if v, ok := volumeOf(&all.Items[i]); ok {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b api.Volume) int {
		return cmp.Or(-strings.Compare(string(a.Direction), string(b.Direction)), strings.Compare(a.Peer, b.Peer), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Claim, b.Claim))
	})
	return list, nil
}

// volumeOf reads a PersistentVolume; false when it is neither at a peer nor a peer's.
func volumeOf(pv *corev1.PersistentVolume) (api.Volume, bool) {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	v := api.Volume{Volume: pv.Name, Size: size.String(), Phase: string(pv.Status.Phase)}
	switch peer := volumes.AtPeer(pv); {
	case peer != "":
		v.Direction, v.Peer = api.Outgoing, peer
		v.Namespace, v.Claim = volumes.ClaimOf(pv)
	case pv.Spec.StorageClassName == v1alpha1.GuestStorageClass && pv.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		v.Direction, v.Peer = api.Incoming, pv.Labels[v1alpha1.LabelConsumerName]
		v.Namespace, v.Claim, _ = strings.Cut(pv.Annotations[v1alpha1.AnnotationHomeClaim], "/")
		v.KeptUntil, _ = time.Parse(time.RFC3339, pv.Annotations[v1alpha1.AnnotationKeptUntil])
	default:
		return api.Volume{}, false
	}
	return v, true
}

// held are the volumes of this cluster at a peer, or at all peers of a namespace. What is decided by them is read past the cache.
func held(ctx context.Context, from client.Reader, peer, namespace string) ([]corev1.PersistentVolume, error) {
	var all corev1.PersistentVolumeList
	if err := from.List(ctx, &all); err != nil {
		return nil, internal(fmt.Errorf("see which volumes are at peers: %w", err))
	}
	return volumes.Held(all.Items, peer, namespace), nil
}

// letGo refuses what would end volumes at a peer, or at all of a namespace, unless they may be deleted; then it deletes them, with their claims.
// In a dry run it only refuses. what is said to be done, command how it deletes them.
func (c *Cluster) letGo(ctx context.Context, peer, namespace, what, command string, may bool, dry api.DryRun, report func(api.Progress)) error {
	held, err := held(ctx, c.Fresh, peer, namespace)
	if err != nil || len(held) == 0 {
		return err
	}
	if !may {
		leave := ""
		if peer != "" {
			leave = ", and --leave-volumes leaves them there for seven days"
		}
		return &api.Error{
			Code: api.CodeConflict, Message: what + " would leave volumes behind", Reason: volumes.Words(held),
			Do: "copy what you need and delete the claims (kubectl delete pvc), or `" + command + " --delete-volumes` deletes them with their data" + leave,
		}
	}
	if dry {
		return nil
	}
	report(api.Progress{Message: "deleting volumes: " + volumes.Words(held)})
	for i := range held {
		if err := c.deleteVolume(ctx, &held[i], report); err != nil {
			return internal(err)
		}
	}
	return nil
}

// leaveVolumes does what is to be done with volumes of this cluster at a peer before the peering ends.
func (c *Cluster) leaveVolumes(ctx context.Context, peer, name string, options api.EndOptions, report func(api.Progress)) error {
	if !options.LeaveVolumes {
		return c.letGo(ctx, peer, "", "the end of the peering with "+name, "kith unpeer "+name, bool(options.DeleteVolumes), options.DryRun, report)
	}
	held, err := held(ctx, c.Fresh, peer, "")
	if err == nil && len(held) > 0 && !bool(options.DryRun) {
		report(api.Progress{Message: fmt.Sprintf("leaving volumes at %s, which keeps them for seven days: %s", name, volumes.Words(held))})
	}
	return err
}

// deleteVolume has a peer delete a volume, and deletes its claim here. The peer is asked first: without a contract nobody could.
func (c *Cluster) deleteVolume(ctx context.Context, v *corev1.PersistentVolume, report func(api.Progress)) error {
	if err := c.Fleet.Discard(ctx, v); err != nil {
		report(api.Progress{Message: fmt.Sprintf("%s cannot be asked to delete %s, and does so by itself in some days: %v", volumes.AtPeer(v), v.Name, err)})
	}
	policy := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`))
	if err := client.IgnoreNotFound(c.Client.Patch(ctx, v, policy)); err != nil {
		return err
	}
	of := v.Spec.ClaimRef
	if of == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}
	err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &of.UID})
	return client.IgnoreNotFound(err)
}

// checkVolumes refuses to let volumes of a namespace be anywhere while it has claims that could not follow, and to keep them home again while
// some are at peers: pods that are made from then on would wait for ever.
func (c *Cluster) checkVolumes(ctx context.Context, namespace string, was, is v1alpha1.VolumePlace) error {
	switch {
	case was == v1alpha1.VolumesAnywhere && is != was:
		held, err := held(ctx, c.Fresh, "", namespace)
		if err != nil || len(held) == 0 {
			return err
		}
		return &api.Error{
			Code: api.CodeConflict, Message: "volumes of " + namespace + " cannot be at home only", Field: "volumes", Reason: "some are at peers: " + volumes.Words(held),
			Do: "say --volumes anywhere as before, or delete their claims first",
		}
	case is != v1alpha1.VolumesAnywhere || was == is:
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	var all corev1.PersistentVolumeList
	var classes storagev1.StorageClassList
	if err := errors.Join(c.Fresh.List(ctx, &claims, client.InNamespace(namespace)), c.Fresh.List(ctx, &all), c.Fresh.List(ctx, &classes)); err != nil {
		return internal(err)
	}
	if stay := offloading.StaysHome(claims.Items, all.Items, classes.Items); len(stay) > 0 {
		slices.Sort(stay)
		return &api.Error{
			Code: api.CodeConflict, Message: "volumes of " + namespace + " cannot be anywhere", Field: "volumes",
			Reason: "these claims are of another class than kith, and nothing says at which node their volumes are: " + strings.Join(stay, ", "),
			Do:     "delete them, or wait until pods have used them: a volume that is there stays where it is",
		}
	}
	return nil
}
