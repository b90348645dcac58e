package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// waits has a volume grow between two of its pods, once at a time: the claim is queued when that is over, done or not.
func (g *grower) waits(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	name := cache.MetaObjectToName(claim)
	g.images.Lock()
	defer g.images.Unlock()
	if g.waiting[name] {
		return
	}
	g.waiting[name] = true
	go func() {
		err := g.patiently(ctx, claim)
		g.images.Lock()
		delete(g.waiting, name)
		g.images.Unlock()
		g.queued(claim, err)
	}()
}

// patiently tries between until the last pod has let go in time. Meanwhile the next one gets the volume.
func (g *grower) patiently(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	for pause := triedAfter; ; pause = min(2*pause, triedMost) {
		err := g.between(ctx, claim)
		if !errors.Is(err, errSlow) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// between waits until the pods of a claim end, keeps those from the volume that are to start meanwhile, and makes its file system larger when nobody
// has it any more. A pod that finds nothing mounted tries again by itself.
func (g *grower) between(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if err := g.untilFree(ctx, claim); err != nil {
		return err
	}
	claim, err := g.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil || !grows(claim) {
		return err
	}
	v, err := g.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	path, is := g.image(v)
	if !is {
		return nil
	}
	if !g.copies.TryLock() { // not to take it from its pods while another's is copied; and then a pod may have it
		g.copies.Lock()
		defer g.copies.Unlock()
		return errInUse
	}
	g.copies.Unlock()
	if err := gone(roomForCopy(path)); err != nil {
		return fmt.Errorf("volume %s: make it larger: %w", filepath.Base(path), err)
	}
	return g.apartFrom(ctx, cache.MetaObjectToName(claim), path)
}

// apartFrom makes a volume larger that it takes from its pods for that time. Others' volumes are made, made larger and removed meanwhile.
func (g *grower) apartFrom(ctx context.Context, claim cache.ObjectName, path string) error {
	if err := g.setApart(path); err != nil {
		return gone(err) // deleted a moment ago
	}
	err := g.unmounted(ctx, path)
	var size int64
	switch {
	case err != nil:
	case !g.copies.TryLock():
		err = errInUse
	default:
		size, err = growUnused(ctx, path)
		g.copies.Unlock()
	}
	g.images.Lock()
	defer g.images.Unlock()
	delete(g.apart, path)
	if err = errors.Join(err, mountImage(path)); err != nil {
		return fmt.Errorf("volume %s: make it larger: %w", filepath.Base(path), err)
	}
	g.grown[claim] = size
	return nil
}

// setApart has nobody else mount a volume, or remove it.
func (g *grower) setApart(path string) error {
	g.images.Lock()
	defer g.images.Unlock()
	if _, err := os.Lstat(path + imageSuffix); err != nil {
		return err
	}
	if g.apart[path] { // the claim that had it a moment ago has it grow
		return errInUse
	}
	if g.apart == nil {
		g.apart = map[string]bool{}
	}
	g.apart[path] = true
	return nil
}

// untilFree waits until no pod has the claim on this node but such as end.
func (g *grower) untilFree(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	pods, here := g.client.CoreV1().Pods(claim.Namespace), fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", g.node),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed))).String()
	list := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = here
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = here
			return pods.Watch(ctx, o)
		},
	}, g.client)
	changed := make(chan struct{}, 1)
	change := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	now, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: list, ObjectType: &corev1.Pod{}, Transform: func(o any) (any, error) { return slim(o, claim.Name), nil },
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(any) { change() }, UpdateFunc: func(any, any) { change() }, DeleteFunc: func(any) { change() }},
	})
	within, stop := context.WithCancel(ctx)
	var runs sync.WaitGroup
	runs.Go(func() { informer.RunWithContext(within) })
	defer runs.Wait()
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	for !free(now.List(), claim.Name) {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// slim is what is kept of a pod to see whether it has a claim: a guest may have many pods, and many claims that wait for them.
func slim(o any, claim string) any {
	pod, is := o.(*corev1.Pod)
	if !is {
		return o
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return isOf(pod, &v, claim) }); i >= 0 {
		kept.Spec.Volumes = []corev1.Volume{{Name: pod.Spec.Volumes[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return kept
}

// free reports whether each of the pods that has the claim ends, or did.
func free(pods []any, claim string) bool {
	for _, o := range pods {
		pod := o.(*corev1.Pod)
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return isOf(pod, &v, claim) }) {
			return false
		}
	}
	return true
}

// isOf reports whether a volume of a pod is that of a claim.
func isOf(pod *corev1.Pod, v *corev1.Volume, claim string) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim || v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
}

// For how long a volume is kept from pods that start while others end, and how often its device is tried: nobody tells what is mounted in the
// namespaces of containers, whose mounts the kernel takes away after their last process.
const (
	endsWithin = time.Minute
	endsPause  = 50 * time.Millisecond
)

// How long the next pod has, after a last one that did not end within that, to find the volume mounted: kubelets try each two minutes at least.
const (
	triedAfter = 3 * time.Minute
	triedMost  = time.Hour
)

// errSlow: the last pod takes longer to end than a volume is kept from the next one.
var errSlow = fmt.Errorf("its last pod takes more than %s to end: %w", endsWithin, errInUse)

// unmounted takes the mount away that is no pod's, and waits until nobody has the file system mounted, in whatever namespace. Its caller mounts it again,
// whatever happened.
func (g *grower) unmounted(ctx context.Context, path string) error {
	g.images.Lock()
	device, err := unmount(path)
	g.images.Unlock()
	if err != nil {
		return err
	}
	defer device.Close() // the last: it lets go of the file
	err = wait.PollUntilContextTimeout(ctx, endsPause, endsWithin, true, func(context.Context) (bool, error) {
		only, err := os.OpenFile(device.Name(), os.O_RDONLY|unix.O_EXCL, 0)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, only.Close()
	})
	if wait.Interrupted(err) {
		return errSlow
	}
	return err
}

// unmount takes the mount at path away, and gives the device that was mounted there.
func unmount(path string) (*os.File, error) {
	device, err := loopAt(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
		device.Close()
		if errors.Is(err, unix.EBUSY) {
			return nil, errInUse
		}
		return nil, fmt.Errorf("unmount: %w", err)
	}
	return device, nil
}

// queued has a claim looked at once more whose volume was to grow between two pods.
func (g *grower) queued(claim *corev1.PersistentVolumeClaim, err error) {
	name := cache.MetaObjectToName(claim)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		g.queue.Add(name)
	case errors.Is(err, errInUse):
		g.queue.AddAfter(name, time.Second)
	default:
		g.failed(name, claim, err)
	}
}
