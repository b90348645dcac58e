package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/definition"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/consume/remote"
)

// What Kubernetes' snapshot controller and a CSI driver do for others, for volumes at peers: a VolumeSnapshot of such a volume is made at that peer, whose
// Kubernetes makes it. Its content here, of driver v1alpha1.StorageProvisioner, says which peer that is. Snapshots of volumes at home are the engine's.

// How often it is looked whether one is ready: as long as it takes already, within bounds; and until what was refused is asked for again.
const (
	snapshotLook    = time.Second
	snapshotSlow    = 10 * time.Second
	snapshotRefused = time.Minute
)

// watchSnapshots makes snapshots from when the cluster knows the kinds, unless somebody else defined them.
func (c *Controller) watchSnapshots(mgr manager.Manager, options controller.Options) error {
	kinds, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("snapshots of volumes: %w", err)
	}
	ours := func(o metav1.Object) bool { return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy }
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(ctx context.Context) (bool, error) {
			_, err := c.readHeld(ctx, ctrl.Request{})
			if err != nil {
				c.log.Debug("snapshots at peers, and what they leave", "err", err)
			}
			_, known := c.HeldSnapshots()
			return known, nil
		}) != nil {
			return nil // it ended
		}
		for _, kind := range []string{snapshotv1.Snapshots.Resource, snapshotv1.Contents.Resource, snapshotv1.Classes.Resource} {
			if !definition.Await(ctx, kinds, kind+"."+snapshotv1.GroupVersion.Group, ours) {
				return nil
			}
		}
		err := wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(ctx context.Context) (bool, error) {
			err := c.defineSnapshotClass(ctx)
			if err != nil {
				c.log.Debug("there is no class of snapshots at peers yet", "err", err)
			}
			return err == nil, nil
		})
		if err != nil {
			return nil // it ended
		}
		if err := c.followSnapshots(mgr, options); err != nil {
			return fmt.Errorf("snapshots of volumes: %w", err)
		}
		return nil
	}))
}

func (c *Controller) followSnapshots(mgr manager.Manager, options controller.Options) error {
	of := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, client.ObjectKeyFromObject(o))
		if err != nil {
			return nil
		}
		ref := content.Spec.Snapshot
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}}}
	})
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-snapshots").
		For(metadataOf(snapshotv1.KindSnapshot)).Watches(metadataOf(snapshotv1.KindContent), of).
		WithOptions(options).Complete(reconcile.Func(c.snapshot)); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-snapshot-contents").For(metadataOf(snapshotv1.KindContent)).
		Watches(metadataOf(snapshotv1.KindSnapshot), handler.EnqueueRequestsFromMapFunc(c.deletedContents), builder.WithPredicates(goes)).
		WithOptions(options).Complete(reconcile.Func(c.content)); err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-snapshot-capacity").Watches(metadataOf(snapshotv1.KindContent), all).
		WithOptions(controller.Options{NewQueue: queues.New}).Complete(reconcile.Func(c.readHeld))
}

// readHeld notes which snapshots there are at peers, and what these leave of what is granted.
func (c *Controller) readHeld(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	held, err := Snapshots(ctx, c.fresh, "", "")
	if err != nil {
		return ctrl.Result{}, err
	}
	c.held.Store(&held)
	return c.capacities(ctx, r)
}

// goes passes what is deleted, or gone.
var goes = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(e event.UpdateEvent) bool { return e.ObjectNew.GetDeletionTimestamp() != nil },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// deletedContents are the contents that were deleted before their VolumeSnapshots, and wait for these. Which one waits for which, a VolumeSnapshot that is
// gone does not tell.
func (c *Controller) deletedContents(ctx context.Context, _ client.Object) (wait []reconcile.Request) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindContent + "List"))
	if err := c.client.List(ctx, &all); err != nil {
		c.log.Warn("contents of snapshots that were deleted first wait until kithd starts again", "err", err)
	}
	for i := range all.Items {
		if is := &all.Items[i]; is.DeletionTimestamp != nil && slices.Contains(is.Finalizers, snapshotv1.FinalizerContent) {
			wait = append(wait, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(is)})
		}
	}
	return wait
}

// defineSnapshotClass makes the class of snapshots at peers, unless it is there; what becomes of the data is the owner's choice from then on.
func (c *Controller) defineSnapshotClass(ctx context.Context) error {
	u, err := snapshotv1.Write(&snapshotv1.Class{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.GroupVersion.String(), Kind: snapshotv1.KindClass},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.StorageClassName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, Annotations: map[string]string{snapshotv1.AnnotationDefault: "true"}},
		Driver:     v1alpha1.StorageProvisioner, DeletionPolicy: snapshotv1.Delete,
	})
	if err != nil {
		return err
	}
	if err := c.client.Create(ctx, u); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// snapshot does for a VolumeSnapshot what it needs now; for one of another driver's, nothing.
func (c *Controller) snapshot(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	result, err := c.snapshotted(ctx, r.NamespacedName)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: pendingPause}, nil
	}
	return result, err
}

func (c *Controller) snapshotted(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	snap, err := readSnapshotKind[snapshotv1.Snapshot](ctx, c.fresh, snapshotv1.KindSnapshot, key)
	switch {
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case snap.DeletionTimestamp != nil:
		return ctrl.Result{}, c.letSnapshotGo(ctx, snap)
	case snap.Status.Ready:
		return ctrl.Result{}, nil
	}
	content, err := c.contentOf(ctx, snap)
	if no, never := errors.AsType[*unfitError](err); never {
		return ctrl.Result{RequeueAfter: unfitPause}, c.saySnapshot(ctx, snap, no.why)
	}
	if errors.Is(err, errPending) {
		return ctrl.Result{RequeueAfter: snapshotSlow}, nil
	}
	if err != nil || content == nil {
		return ctrl.Result{}, err
	}
	is, err := heldOf(content)
	if err != nil {
		return ctrl.Result{RequeueAfter: unfitPause}, c.saySnapshot(ctx, snap, err.Error())
	}
	asks := &remote.Snapshot{UID: is.UID}
	if of := strings.Split(content.Spec.Source.Volume, "/"); len(of) == 4 {
		asks.Claim, asks.ClaimUID = of[2], types.UID(of[3])
	}
	state, err := c.peers.Snapshot(ctx, is.Peer, is.Namespace, is.Name, asks)
	switch {
	case err != nil:
		why := said(err)
		if no, ok := errors.AsType[*peering.Problem](err); ok && no.Do != "" {
			why += "; " + no.Do
		}
		if final(err) || errors.Is(err, &peering.Problem{Code: peering.CodeConflict}) {
			return ctrl.Result{RequeueAfter: snapshotRefused}, c.saySnapshot(ctx, snap, why)
		}
		return ctrl.Result{}, errors.Join(fmt.Errorf("snapshot %s at %s: %w", key, is.Peer, err), c.saySnapshot(ctx, snap, why))
	case !state.Ready && content.Status.Handle == "":
		if err := c.patchStatus(ctx, snapshotv1.KindContent, &content.ObjectMeta, snapshotv1.ContentStatus{Handle: is.handle()}); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: snapshotLook}, nil
	case !state.Ready:
		look := min(max(time.Since(snap.CreationTimestamp.Time)/4, snapshotLook), snapshotSlow)
		if state.Why == "" {
			return ctrl.Result{RequeueAfter: look}, nil
		}
		return ctrl.Result{RequeueAfter: look}, c.saySnapshot(ctx, snap, "at "+is.Peer+": "+state.Why)
	}
	made := snapshotv1.ContentStatus{Handle: is.handle(), CreationTime: state.CreationTime.UnixNano(), RestoreSize: &state.Size, Ready: true}
	if err := c.patchStatus(ctx, snapshotv1.KindContent, &content.ObjectMeta, made); err != nil {
		return ctrl.Result{}, err
	}
	err = c.patchStatus(ctx, snapshotv1.KindSnapshot, &snap.ObjectMeta, snapshotv1.SnapshotStatus{
		Content: content.Name, CreationTime: new(metav1.NewTime(state.CreationTime)), Ready: true, RestoreSize: resource.NewQuantity(state.Size, resource.BinarySI),
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	c.log.Info("a snapshot of a volume is made at a peer", "namespace", snap.Namespace, "snapshot", snap.Name, "claim", snap.Spec.Source.Claim, "peer", is.Peer)
	return ctrl.Result{}, nil
}

// contentOf is the content of a snapshot, which it makes; nil for one that is not for this controller to make. The error is an *unfitError where there is
// none, and errPending while there is nothing to make one of.
func (c *Controller) contentOf(ctx context.Context, snap *snapshotv1.Snapshot) (*snapshotv1.Content, error) {
	var class *snapshotv1.Class
	var err error
	if snap.Spec.Class != "" {
		class, err = readSnapshotKind[snapshotv1.Class](ctx, c.fresh, snapshotv1.KindClass, client.ObjectKey{Name: snap.Spec.Class})
		if err != nil || class.Driver != v1alpha1.StorageProvisioner {
			return nil, client.IgnoreNotFound(err)
		}
	}
	if snap.Spec.Source.Content != "" {
		return c.boundContent(ctx, snap)
	}
	name := snapshotv1.ContentFor(snap.UID)
	content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, client.ObjectKey{Name: name})
	switch {
	case err == nil && (content.Spec.Driver != v1alpha1.StorageProvisioner || content.Spec.Snapshot.UID != snap.UID || content.DeletionTimestamp != nil):
		return nil, nil
	case !apierrors.IsNotFound(err):
		return content, err
	}
	v, err := c.volumeOf(ctx, client.ObjectKey{Namespace: snap.Namespace, Name: snap.Spec.Source.Claim})
	if err != nil {
		return nil, err
	}
	if AtPeer(v) == "" {
		if class == nil {
			return nil, nil
		}
		return nil, &unfitError{fmt.Sprintf("volume %s is at home, and VolumeSnapshotClass %s is for those at peers: leave volumeSnapshotClassName out", v.Name, class.Name)}
	}
	if class == nil {
		if class, err = c.defaultSnapshotClass(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.hold(ctx, snapshotv1.KindSnapshot, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot, map[string]any{"spec": map[string]any{"volumeSnapshotClassName": class.Name}}); err != nil {
		return nil, err
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	about := metav1.ObjectMeta{Name: name, Finalizers: []string{snapshotv1.FinalizerContent}, Annotations: map[string]string{v1alpha1.AnnotationSize: size.String()}}
	if of := ClassOf(v); of != "" {
		about.Annotations[v1alpha1.AnnotationClass] = of
	}
	u, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": about,
		"spec": snapshotv1.ContentSpec{
			Snapshot:       corev1.ObjectReference{APIVersion: snapshotv1.GroupVersion.String(), Kind: snapshotv1.KindSnapshot, Namespace: snap.Namespace, Name: snap.Name, UID: snap.UID},
			DeletionPolicy: class.DeletionPolicy, Driver: v1alpha1.StorageProvisioner, Class: class.Name,
			Source: snapshotv1.ContentSource{Volume: v.Spec.CSI.VolumeHandle}, Mode: new(corev1.PersistentVolumeFilesystem),
		},
	})
	if err != nil {
		return nil, err
	}
	if err := c.client.Create(ctx, u); err != nil {
		return nil, fmt.Errorf("VolumeSnapshotContent %s: %w", name, err)
	}
	return snapshotv1.Read[snapshotv1.Content](u)
}

// boundContent is the content that a snapshot names, of what is at a peer already.
func (c *Controller) boundContent(ctx context.Context, snap *snapshotv1.Snapshot) (*snapshotv1.Content, error) {
	name := snap.Spec.Source.Content
	content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, client.ObjectKey{Name: name})
	if err != nil || content.Spec.Driver != v1alpha1.StorageProvisioner {
		return nil, client.IgnoreNotFound(err)
	}
	of := content.Spec.Snapshot
	if of.Namespace != snap.Namespace || of.Name != snap.Name || of.UID != "" && of.UID != snap.UID || content.DeletionTimestamp != nil {
		return nil, &unfitError{fmt.Sprintf("VolumeSnapshotContent %s is not for this snapshot: its volumeSnapshotRef is %s/%s, uid %q", name, of.Namespace, of.Name, of.UID)}
	}
	if is, err := heldOf(content); err != nil || is.Namespace != snap.Namespace {
		return nil, &unfitError{fmt.Sprintf("VolumeSnapshotContent %s names no snapshot of this namespace at a peer", name)}
	}
	if err := c.hold(ctx, snapshotv1.KindSnapshot, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot, map[string]any{}); err != nil {
		return nil, err
	}
	uid := map[string]any{"spec": map[string]any{"volumeSnapshotRef": map[string]any{"uid": snap.UID}}}
	return content, c.hold(ctx, snapshotv1.KindContent, &content.ObjectMeta, snapshotv1.FinalizerContent, uid)
}

// volumeOf is the volume of a claim that is bound; else the error is errPending.
func (c *Controller) volumeOf(ctx context.Context, key client.ObjectKey) (*corev1.PersistentVolume, error) {
	var claim corev1.PersistentVolumeClaim
	var v corev1.PersistentVolume
	err := c.fresh.Get(ctx, key, &claim)
	if err == nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" {
		err = c.fresh.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &v)
		if err == nil && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == claim.UID {
			return &v, nil
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("volume of claim %s: %w", key, err)
	}
	return nil, errPending
}

// defaultSnapshotClass is the class of snapshots at peers that name none.
func (c *Controller) defaultSnapshotClass(ctx context.Context) (*snapshotv1.Class, error) {
	all, err := listSnapshotKind[snapshotv1.Class](ctx, c.fresh, snapshotv1.KindClass)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(class *snapshotv1.Class) bool {
		return class.Driver == v1alpha1.StorageProvisioner && class.Annotations[snapshotv1.AnnotationDefault] == "true"
	})
	if i < 0 {
		return nil, &unfitError{fmt.Sprintf("volumeSnapshotClassName: no VolumeSnapshotClass of driver %s is the default one: name one, or annotate it (%s)", v1alpha1.StorageProvisioner, snapshotv1.AnnotationDefault)}
	}
	return all[i], nil
}

// letSnapshotGo lets a deleted VolumeSnapshot go, and its content, unless that is retained: which stays until its peer can be reached. The VolumeSnapshot
// does not, or its namespace would.
func (c *Controller) letSnapshotGo(ctx context.Context, snap *snapshotv1.Snapshot) error {
	if !slices.Contains(snap.Finalizers, snapshotv1.FinalizerSnapshot) {
		return nil
	}
	name := snap.Spec.Source.Content
	if name == "" {
		name = snapshotv1.ContentFor(snap.UID)
	}
	content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, client.ObjectKey{Name: name})
	switch {
	case apierrors.IsNotFound(err):
		class, err := readSnapshotKind[snapshotv1.Class](ctx, c.fresh, snapshotv1.KindClass, client.ObjectKey{Name: snap.Spec.Class})
		if err != nil || class.Driver != v1alpha1.StorageProvisioner {
			return client.IgnoreNotFound(err) // the engine lets go of what is nobody's
		}
	case err != nil || content.Spec.Driver != v1alpha1.StorageProvisioner:
		return err
	case content.Spec.Snapshot.UID != snap.UID, content.Spec.DeletionPolicy != snapshotv1.Delete:
	case content.DeletionTimestamp == nil:
		u := unstructuredOf(snapshotv1.KindContent, "", name)
		if err := c.client.Delete(ctx, u, client.Preconditions{UID: &content.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("VolumeSnapshotContent %s: %w", name, err)
		}
	}
	return c.releaseFinalizer(ctx, snapshotv1.KindSnapshot, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot)
}

// content deletes what a deleted VolumeSnapshotContent stands for, at its peer, unless that is retained.
func (c *Controller) content(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	content, err := readSnapshotKind[snapshotv1.Content](ctx, c.fresh, snapshotv1.KindContent, r.NamespacedName)
	if err != nil || content.Spec.Driver != v1alpha1.StorageProvisioner || content.DeletionTimestamp == nil || !slices.Contains(content.Finalizers, snapshotv1.FinalizerContent) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if has, err := c.has(ctx, content.Spec.Snapshot); err != nil || has {
		return ctrl.Result{}, err
	}
	is, err := heldOf(content)
	switch {
	case err != nil:
		c.log.Warn("a VolumeSnapshotContent was deleted, and nothing at a peer with it", "content", r.Name, "err", err)
		return ctrl.Result{}, c.releaseFinalizer(ctx, snapshotv1.KindContent, &content.ObjectMeta, snapshotv1.FinalizerContent)
	case content.Spec.DeletionPolicy == snapshotv1.Delete:
		if err := c.unsnapshot(ctx, &is); err != nil {
			return ctrl.Result{}, fmt.Errorf("snapshot %s/%s at %s: %w", is.Namespace, is.Name, is.Peer, err)
		}
	}
	if err := c.releaseFinalizer(ctx, snapshotv1.KindContent, &content.ObjectMeta, snapshotv1.FinalizerContent); err != nil {
		return ctrl.Result{}, err
	}
	c.log.Info("a content of a snapshot at a peer is let go", "namespace", is.Namespace, "snapshot", is.Name, "peer", is.Peer, "policy", content.Spec.DeletionPolicy)
	c.peers.Review(is.Namespace)
	return ctrl.Result{}, nil
}

// has reports whether the VolumeSnapshot of a content is there, and not deleted.
func (c *Controller) has(ctx context.Context, of corev1.ObjectReference) (bool, error) {
	snap, err := readSnapshotKind[snapshotv1.Snapshot](ctx, c.fresh, snapshotv1.KindSnapshot, client.ObjectKey{Namespace: of.Namespace, Name: of.Name})
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return snap.UID == of.UID && snap.DeletionTimestamp == nil, nil
}

// unsnapshot has a peer delete a snapshot, unless another content here stands for it, too: of contents that are all deleted none waits for another.
func (c *Controller) unsnapshot(ctx context.Context, is *HeldSnapshot) error {
	all, err := Snapshots(ctx, c.fresh, is.Peer, is.Namespace)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.UID != is.UID || other.Content == is.Content {
			continue
		}
		stands := true
		if other.Deleted {
			if stands, err = c.has(ctx, other.Of); err != nil {
				return err
			}
		}
		if stands {
			return nil
		}
	}
	err = c.peers.Unsnapshot(ctx, is.Peer, is.Namespace, is.Name, is.UID)
	if errors.Is(err, ErrNoContract) {
		c.log.Warn("a snapshot was deleted that is at a peer without a contract; the peer deletes it by itself in some days", "peer", is.Peer, "namespace", is.Namespace, "snapshot", is.Name)
		return nil
	}
	return err
}
