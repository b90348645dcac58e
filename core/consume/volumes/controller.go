package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/consume/remote"
)

// Kubernetes' words between the scheduler, its controller of volumes and provisioners.
const (
	annotationProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annotationProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annotationSelectedNode    = "volume.kubernetes.io/selected-node"
)

// ErrNoContract is said of a peer that lends nothing any more: what it had is kept there for a time, and then deleted.
var ErrNoContract = errors.New("there is no contract with the peer any more")

// Peers are those that lend storage, by their names here.
type Peers interface {
	// Claim has a peer keep a volume for a claim, or make the one that it keeps larger. The peer's own no is a *peering.Problem.
	Claim(ctx context.Context, peer, namespace, name string, claim *remote.Claim) (remote.ClaimState, error)
	// Unclaim has it delete one, with its data. The error is ErrNoContract when nobody can be asked, now or later.
	Unclaim(ctx context.Context, peer, namespace, name string, uid types.UID) error
	// Snapshot has a peer make a snapshot of a volume that it keeps, or say how far that is; Unsnapshot has it delete one, as Unclaim does a volume.
	Snapshot(ctx context.Context, peer, namespace, name string, s *remote.Snapshot) (remote.SnapshotState, error)
	Unsnapshot(ctx context.Context, peer, namespace, name string, uid types.UID) error
	// Copy opens a copy of the files of one: from the peer, or into it.
	Copy(ctx context.Context, peer, namespace, name string, uid types.UID, end remote.CopyEnd) (io.ReadWriteCloser, error)
	// Review has the twin of a namespace at each peer given up if it is not needed any more.
	Review(namespace string)
}

// Controller makes and deletes volumes. Make it with New.
type Controller struct {
	client client.Client
	fresh  client.Reader
	peers  Peers
	node   string // that kithd runs on, "" where that is none of the cluster
	events events.EventRecorder
	log    *slog.Logger

	held      atomic.Pointer[[]HeldSnapshot]
	restoring sync.Map // of claims whose volumes peers are making of snapshots, by their UIDs: types.UID to restoring
}

// New makes a Controller; fresh reads past the cache of c. node is the one that kithd runs on, where volumes at home can be copied.
func New(c client.Client, fresh client.Reader, peers Peers, node string, log *slog.Logger) *Controller {
	return &Controller{client: c, fresh: fresh, peers: peers, node: node, log: log}
}

// HeldSnapshots are this cluster's snapshots at peers, as they were when the last of them changed: who asks reads nothing, and wakes no engine that sleeps.
// They are not known until they were read once.
func (c *Controller) HeldSnapshots() (held []HeldSnapshot, known bool) {
	if held := c.held.Load(); held != nil {
		return *held, true
	}
	return nil, false
}

// SetupWithManager registers the controller.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	c.events = mgr.GetEventRecorder("kith-volumes")
	options := controller.Options{
		MaxConcurrentReconciles: 4, NewQueue: queues.New,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](200*time.Millisecond, time.Minute),
	}
	claims := predicate.NewPredicateFuncs(func(o client.Object) bool {
		claim := o.(*corev1.PersistentVolumeClaim)
		return waits(claim) || begins(claim)
	})
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-claims").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(claims)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(inFront), builder.WithPredicates(bound)).
		WithOptions(options).Complete(reconcile.Func(c.claim)); err != nil {
		return err
	}
	if err := c.watchBehind(mgr, options); err != nil {
		return err
	}
	larger := predicate.NewPredicateFuncs(func(o client.Object) bool {
		claim := o.(*corev1.PersistentVolumeClaim)
		return grows(claim) || provisioned(claim) && slices.ContainsFunc(claim.Status.Conditions, isGrowth)
	})
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-growth").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(larger)).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(c.growing), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).Complete(reconcile.Func(c.grow)); err != nil {
		return err
	}
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetAnnotations()[annotationProvisionedBy] == v1alpha1.StorageProvisioner
	})
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-volumes").
		For(&corev1.PersistentVolume{}, builder.WithPredicates(ours)).
		WithOptions(options).Complete(reconcile.Func(c.volume)); err != nil {
		return err
	}
	if err := c.watchSnapshots(mgr, options); err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-capacity").
		Watches(&corev1.PersistentVolume{}, all, builder.WithPredicates(ours)).
		Watches(&v1alpha1.Contract{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&storagev1.StorageClass{}, all).
		Watches(&storagev1.CSIDriver{}, all). // there is one: the controller begins with it
		WithOptions(controller.Options{NewQueue: queues.New}).Complete(reconcile.Func(c.capacities))
}

// waits reports whether a claim waits for a volume of this provisioner's, at a node that was chosen.
func waits(claim *corev1.PersistentVolumeClaim) bool {
	return provisioned(claim) && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claim.Spec.StorageClassName != nil &&
		claim.Annotations[annotationSelectedNode] != ""
}

// claim makes the volume of one claim, and has deleted what was made for those of its name before it.
func (c *Controller) claim(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	left := c.unwanted(ctx, r.NamespacedName)
	result, err := c.claimed(ctx, r)
	return result, errors.Join(err, left)
}

func (c *Controller) claimed(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.client.Get(ctx, r.NamespacedName, &claim); err != nil || !waits(&claim) && !begins(&claim) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name := "pvc-" + string(claim.UID)
	var is corev1.PersistentVolume
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: name}, &is); !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err // Kubernetes binds it
	}
	var class storagev1.StorageClass
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: *claim.Spec.StorageClassName}, &class); err != nil {
		return ctrl.Result{}, fmt.Errorf("class of claim %s: %w", r, err)
	}
	if class.Provisioner != v1alpha1.StorageProvisioner {
		return ctrl.Result{}, nil
	}
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	node, of := claim.Annotations[annotationSelectedNode], class.Parameters[v1alpha1.ParameterClass]
	volume, node, err := c.provide(ctx, &claim, name, of, node, policy)
	switch {
	case errors.Is(err, errPending):
		return ctrl.Result{RequeueAfter: waitingPause}, c.sayWhy(ctx, &claim, node)
	case errors.Is(err, errRestoring):
		return ctrl.Result{RequeueAfter: min(max(time.Since(claim.CreationTimestamp.Time)/4, restoringPause), restoringSlow)}, nil
	case err != nil:
		c.events.Eventf(&claim, nil, corev1.EventTypeWarning, "ProvisioningFailed", "Provision", "no volume at %s: %s", node, said(err))
		if _, nowhere := errors.AsType[*unfitError](err); nowhere {
			return ctrl.Result{RequeueAfter: unfitPause}, nil
		}
		if final(err) && begins(&claim) { // it can be nowhere else
			return ctrl.Result{RequeueAfter: unfitPause}, nil
		}
		if final(err) {
			return ctrl.Result{}, c.elsewhere(ctx, &claim)
		}
		return ctrl.Result{}, fmt.Errorf("volume of claim %s at %s: %w", r, node, err)
	}
	if err := c.client.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("volume of claim %s: %w", r, err)
	}
	c.restoring.Delete(claim.UID)
	c.log.Info("claim has a volume", "namespace", claim.Namespace, "claim", claim.Name, "node", node)
	c.events.Eventf(&claim, nil, corev1.EventTypeNormal, "ProvisioningSucceeded", "Provision", "its volume is at %s", node)
	return ctrl.Result{}, nil
}

// provide has the volume of a claim made: at the node that was chosen, or, when it begins with something, where that is; and tells at which.
func (c *Controller) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim, name, of, node string, policy corev1.PersistentVolumeReclaimPolicy) (*corev1.PersistentVolume, string, error) {
	from, err := c.beginOf(ctx, claim)
	if err != nil {
		return nil, c.node, err
	}
	if from != nil && from.held != nil {
		v, err := c.restored(ctx, claim, from, name, of, policy)
		return v, from.node, err
	}
	if from != nil {
		v, err := c.backed(ctx, claim, from, name, of, from.node, policy)
		return v, from.node, err
	}
	peer, err := c.peerOf(ctx, node)
	if err != nil {
		return nil, node, err
	}
	if peer == "" {
		v, err := c.backed(ctx, claim, nil, name, of, node, policy)
		return v, node, err
	}
	if err := c.free(peer, claim); err != nil {
		return nil, node, err
	}
	_, err = c.peers.Claim(ctx, peer, claim.Namespace, claim.Name, asked(claim, of, sizeOf(claim)))
	return atPeer(claim, name, of, peer, policy), node, err
}

// peerOf names the peer that a node stands for; "" for one of home's.
func (c *Controller) peerOf(ctx context.Context, node string) (string, error) {
	if !strings.HasPrefix(node, v1alpha1.VirtualNodePrefix) {
		return "", nil
	}
	var n corev1.Node
	if err := c.client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return "", fmt.Errorf("node %s: %w", node, err)
	}
	return n.Labels[v1alpha1.LabelPeer], nil
}

// said is an error for the owner of a claim.
func said(err error) string {
	var no *peering.Problem
	if errors.As(err, &no) {
		return no.Message
	}
	return err.Error()
}

// final reports whether asking the peer again would change nothing.
func final(err error) bool {
	var no *peering.Problem
	return errors.Is(err, errNoFolder) || errors.Is(err, ErrNoContract) || errors.As(err, &no) && slices.Contains([]peering.Code{peering.CodeForbidden, peering.CodeBadRequest, peering.CodeNotFound, peering.CodeNoContract}, no.Code)
}

// elsewhere has the scheduler choose a node for a claim again.
func (c *Controller) elsewhere(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}}}`, claim.ResourceVersion, annotationSelectedNode)
	err := c.client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) {
		return nil // what changed it brings us back
	}
	return client.IgnoreNotFound(err)
}

// volume deletes a volume that its claim left behind.
func (c *Controller) volume(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var v corev1.PersistentVolume
	if err := c.client.Get(ctx, r.NamespacedName, &v); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	left := v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed
	if !left || v.DeletionTimestamp != nil || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		v.Annotations[annotationProvisionedBy] != v1alpha1.StorageProvisioner || v.Spec.ClaimRef == nil {
		return ctrl.Result{}, nil
	}
	// What Kubernetes says of the claim is asked again: the data would be gone.
	var claim corev1.PersistentVolumeClaim
	switch err := c.fresh.Get(ctx, client.ObjectKey{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}, &claim); {
	case err == nil && claim.UID == v.Spec.ClaimRef.UID:
		return ctrl.Result{}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return ctrl.Result{}, err
	}
	if err := c.discard(ctx, &v); err != nil {
		c.events.Eventf(&v, nil, corev1.EventTypeWarning, "VolumeFailedDelete", "Delete", "its data is not deleted yet, and that is tried again: %s", said(err))
		return ctrl.Result{}, fmt.Errorf("data of volume %s: %w", v.Name, err)
	}
	if err := c.client.Delete(ctx, &v, client.Preconditions{UID: &v.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	c.log.Info("volume is deleted, its claim was", "namespace", v.Spec.ClaimRef.Namespace, "claim", v.Spec.ClaimRef.Name, "volume", v.Name)
	c.peers.Review(v.Spec.ClaimRef.Namespace)
	return ctrl.Result{}, nil
}

// discard deletes the data of a volume, where it is.
func (c *Controller) discard(ctx context.Context, v *corev1.PersistentVolume) error {
	peer := AtPeer(v)
	if peer == "" {
		return c.discardBacking(ctx, v)
	}
	err := Discard(ctx, c.peers, v)
	if errors.Is(err, ErrNoContract) {
		c.log.Warn("a claim was deleted whose volume is at a peer without a contract; the peer deletes the data by itself in some days", "peer", peer, "volume", v.Name)
		return nil
	}
	return err
}

// Discard has the peer that a volume is at delete it, with its data.
func Discard(ctx context.Context, peers Peers, v *corev1.PersistentVolume) error {
	namespace, name := ClaimOf(v)
	return peers.Unclaim(ctx, AtPeer(v), namespace, name, types.UID(v.Spec.CSI.VolumeAttributes[attributeUID]))
}

// Namespace is where the claims are whose volumes at home stand for those of class kith.
const Namespace = v1alpha1.NamespaceVolumes

const (
	pendingPause = 500 * time.Millisecond

	// How often a peer is asked whether a volume is whole: as long as it takes already, within bounds.
	restoringPause = 2 * time.Second
	restoringSlow  = time.Minute
)

// errPending: the volume that is to stand for the claim is being made.
var errPending = errors.New("its volume is being made")

// behind is the class at home whose volumes stand behind those that are of it, "" for the default class. The error is an *unfitError where there is none.
func behind(classes []storagev1.StorageClass, of string) (*storagev1.StorageClass, error) {
	if of == "" {
		if class := DefaultClass(classes); class != nil {
			return class, nil
		}
		return nil, errors.New("this cluster has no default storage class")
	}
	i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool {
		return c.Name == of && c.Provisioner != v1alpha1.StorageProvisioner
	})
	if i < 0 {
		return nil, &unfitError{"this cluster has no storage class " + of}
	}
	return &classes[i], nil
}

// ClassAsked tells which storage class the volumes of a class of claims are of where they are made, "" for the default one; whether that may be at
// peers; and whether home has it.
func ClassAsked(classes []storagev1.StorageClass, name string) (class string, movable, home bool) {
	i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 || classes[i].Provisioner != v1alpha1.StorageProvisioner {
		return "", false, false
	}
	class = classes[i].Parameters[v1alpha1.ParameterClass]
	_, none := behind(classes, class)
	return class, true, none == nil
}

// backed is the volume at home that stands for one of a class of this cluster on a node, "" for the default class; from is what it begins with, or nil.
func (c *Controller) backed(ctx context.Context, claim *corev1.PersistentVolumeClaim, from *begin, name, of, node string, policy corev1.PersistentVolumeReclaimPolicy) (*corev1.PersistentVolume, error) {
	var classes storagev1.StorageClassList
	if err := c.fresh.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("storage classes: %w", err)
	}
	class, err := behind(classes.Items, of)
	if err != nil {
		return nil, err
	}
	if err := unfitFor(claim, class); err != nil {
		return nil, err
	}
	if from != nil && class.Provisioner != snapshotv1.Driver {
		return nil, &unfitError{"dataSource: the class " + class.Name + ", which stands behind it at home, is not the built-in one: make the claim of class " + class.Name + " itself"}
	}
	var back corev1.PersistentVolumeClaim
	key := client.ObjectKey{Namespace: Namespace, Name: name}
	if err := c.fresh.Get(ctx, key, &back); apierrors.IsNotFound(err) {
		back = corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
				Annotations: map[string]string{annotationSelectedNode: node, annotationClaim: claim.Namespace + "/" + claim.Name},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode, StorageClassName: &class.Name,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: sizeOf(claim)}},
			},
		}
		from.write(&back)
		if err := c.create(ctx, &back); err != nil {
			return nil, fmt.Errorf("claim of class %s: %w", class.Name, err)
		}
		c.events.Eventf(claim, nil, corev1.EventTypeNormal, "Provisioning", "Provision", "waiting for a volume of class %s at %s, which stands behind it: claim %s/%s", class.Name, node, Namespace, name)
		return nil, errPending
	} else if err != nil {
		return nil, err
	}
	if back.Status.Phase != corev1.ClaimBound {
		return nil, errPending
	}
	var real corev1.PersistentVolume
	if err := c.fresh.Get(ctx, client.ObjectKey{Name: back.Spec.VolumeName}, &real); err != nil {
		return nil, fmt.Errorf("volume of class %s: %w", class.Name, err)
	}
	v := volume(claim, name, policy)
	v.Annotations[annotationBacking] = Namespace + "/" + name
	v.Spec.PersistentVolumeSource, v.Spec.NodeAffinity, v.Spec.MountOptions = real.Spec.PersistentVolumeSource, real.Spec.NodeAffinity, real.Spec.MountOptions
	return v, nil
}

// discardBacking deletes the claim whose volume stands for v; its class says what becomes of the data.
func (c *Controller) discardBacking(ctx context.Context, v *corev1.PersistentVolume) error {
	namespace, name, ok := strings.Cut(v.Annotations[annotationBacking], "/")
	if !ok || namespace != Namespace {
		return nil
	}
	return client.IgnoreNotFound(c.client.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}

const annotationDefault = "storageclass.kubernetes.io/is-default-class"

// DefaultClass is the class that claims without one get, the newest of several as Kubernetes has it; nil without one. Kith's own, whose volumes
// are elsewhere, are none.
func DefaultClass(classes []storagev1.StorageClass) (found *storagev1.StorageClass) {
	for i := range classes {
		c := &classes[i]
		if c.Annotations[annotationDefault] != "true" || c.Provisioner == v1alpha1.StorageProvisioner {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp) || found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	return found
}
