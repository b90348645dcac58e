package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// begin is what a volume begins with, and the node that this is on: no other has it, so nobody chooses.
type begin struct {
	held     *HeldSnapshot // a snapshot at a peer; nil for what is at home
	node     string
	snapshot string // a VolumeSnapshot, "namespace/name"
	claim    string // or a claim of the namespace of those behind
}

// write has the claim behind a volume begin so; nil for empty.
func (b *begin) write(back *corev1.PersistentVolumeClaim) {
	switch {
	case b == nil:
	case b.snapshot != "":
		back.Annotations[v1alpha1.AnnotationSnapshot] = b.snapshot
	default:
		back.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: b.claim}
	}
}

const kindClaim = "PersistentVolumeClaim"

// begins reports whether a claim, of a class that may be of this provisioner's, has no volume yet and is to begin with something. It waits for no pod.
func begins(claim *corev1.PersistentVolumeClaim) bool {
	class := claim.Spec.StorageClassName
	return (claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil) && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" &&
		class != nil && (*class == v1alpha1.StorageClassName || strings.HasPrefix(*class, v1alpha1.StorageClassName+"-"))
}

// beginOf is what the volume of a claim is to begin with; nil for nothing. The error is an *unfitError where it never will. A volume that is said to have
// somebody's data and is empty is worse than none.
func (c *Controller) beginOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*begin, error) {
	source := claim.Spec.DataSourceRef
	if source == nil && claim.Spec.DataSource != nil {
		source = &corev1.TypedObjectReference{APIGroup: claim.Spec.DataSource.APIGroup, Kind: claim.Spec.DataSource.Kind, Name: claim.Spec.DataSource.Name}
	}
	if source == nil {
		return nil, nil
	}
	group := ""
	if source.APIGroup != nil {
		group = *source.APIGroup
	}
	switch {
	case source.Namespace != nil && *source.Namespace != claim.Namespace:
		return nil, &unfitError{"dataSourceRef: volumes begin with what is in their own namespace"}
	case group == snapshotv1.GroupVersion.Group && source.Kind == snapshotv1.KindSnapshot:
		return c.ofSnapshot(ctx, claim, source.Name)
	case group == "" && source.Kind == kindClaim:
		return c.ofClaim(ctx, claim, source.Name)
	}
	return nil, &unfitError{fmt.Sprintf("dataSource: volumes of class %s begin empty, with a VolumeSnapshot or with a PersistentVolumeClaim", *claim.Spec.StorageClassName)}
}

// ofSnapshot begins with a snapshot of the built-in Kubernetes. Whoever makes the volume looks again whose it is.
func (c *Controller) ofSnapshot(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*begin, error) {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot))
	err := c.fresh.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, u)
	if meta.IsNoMatchError(err) {
		return nil, &unfitError{"dataSource: this cluster has no VolumeSnapshots"}
	}
	if err != nil {
		return nil, fmt.Errorf("dataSource: %w", err)
	}
	snap, err := snapshotv1.Read[snapshotv1.Snapshot](u)
	if err != nil {
		return nil, err
	}
	if !snap.Status.Ready || snap.DeletionTimestamp != nil {
		return nil, fmt.Errorf("dataSource: VolumeSnapshot %s is not ready", name)
	}
	if least := snap.Status.RestoreSize; least != nil {
		if err := large(claim, *least); err != nil {
			return nil, err
		}
	}
	if snap.Status.Content != "" { // whoever may write a snapshot's status need not be who may read its files: the content decides
		content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, client.ObjectKey{Name: snap.Status.Content})
		if err == nil && content.Spec.Driver == v1alpha1.StorageProvisioner {
			return c.ofPeers(claim, snap, content)
		}
		if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("dataSource: %w", err)
		}
	}
	return &begin{node: c.node, snapshot: claim.Namespace + "/" + name}, nil
}

// ofPeers begins with a snapshot at a peer, where the volume is made then.
func (c *Controller) ofPeers(claim *corev1.PersistentVolumeClaim, snap *snapshotv1.Snapshot, content *snapshotv1.Content) (*begin, error) {
	is, err := heldOf(content)
	if err != nil || content.Spec.Snapshot.UID != snap.UID || is.Namespace != claim.Namespace || content.DeletionTimestamp != nil {
		return nil, &unfitError{fmt.Sprintf("dataSource: VolumeSnapshot %s has no content of this namespace at a peer", snap.Name)}
	}
	if err := large(claim, is.Size); err != nil {
		return nil, err
	}
	return &begin{held: &is, node: v1alpha1.VirtualNodePrefix + is.Peer}, nil
}

// restored is the volume of a claim that begins with a snapshot at a peer, made there. The error is errRestoring until it is whole: from then on the snapshot
// may be deleted.
func (c *Controller) restored(ctx context.Context, claim *corev1.PersistentVolumeClaim, from *begin, name, of string, policy corev1.PersistentVolumeReclaimPolicy) (*corev1.PersistentVolume, error) {
	is := from.held
	if is.Class != of {
		return nil, &unfitError{fmt.Sprintf("dataSource: the snapshot is of a volume of storage class %q at %s, and class %s makes volumes of %q (\"\" is the default one)", is.Class, is.Peer, *claim.Spec.StorageClassName, of)}
	}
	state, err := c.peers.Snapshot(ctx, is.Peer, is.Namespace, is.Name, &remote.Snapshot{UID: is.UID})
	if err != nil {
		return nil, err
	}
	if !state.Ready {
		return nil, errRestoring
	}
	if err := c.free(is.Peer, claim); err != nil {
		return nil, err
	}
	asks := asked(claim, of, sizeOf(claim))
	asks.Snapshot = is.UID
	c.restoring.Store(claim.UID, restoring{is.Peer, client.ObjectKeyFromObject(claim)})
	made, err := c.peers.Claim(ctx, is.Peer, claim.Namespace, claim.Name, asks)
	if err != nil {
		return nil, err
	}
	if made.Phase != corev1.ClaimBound {
		return nil, errRestoring
	}
	return atPeer(claim, name, of, is.Peer, policy), nil
}

// restoring is what a peer is making of a snapshot: until it is whole nothing here stands for it.
type restoring struct {
	peer  string
	claim client.ObjectKey
}

// unwanted has peers delete what they make for claims of that name that were deleted meanwhile.
func (c *Controller) unwanted(ctx context.Context, key client.ObjectKey) error {
	var errs []error
	c.restoring.Range(func(id, value any) bool {
		if uid, at := id.(types.UID), value.(restoring); at.claim == key {
			errs = append(errs, c.undo(ctx, uid, at))
		}
		return true
	})
	return errors.Join(errs...)
}

// undo has a peer delete what it makes for a claim, if that was deleted.
func (c *Controller) undo(ctx context.Context, uid types.UID, at restoring) error {
	var claim corev1.PersistentVolumeClaim
	if err := client.IgnoreNotFound(c.fresh.Get(ctx, at.claim, &claim)); err != nil || claim.UID == uid && claim.DeletionTimestamp == nil {
		return err
	}
	var is corev1.PersistentVolume // it has one all the same: what becomes of that, its policy says
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: "pvc-" + string(uid)}, &is); !apierrors.IsNotFound(err) {
		if err == nil {
			c.restoring.Delete(uid)
		}
		return err
	}
	if err := c.peers.Unclaim(ctx, at.peer, at.claim.Namespace, at.claim.Name, uid); err != nil && !errors.Is(err, ErrNoContract) {
		return fmt.Errorf("volume at %s for claim %s, which was deleted: %w", at.peer, at.claim, err)
	}
	c.restoring.Delete(uid)
	c.log.Info("a claim was deleted whose volume was being made of a snapshot", "namespace", at.claim.Namespace, "claim", at.claim.Name, "peer", at.peer)
	c.peers.Review(at.claim.Namespace)
	return nil
}

// free tells that a peer still has what it was making for another claim of that name, which was deleted.
func (c *Controller) free(peer string, claim *corev1.PersistentVolumeClaim) (err error) {
	c.restoring.Range(func(id, value any) bool {
		if at := value.(restoring); id.(types.UID) != claim.UID && at.peer == peer && at.claim == client.ObjectKeyFromObject(claim) {
			err = fmt.Errorf("%s still has what it was making for a claim of that name that was deleted: this one waits until it can be told", peer)
		}
		return err == nil
	})
	return err
}

// errRestoring: a peer copies a snapshot into a new volume.
var errRestoring = errors.New("its volume is being made of the snapshot")

// ofClaim begins with what another claim has at home.
func (c *Controller) ofClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*begin, error) {
	var source corev1.PersistentVolumeClaim
	var v corev1.PersistentVolume
	if err := c.fresh.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, &source); err != nil {
		return nil, fmt.Errorf("dataSource: %w", err)
	}
	if source.Status.Phase != corev1.ClaimBound || source.Spec.VolumeName == "" {
		return nil, fmt.Errorf("dataSource: claim %s has no volume yet", name)
	}
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: source.Spec.VolumeName}, &v); err != nil {
		return nil, fmt.Errorf("dataSource: volume of claim %s: %w", name, err)
	}
	if of := v.Spec.ClaimRef; of == nil || of.UID != source.UID {
		return nil, fmt.Errorf("dataSource: volume %s is not that of claim %s", v.Name, name)
	}
	if peer := AtPeer(&v); peer != "" {
		return nil, &unfitError{fmt.Sprintf("dataSource: the volume of claim %s is at %s, and a peer copies none but to a snapshot: make a VolumeSnapshot of it and begin with that, or `kith volume move %s/%s --to home` first", name, peer, claim.Namespace, name)}
	}
	namespace, back, ok := strings.Cut(v.Annotations[annotationBacking], "/")
	if !ok || namespace != Namespace || v.Annotations[annotationProvisionedBy] != v1alpha1.StorageProvisioner {
		return nil, &unfitError{fmt.Sprintf("dataSource: claim %s is of another class than kith: make this one of that class, too", name)}
	}
	if on := hostOf(&v); c.node != "" && on != c.node {
		return nil, &unfitError{fmt.Sprintf("dataSource: the volume of claim %s is on node %s, and volumes are copied on %s alone", name, on, c.node)}
	}
	if err := large(claim, v.Spec.Capacity[corev1.ResourceStorage]); err != nil {
		return nil, err
	}
	return &begin{node: hostOf(&v), claim: back}, nil
}

// large refuses a claim that is smaller than what it is to begin with.
func large(claim *corev1.PersistentVolumeClaim, least resource.Quantity) error {
	if asks := claim.Spec.Resources.Requests[corev1.ResourceStorage]; asks.Cmp(least) < 0 {
		return &unfitError{fmt.Sprintf("dataSource: the claim asks for %s, and what it is to begin with has %s", asks.String(), least.String())}
	}
	return nil
}
