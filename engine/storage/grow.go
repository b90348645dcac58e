package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/api/v1alpha1"
)

// provisioner is upstream's annotation of claims.
const provisioner = "volume.kubernetes.io/storage-provisioner"

// grows reports whether a claim asks for more than its volume has, and this provisioner is to give it.
func grows(claim *corev1.PersistentVolumeClaim) bool {
	wants, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return claim.Annotations[provisioner] == Provisioner && claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" && wants.Cmp(has) > 0
}

// grower makes volumes as large as their claims ask for, as external resizers do. The parts of it are done once more after whatever breaks off: each
// is done already or not, and none makes anything smaller.
type grower struct {
	*folders
	events record.EventRecorder
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]

	// Both are under the lock of the images.
	waiting map[cache.ObjectName]bool  // those whose volumes grow between two pods
	grown   map[cache.ObjectName]int64 // how large the volumes are that did, until the claims say so
}

// watchGrowth has the claims of an informer grow until ctx ends. It begins before that is started.
func watchGrowth(ctx context.Context, f *folders, claims cache.SharedIndexInformer) error {
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: f.client.CoreV1().Events("")})
	g := &grower{
		folders: f, events: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Provisioner}),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Second, time.Minute)),
		waiting: map[cache.ObjectName]bool{}, grown: map[cache.ObjectName]int64{},
	}
	add := func(o any) {
		if claim := o.(*corev1.PersistentVolumeClaim); grows(claim) {
			g.queue.Add(cache.ObjectName{Namespace: claim.Namespace, Name: claim.Name})
		}
	}
	if _, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		g.queue.ShutDown()
		events.Shutdown()
	}()
	go func() {
		for g.next(ctx) {
		}
	}()
	return nil
}

func (g *grower) next(ctx context.Context) bool {
	name, ended := g.queue.Get()
	if ended {
		return false
	}
	defer g.queue.Done(name)
	claim, err := g.client.CoreV1().PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		claim = nil // the client gives an empty one
	} else if grows(claim) {
		err = g.grow(ctx, claim)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		g.images.Lock()
		delete(g.grown, name)
		g.images.Unlock()
		g.queue.Forget(name)
	case apierrors.IsConflict(err):
		g.queue.AddAfter(name, time.Second)
	case errors.Is(err, errInUse):
		g.waits(ctx, claim)
	default:
		g.failed(name, claim, err)
	}
	return true
}

// failed says of a claim why its volume is not larger, unless it could not be read, and has it tried again.
func (g *grower) failed(name cache.ObjectName, claim *corev1.PersistentVolumeClaim, err error) {
	if claim != nil {
		g.events.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", err.Error())
	}
	g.queue.AddRateLimited(name)
}

// grow makes the volume of a claim larger where its size is a limit, and says how large it is then: first of the volume, then of the claim.
func (g *grower) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	v, err := g.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("volume %s: %w", claim.Spec.VolumeName, err)
	}
	if of := v.Spec.ClaimRef; of == nil || of.UID != claim.UID || v.Annotations[provisionedBy] != Provisioner || v.Spec.Local == nil {
		return nil // somebody else's
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if path, is := g.image(v); is {
		err := g.enlarge(cache.MetaObjectToName(claim), path, size.Value())
		if errors.Is(err, errInUse) {
			if err := g.pend(ctx, claim); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	} else if _, ofGuest := v1alpha1.ClassOfGuests(v.Spec.StorageClassName); ofGuest {
		return fmt.Errorf("volume %s: its size is a limit, and its file system is not on this node", v.Name)
	}
	if has := v.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) < 0 {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"capacity":{"storage":%q}}}`, v.ResourceVersion, size.String())
		if _, err := g.client.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("size of volume %s: %w", v.Name, err)
		}
	}
	next := claim.DeepCopy()
	next.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, isPending)
	if _, err := g.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("size of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	g.events.Eventf(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "its volume has %s", size.String())
	return nil
}

// enlarge makes the volume of a claim larger, or says that it waits. One that waits may be unmounted, and stays so.
func (g *grower) enlarge(claim cache.ObjectName, path string, size int64) error {
	g.images.Lock()
	defer g.images.Unlock()
	switch {
	case g.grown[claim] >= size:
		return nil
	case g.waiting[claim], g.apart[path]:
		if err := lengthen(path, size); err != nil {
			return err
		}
		return errInUse
	}
	return growImage(path, size)
}

// pend says of a claim that its file system grows as soon as nobody has it.
func (g *grower) pend(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if slices.ContainsFunc(claim.Status.Conditions, isPending) {
		return nil
	}
	next := claim.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: errInUse.Error(),
	})
	if _, err := g.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say of claim %s/%s that its file system is to grow: %w", claim.Namespace, claim.Name, err)
	}
	g.events.Event(claim, corev1.EventTypeNormal, "FileSystemResizeRequired", errInUse.Error())
	return nil
}

func isPending(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
}

// image gives where the file system of a guest's volume is mounted; false for what is none here.
func (f *folders) image(v *corev1.PersistentVolume) (path string, is bool) {
	if v.Spec.Local == nil || filepath.Base(v.Spec.Local.Path) != inImage || nodeOf(v) != f.node {
		return "", false
	}
	path = filepath.Dir(v.Spec.Local.Path)
	_, ofGuest := v1alpha1.ClassOfGuests(v.Spec.StorageClassName)
	return path, ofGuest && filepath.Dir(path) == f.root
}
