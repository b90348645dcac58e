package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
)

// Phase is how far a move is.
type Phase string

// Phases, in their order. Until Switched the volume is where it was, and giving the move up leaves it there.
const (
	Copying  Phase = "Copying"  // while pods go on
	Stopped  Phase = "Stopped"  // no pod has it: what they changed is copied, and all is compared
	Switched Phase = "Switched" // it is at the new place; what is left at the old is deleted
	Failed   Phase = "Failed"   // and it is where it was
)

// Move is the state of a claim's move, as JSON in v1alpha1.AnnotationMove.
type Move struct {
	Phase Phase  `json:"phase"`
	From  string `json:"from"` // nodes
	To    string `json:"to"`
	// Policy is the reclaim policy of the claim's volume.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy,omitempty"`
	Passes int                                  `json:"passes,omitempty"` // copies that ended while pods went on
	Tries  int                                  `json:"tries,omitempty"`  // how often one was in vain
	// Since is when the pods were stopped.
	Since metav1.Time `json:"since,omitzero"`
	Why   string      `json:"why,omitempty"`
}

// MoveOf reads the state of a claim's move; nil when there is none. Whoever may write the claim may have written it: the Mover acts on nothing but
// what belongs to the claim by its UID, and deletes no files where the volume is.
func MoveOf(claim *corev1.PersistentVolumeClaim) *Move {
	m := new(Move)
	if json.Unmarshal([]byte(claim.Annotations[v1alpha1.AnnotationMove]), m) != nil || m.Phase == "" {
		return nil
	}
	return m
}

// Bounds of a move.
const (
	passesMost = 3        // while pods go on
	littleLeft = 64 << 20 // bytes that a pass sent: the rest is copied while no pod runs
	triesMost  = 5
	busyMost   = 5 * time.Minute // how long the pods stay stopped for an end that says it cannot begin yet
)

// Mover moves volumes of the class kith between home and peers, where the annotation v1alpha1.AnnotationMoveTo on their claims says, a node. Make it
// with NewMover.
//
// The files are copied while pods go on (core/base/treecopy). Then a PersistentVolume that is on no node takes the place of the claim's, and the pods
// that have the claim are deleted: those that their controllers make instead wait for the scheduler. What changed is copied, and all is compared; a
// PersistentVolume at the new place takes the place of the other, the pods start there, and the old copy is deleted. Whatever breaks before puts the
// volume back to where it was. The copy at the new place stays, so that the next attempt has less to do.
type Mover struct {
	*Controller

	mu      sync.Mutex
	running map[types.NamespacedName]*copying
}

// NewMover makes a Mover.
func NewMover(c *Controller) *Mover {
	return &Mover{Controller: c, running: map[types.NamespacedName]*copying{}}
}

// SetupWithManager registers the mover. Call it after the Controller's.
func (m *Mover) SetupWithManager(mgr ctrl.Manager) error {
	moves := func(o client.Object) bool {
		a := o.GetAnnotations()
		return a[v1alpha1.AnnotationMoveTo] != "" || a[v1alpha1.AnnotationMove] != "" || controllerutil.ContainsFinalizer(o, v1alpha1.AnnotationMove)
	}
	// A pod that ended may have been the last that had a claim; the cache does not keep what claims a pod has.
	pods := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (all []reconcile.Request) {
		var claims corev1.PersistentVolumeClaimList
		if m.client.List(ctx, &claims, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		for i := range claims.Items {
			if is := MoveOf(&claims.Items[i]); is != nil && is.Phase == Stopped {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
			}
		}
		return all
	})
	ends := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return v1alpha1.Ended(e.ObjectNew.(*corev1.Pod).Status.Phase) && !v1alpha1.Ended(e.ObjectOld.(*corev1.Pod).Status.Phase)
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-moves").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return moves(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				m.look(e.ObjectNew)
				return moves(e.ObjectNew) || moves(e.ObjectOld)
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.Pod{}, pods, builder.WithPredicates(ends)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 2, NewQueue: queues.New,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Second, time.Minute),
		}).Complete(reconcile.Func(m.reconcile))
}

func (m *Mover) reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	claim := new(corev1.PersistentVolumeClaim)
	if err := m.fresh.Get(ctx, r.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := m.size(ctx, claim); err != nil {
		return ctrl.Result{}, err
	}
	to, is := claim.Annotations[v1alpha1.AnnotationMoveTo], MoveOf(claim)
	if is != nil && is.Phase != Failed && claim.Spec.VolumeName != nameOf(claim) {
		return ctrl.Result{}, m.save(ctx, claim, nil) // nobody of ours wrote that
	}
	switch {
	case is != nil && is.Phase == Switched:
		return m.leave(ctx, claim, is)
	case is != nil && is.Phase != Failed && (to != is.To || claim.DeletionTimestamp != nil):
		return m.undo(ctx, claim, is, "")
	case claim.DeletionTimestamp != nil || to == "":
		if err := m.heal(ctx, claim); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, m.save(ctx, claim, nil)
	case is == nil || is.Phase == Failed && is.To != to:
		return m.start(ctx, claim, to)
	case is.Phase == Copying:
		return m.copyOver(ctx, claim, is)
	case is.Phase == Stopped:
		return m.finish(ctx, claim, is)
	}
	return ctrl.Result{}, nil
}

// save writes the state of a move; nil ends it. The finalizer is there while something would have to be undone.
func (m *Mover) save(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move) error {
	next := claim.DeepCopy()
	if is == nil {
		delete(next.Annotations, v1alpha1.AnnotationMove)
		delete(next.Annotations, v1alpha1.AnnotationMoveTo)
		delete(next.Annotations, v1alpha1.AnnotationMoveRate)
	} else {
		text, err := json.Marshal(is)
		if err != nil {
			return err
		}
		next.Annotations[v1alpha1.AnnotationMove] = string(text)
	}
	if is == nil || is.Phase == Failed {
		controllerutil.RemoveFinalizer(next, v1alpha1.AnnotationMove)
	} else {
		controllerutil.AddFinalizer(next, v1alpha1.AnnotationMove)
	}
	if err := m.client.Patch(ctx, next, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("note how far the move of claim %s/%s is: %w", claim.Namespace, claim.Name, err))
	}
	*claim = *next
	return nil
}

// start looks whether a volume can be moved.
func (m *Mover) start(ctx context.Context, claim *corev1.PersistentVolumeClaim, to string) (ctrl.Result, error) {
	refuse := func(why string) (ctrl.Result, error) {
		m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveRefused", "Move", "its volume is not moved to %s: %s", to, why)
		return ctrl.Result{}, m.save(ctx, claim, &Move{Phase: Failed, To: to, Why: why})
	}
	if claim.Spec.VolumeName == "" {
		return refuse("it has none yet; the first pod decides where that is")
	}
	if claim.Spec.VolumeName != nameOf(claim) {
		return refuse("only volumes of the class " + v1alpha1.StorageClassName + " can be")
	}
	var v corev1.PersistentVolume
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, &v); err != nil {
		return ctrl.Result{}, err
	}
	if v.Annotations[annotationProvisionedBy] != v1alpha1.StorageProvisioner || claim.Spec.StorageClassName == nil {
		return refuse("only volumes of the class " + v1alpha1.StorageClassName + " can be")
	}
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return refuse("it is a device, and only file systems are moved")
	}
	from, err := m.nodeOf(&v)
	if err != nil {
		return refuse(err.Error())
	}
	if from == to {
		return ctrl.Result{}, m.save(ctx, claim, nil) // it is there
	}
	if peer, err := m.peerOf(ctx, to); apierrors.IsNotFound(err) || err == nil && peer == "" && to != m.node {
		return refuse("there is no such place: a peer's node, or " + m.node)
	} else if err != nil {
		return ctrl.Result{}, err
	}
	var no *staysError
	err = m.mayGo(ctx, claim, to)
	if err == nil {
		err = m.mayBe(ctx, claim, to)
	}
	if errors.As(err, &no) {
		return refuse(no.Error())
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if alone, err := m.alone(ctx, claim); err != nil || alone != "" {
		if err != nil {
			return ctrl.Result{}, err
		}
		return refuse("pod " + alone + " has no controller that would start it again: delete it first")
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, m.save(ctx, claim, &Move{Phase: Copying, From: from, To: to, Policy: v.Spec.PersistentVolumeReclaimPolicy})
}

// copyOver copies while pods go on.
func (m *Mover) copyOver(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move) (ctrl.Result, error) {
	stats, err := m.copy(ctx, claim, is, false)
	switch {
	case errors.Is(err, errPending):
		return ctrl.Result{RequeueAfter: pendingPause}, nil
	case errors.Is(err, errChanged):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	case busy(err):
		m.events.Eventf(claim, nil, corev1.EventTypeNormal, "MoveWaits", "Move", "its copy to %s waits: %s", is.To, said(err))
		return ctrl.Result{}, fmt.Errorf("copy of claim %s/%s to %s: %w", claim.Namespace, claim.Name, is.To, err)
	case refused(err):
		return m.undo(ctx, claim, is, said(err))
	case gaveUp(err):
		if is.Tries++; is.Tries >= triesMost {
			return m.undo(ctx, claim, is, said(err))
		}
		if err := m.save(ctx, claim, is); err != nil {
			return ctrl.Result{}, err
		}
		fallthrough
	case err != nil:
		m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveInterrupted", "Move", "its copy to %s broke off, and goes on soon: %s", is.To, said(err))
		return ctrl.Result{}, fmt.Errorf("copy of claim %s/%s to %s: %w", claim.Namespace, claim.Name, is.To, err)
	}
	if is.Passes++; stats.Sent <= littleLeft || is.Passes >= passesMost {
		is.Phase, is.Since = Stopped, metav1.Now()
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, m.save(ctx, claim, is)
}

// finish stops the pods, copies what is left, and switches.
func (m *Mover) finish(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move) (ctrl.Result, error) {
	there, err := m.at(ctx, claim, is.To, is.Policy)
	if err != nil {
		return m.again(ctx, claim, is, err)
	}
	var v corev1.PersistentVolume
	if err := m.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, &v); err == nil && samePlace(&v, there) { // it was switched, and kithd ended then
		is.Phase = Switched
		return ctrl.Result{RequeueAfter: time.Millisecond}, m.save(ctx, claim, is)
	}
	alone, err := m.alone(ctx, claim)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case alone != "":
		return m.undo(ctx, claim, is, "pod "+alone+" has no controller that would start it again: delete it first")
	}
	if err := m.put(ctx, claim, is, false); err != nil {
		return ctrl.Result{}, err
	}
	users, err := m.users(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	for i := range users {
		if users[i].DeletionTimestamp == nil {
			if err := m.client.Delete(ctx, &users[i], client.Preconditions{UID: &users[i].UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return ctrl.Result{}, fmt.Errorf("stop pod %s/%s: %w", claim.Namespace, users[i].Name, err)
			}
		}
	}
	if len(users) > 0 {
		return ctrl.Result{}, nil // the last that ends brings us back
	}
	if _, err := m.copy(ctx, claim, is, true); err != nil {
		return m.again(ctx, claim, is, err)
	}
	if err := m.replace(ctx, there); err != nil {
		return ctrl.Result{}, err
	}
	is.Phase = Switched
	return ctrl.Result{RequeueAfter: time.Millisecond}, m.save(ctx, claim, is)
}

// again puts the volume back to where it was, as something broke while no pod had it, and copies once more.
func (m *Mover) again(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move, why error) (ctrl.Result, error) {
	switch {
	case errors.Is(why, errPending), busy(why) && time.Since(is.Since.Time) < busyMost:
		return ctrl.Result{RequeueAfter: pendingPause}, nil
	case errors.Is(why, errChanged):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	if is.Tries++; is.Tries >= triesMost || refused(why) {
		return m.undo(ctx, claim, is, said(why))
	}
	m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveInterrupted", "Move", "its pods start again where they were, and the copy to %s goes on: %s", is.To, said(why))
	if err := m.put(ctx, claim, is, true); err != nil {
		return ctrl.Result{}, err
	}
	is.Phase, is.Passes = Copying, 0
	if err := m.save(ctx, claim, is); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, fmt.Errorf("copy of claim %s/%s to %s: %w", claim.Namespace, claim.Name, is.To, why)
}

// undo leaves the volume where it was, and deletes what was copied; with why the move has failed.
func (m *Mover) undo(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move, why string) (ctrl.Result, error) {
	there, err := m.at(ctx, claim, is.To, is.Policy)
	var v corev1.PersistentVolume
	if gone := m.fresh.Get(ctx, client.ObjectKey{Name: nameOf(claim)}, &v); gone == nil && err == nil && samePlace(&v, there) && is.From != is.To {
		is.Phase = Switched // a moment ago
		return ctrl.Result{RequeueAfter: time.Millisecond}, m.save(ctx, claim, is)
	}
	if claim.DeletionTimestamp == nil {
		if err := m.put(ctx, claim, is, true); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := m.discardAt(ctx, claim, is.To); err != nil {
		m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveInterrupted", "Move", "what was copied to %s is not deleted yet: %s", is.To, said(err))
		return ctrl.Result{}, fmt.Errorf("delete the copy of claim %s/%s at %s: %w", claim.Namespace, claim.Name, is.To, err)
	}
	var next *Move
	if why != "" {
		next = &Move{Phase: Failed, From: is.From, To: is.To, Why: why}
		m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveFailed", "Move", "its volume stays at %s: %s", is.From, why)
	} else {
		m.events.Eventf(claim, nil, corev1.EventTypeNormal, "MoveCancelled", "Move", "its volume stays at %s", is.From)
	}
	m.log.Info("a volume stays where it was", "namespace", claim.Namespace, "claim", claim.Name, "node", is.From, "why", why)
	m.peers.Review(claim.Namespace)
	if to := claim.Annotations[v1alpha1.AnnotationMoveTo]; next == nil && to != "" && to != is.To { // it goes elsewhere
		claim.Annotations[v1alpha1.AnnotationMove] = ""
		return m.start(ctx, claim, to)
	}
	return ctrl.Result{}, m.save(ctx, claim, next)
}

// leave deletes what is left at the old place.
func (m *Mover) leave(ctx context.Context, claim *corev1.PersistentVolumeClaim, is *Move) (ctrl.Result, error) {
	if err := m.discardAt(ctx, claim, is.From); err != nil {
		m.events.Eventf(claim, nil, corev1.EventTypeWarning, "MoveInterrupted", "Move", "it is at %s, and what is left at %s is not deleted yet: %s", is.To, is.From, said(err))
		return ctrl.Result{}, fmt.Errorf("delete the old copy of claim %s/%s at %s: %w", claim.Namespace, claim.Name, is.From, err)
	}
	m.events.Eventf(claim, nil, corev1.EventTypeNormal, "Moved", "Move", "its volume is at %s", is.To)
	m.log.Info("a volume was moved", "namespace", claim.Namespace, "claim", claim.Name, "from", is.From, "to", is.To)
	if err := m.save(ctx, claim, nil); err != nil {
		return ctrl.Result{}, err
	}
	m.peers.Review(claim.Namespace)
	return ctrl.Result{}, nil
}
