package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// snapshotter makes snapshots of volumes that are folders of this node, as Kubernetes' snapshot controller and a CSI driver do together. A snapshot is a
// folder below at, whose name is that of its VolumeSnapshotContent; the files are in it at inSnapshot.
//
// The content is there before the files are, and until they are gone; so there are none that no object stands for, but those that are retained.
type snapshotter struct {
	*folders
	kinds dynamic.Interface
	at    string
	queue workqueue.TypedRateLimitingInterface[asked]
	log   *slog.Logger

	mu     sync.Mutex
	making cache.ObjectName // whose snapshot is made just now
	stop   context.CancelCauseFunc
}

// inSnapshot is where the files of a snapshot are in its folder, whose own time is their moment; beside them is how large their volume was, in bytes.
const (
	inSnapshot = "data"
	sizeBeside = "size"
)

// asked is a VolumeSnapshot, or a VolumeSnapshotContent, which has no namespace.
type asked = cache.ObjectName

// refusedError is why there is no snapshot, until something else changes than what is asked.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

func refuse(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// refusedPause is until what was refused is looked at again: the volume may be elsewhere by then.
const refusedPause = 5 * time.Minute

// errDeleted ends a copy whose snapshot is not wanted any more.
var errDeleted = errors.New("the snapshot was deleted")

// run makes and deletes snapshots until ctx ends. The kinds are there.
func (s *snapshotter) run(ctx context.Context) error {
	s.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[asked](time.Second, time.Minute))
	add := func(o any) {
		if last, is := o.(cache.DeletedFinalStateUnknown); is {
			o = last.Obj
		}
		is := o.(*metav1.PartialObjectMetadata)
		name := cache.MetaObjectToName(is)
		if is.DeletionTimestamp != nil {
			s.unwanted(name)
		}
		s.queue.Add(name)
	}
	var informers sync.WaitGroup
	defer informers.Wait()
	for _, kind := range []schema.GroupVersionResource{snapshotv1.Snapshots, snapshotv1.Contents} {
		all := s.kinds.Resource(kind)
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					return all.Watch(ctx, o)
				},
			},
			ObjectType: &unstructured.Unstructured{}, Transform: slimSnapshot,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(was, o any) {
				if asksElse(was, o) {
					add(o)
				}
			}, DeleteFunc: add},
		})
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	for s.next(ctx) {
	}
	return nil
}

// asksElse reports whether an object asks for something else than it did. What it says is ours to say.
func asksElse(was, is any) bool {
	a, b := was.(*metav1.PartialObjectMetadata), is.(*metav1.PartialObjectMetadata)
	return a.UID != b.UID || a.Generation != b.Generation || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || !slices.Equal(a.Finalizers, b.Finalizers)
}

// slimSnapshot is what is kept in memory of each: all else is read when it is needed.
func slimSnapshot(o any) (any, error) {
	u, is := o.(*unstructured.Unstructured)
	if !is {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), DeletionTimestamp: u.GetDeletionTimestamp(),
		Generation: u.GetGeneration(), Finalizers: u.GetFinalizers(),
	}}, nil
}

// unwanted ends the copy of a snapshot, if it is being made.
func (s *snapshotter) unwanted(name asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil && s.making == name {
		s.stop(errDeleted)
	}
}

func (s *snapshotter) next(ctx context.Context) bool {
	name, ended := s.queue.Get()
	if ended {
		return false
	}
	defer s.queue.Done(name)
	var err error
	if name.Namespace == "" {
		err = s.content(ctx, name.Name)
	} else {
		err = s.snapshot(ctx, name)
	}
	var no *refusedError
	switch {
	case err == nil, errors.Is(err, errDeleted):
		s.queue.Forget(name)
	case apierrors.IsConflict(err):
		s.queue.AddAfter(name, time.Second)
	case errors.As(err, &no):
		s.queue.Forget(name)
		s.queue.AddAfter(name, refusedPause)
	default:
		if ctx.Err() == nil && !errors.Is(err, errBusy) {
			s.log.Warn("a volume's snapshot", "name", name.String(), "err", err)
		}
		s.queue.AddRateLimited(name)
	}
	return true
}

// snapshot does for a VolumeSnapshot what it needs now.
func (s *snapshotter) snapshot(ctx context.Context, name asked) error {
	snap, err := get[snapshotv1.Snapshot](ctx, s.kinds, snapshotv1.Snapshots, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case snap.DeletionTimestamp != nil:
		return s.letGo(ctx, snap)
	case snap.Status.Ready:
		return nil
	}
	if snap.Spec.Source.Content != "" {
		err = s.bind(ctx, snap)
	} else {
		err = s.make(ctx, snap)
	}
	if err == nil || apierrors.IsConflict(err) || errors.Is(err, errDeleted) {
		return err
	}
	return errors.Join(err, s.say(ctx, snap, err))
}

// make makes the snapshot of a claim's volume.
func (s *snapshotter) make(ctx context.Context, snap *snapshotv1.Snapshot) error {
	class, err := s.class(ctx, snap)
	if err != nil || class == nil {
		return err
	}
	volume, err := s.source(ctx, snap.Namespace, snap.Spec.Source.Claim)
	if err != nil {
		return err
	}
	if atPeer(volume) && snap.Spec.Class == "" {
		return nil // kithd has it made there
	}
	folder, ofGuest := s.image(volume)
	if !ofGuest || !counted(snap.Labels) {
		if folder, err = s.folder(volume); err != nil {
			return err
		}
		ofGuest = false
	}
	if snap.Spec.Class == "" || !slices.Contains(snap.Finalizers, snapshotv1.FinalizerSnapshot) {
		patch := map[string]any{"spec": map[string]any{"volumeSnapshotClassName": class.Name}}
		if err := s.hold(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot, patch); err != nil {
			return err
		}
	}
	content, err := s.contentOf(ctx, snap, class, volume)
	if err != nil {
		return err
	}
	if !content.Status.Ready {
		size := volume.Spec.Capacity[corev1.ResourceStorage]
		moment, err := s.files(ctx, snap, content.Name, size.Value(), func(ctx context.Context, half string) (time.Time, error) {
			if ofGuest {
				return s.copyImage(ctx, folder, filepath.Join(half, inSnapshotImage), max(size.Value(), leastImage))
			}
			return s.copyFolder(ctx, folder, filepath.Join(half, inSnapshot), func(ctx context.Context) ([]types.UID, error) { return s.usersOf(ctx, folder) })
		})
		if err != nil {
			return err
		}
		content.Status = snapshotv1.ContentStatus{Handle: content.Name, CreationTime: moment.UnixNano(), RestoreSize: new(size.Value()), Ready: true}
		if err := s.status(ctx, snapshotv1.Contents, &content.ObjectMeta, content.Status); err != nil {
			return err
		}
		s.log.Info("a snapshot of a volume is made", "namespace", snap.Namespace, "snapshot", snap.Name, "claim", snap.Spec.Source.Claim, "volume", volume.Name)
	}
	return s.status(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, boundTo(content))
}

// class is the one that a snapshot has, or is to have; nil when that is of another driver, whose controller makes it.
func (s *snapshotter) class(ctx context.Context, snap *snapshotv1.Snapshot) (*snapshotv1.Class, error) {
	if snap.Spec.Class != "" {
		class, err := get[snapshotv1.Class](ctx, s.kinds, snapshotv1.Classes, asked{Name: snap.Spec.Class})
		if apierrors.IsNotFound(err) {
			return nil, refuse("there is no VolumeSnapshotClass %s", snap.Spec.Class)
		}
		if err != nil || class.Driver != snapshotv1.Driver {
			return nil, err
		}
		return class, nil
	}
	all, err := s.kinds.Resource(snapshotv1.Classes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		class, err := snapshotv1.Read[snapshotv1.Class](&all.Items[i])
		if err == nil && class.Driver == snapshotv1.Driver && class.Annotations[snapshotv1.AnnotationDefault] == "true" {
			return class, nil
		}
	}
	return nil, refuse("volumeSnapshotClassName: no VolumeSnapshotClass of driver %s is the default one: name one, or annotate it (%s)", snapshotv1.Driver, snapshotv1.AnnotationDefault)
}

// source gives the volume of a claim.
func (f *folders) source(ctx context.Context, namespace, name string) (*corev1.PersistentVolume, error) {
	claim, err := f.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no claim %s/%s", namespace, name)
	}
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return nil, fmt.Errorf("claim %s/%s has no volume yet", namespace, name)
	}
	v, err := f.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", claim.Spec.VolumeName, err)
	}
	if of := v.Spec.ClaimRef; of == nil || of.UID != claim.UID {
		return nil, fmt.Errorf("volume %s is not that of claim %s/%s", v.Name, namespace, name)
	}
	return v, nil
}

// atPeer reports whether a volume of this cluster's is at a peer.
func atPeer(v *corev1.PersistentVolume) bool {
	return v.Spec.CSI != nil && v.Spec.CSI.Driver == v1alpha1.StorageProvisioner
}

// folder is where the files of a volume are, if that can be copied here.
func (f *folders) folder(v *corev1.PersistentVolume) (string, error) {
	if atPeer(v) {
		of := v.Spec.ClaimRef
		return "", refuse("volume %s is at a peer, and storage class %s copies volumes of this node: for a snapshot there leave volumeSnapshotClassName out, or move it here first, `kith volume move %s/%s --to home`", v.Name, Class, of.Namespace, of.Name)
	}
	if _, is := f.image(v); is {
		return "", refuse("volume %s is a guest's: its contract counts no copies of it", v.Name)
	}
	if v.Spec.Local == nil || nodeOf(v) == "" {
		return "", refuse("volume %s is none that storage class %s made", v.Name, Class)
	}
	if on := nodeOf(v); on != f.node {
		return "", refuse("volume %s is on node %s, and volumes are copied on %s alone", v.Name, on, f.node)
	}
	if filepath.Dir(v.Spec.Local.Path) != f.root {
		return "", refuse("volume %s is no folder of those that storage class %s makes", v.Name, Class)
	}
	return v.Spec.Local.Path, nil
}

// contentOf is the content of a snapshot, which it makes.
func (s *snapshotter) contentOf(ctx context.Context, snap *snapshotv1.Snapshot, class *snapshotv1.Class, v *corev1.PersistentVolume) (*snapshotv1.Content, error) {
	name := snapshotv1.ContentFor(snap.UID)
	content, err := get[snapshotv1.Content](ctx, s.kinds, snapshotv1.Contents, asked{Name: name})
	if err == nil && content.DeletionTimestamp != nil {
		return nil, fmt.Errorf("its content %s was deleted", name)
	}
	if err == nil && (content.Spec.Driver != snapshotv1.Driver || content.Spec.Snapshot.UID != snap.UID) {
		return nil, refuse("VolumeSnapshotContent %s is there already, and is another snapshot's", name)
	}
	if !apierrors.IsNotFound(err) {
		return content, err
	}
	want, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent,
		"metadata": metaOf(name, snap),
		"spec": snapshotv1.ContentSpec{
			Snapshot: corev1.ObjectReference{
				APIVersion: snapshotv1.GroupVersion.String(), Kind: snapshotv1.KindSnapshot, Namespace: snap.Namespace, Name: snap.Name, UID: snap.UID,
			},
			DeletionPolicy: class.DeletionPolicy, Driver: snapshotv1.Driver, Class: class.Name,
			Source: snapshotv1.ContentSource{Volume: v.Name}, Mode: new(corev1.PersistentVolumeFilesystem),
		},
	})
	if err != nil {
		return nil, err
	}
	made, err := s.kinds.Resource(snapshotv1.Contents).Create(ctx, want, metav1.CreateOptions{FieldManager: Provisioner})
	if err != nil {
		return nil, fmt.Errorf("VolumeSnapshotContent %s: %w", name, err)
	}
	return snapshotv1.Read[snapshotv1.Content](made)
}

// metaOf is what is noted on the content of a snapshot: of a guest's, whose it is, for when the snapshot is gone.
func metaOf(name string, snap *snapshotv1.Snapshot) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Finalizers: []string{snapshotv1.FinalizerContent}}
	if counted(snap.Labels) {
		m.Labels, m.Annotations = snap.Labels, snap.Annotations
	}
	return m
}

// files makes the copy of a volume of so many bytes in the folder of a snapshot, unless it is there whole, and gives the moment of that.
func (s *snapshotter) files(ctx context.Context, snap *snapshotv1.Snapshot, handle string, size int64, make func(ctx context.Context, half string) (time.Time, error)) (time.Time, error) {
	path := filepath.Join(s.at, handle)
	if is, err := os.Lstat(path); err == nil {
		return is.ModTime(), nil // it ended between the files and the word of them
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.mu.Lock()
	s.making, s.stop = cache.MetaObjectToName(snap), stop
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop = nil
	}()
	// A deletion between the reading of the snapshot and this is not missed.
	now, err := get[snapshotv1.Snapshot](ctx, s.kinds, snapshotv1.Snapshots, cache.MetaObjectToName(snap))
	if err != nil {
		return time.Time{}, err
	}
	if now.DeletionTimestamp != nil || now.UID != snap.UID {
		return time.Time{}, errDeleted
	}
	half := path + halfSuffix
	if err := errors.Join(os.RemoveAll(half), os.Mkdir(half, 0o700)); err != nil {
		return time.Time{}, err
	}
	moment, err := make(ctx, half)
	if err == nil {
		err = writeSize(filepath.Join(half, sizeBeside), size)
	}
	if err == nil {
		err = errors.Join(os.Chtimes(half, moment, moment), syncFile(half))
	}
	if err == nil {
		err = errors.Join(os.Rename(half, path), syncFile(s.at))
	}
	if err != nil {
		return moment, errors.Join(err, os.RemoveAll(half))
	}
	return moment, nil
}

// bind has a snapshot stand for a content that is there already.
func (s *snapshotter) bind(ctx context.Context, snap *snapshotv1.Snapshot) error {
	name := snap.Spec.Source.Content
	content, err := get[snapshotv1.Content](ctx, s.kinds, snapshotv1.Contents, asked{Name: name})
	if apierrors.IsNotFound(err) {
		return refuse("there is no VolumeSnapshotContent %s", name)
	}
	if err != nil || content.Spec.Driver != snapshotv1.Driver {
		return err
	}
	of := content.Spec.Snapshot
	if of.Namespace != snap.Namespace || of.Name != snap.Name || of.UID != "" && of.UID != snap.UID || content.DeletionTimestamp != nil {
		return refuse("VolumeSnapshotContent %s is not for this snapshot: its volumeSnapshotRef is %s/%s, uid %q", name, of.Namespace, of.Name, of.UID)
	}
	if !slices.Contains(snap.Finalizers, snapshotv1.FinalizerSnapshot) {
		if err := s.hold(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot, map[string]any{}); err != nil {
			return err
		}
	}
	if of.UID == "" {
		patch := map[string]any{"spec": map[string]any{"volumeSnapshotRef": map[string]any{"uid": snap.UID}}}
		if err := s.hold(ctx, snapshotv1.Contents, &content.ObjectMeta, snapshotv1.FinalizerContent, patch); err != nil {
			return err
		}
	}
	if !content.Status.Ready {
		return nil // it brings us back
	}
	return s.status(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, boundTo(content))
}

// letGo lets a deleted VolumeSnapshot go: after its content, unless that is retained.
func (s *snapshotter) letGo(ctx context.Context, snap *snapshotv1.Snapshot) error {
	if !slices.Contains(snap.Finalizers, snapshotv1.FinalizerSnapshot) {
		return nil
	}
	name := snap.Spec.Source.Content
	if name == "" {
		name = snapshotv1.ContentFor(snap.UID)
	}
	content, err := get[snapshotv1.Content](ctx, s.kinds, snapshotv1.Contents, asked{Name: name})
	switch {
	case apierrors.IsNotFound(err):
		if another, err := s.anothers(ctx, snap); another || err != nil {
			return err
		}
	case err != nil:
		return err
	case content.Spec.Driver != snapshotv1.Driver:
		return nil // who made that takes it off
	case content.Spec.Snapshot.UID != snap.UID, content.Spec.DeletionPolicy != snapshotv1.Delete:
	case content.DeletionTimestamp == nil:
		return s.kinds.Resource(snapshotv1.Contents).Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(content.UID))})
	default:
		return s.content(ctx, name)
	}
	return s.release(ctx, snapshotv1.Snapshots, &snap.ObjectMeta, snapshotv1.FinalizerSnapshot)
}

// anothers reports whether a snapshot is of another driver's class.
func (s *snapshotter) anothers(ctx context.Context, snap *snapshotv1.Snapshot) (bool, error) {
	if snap.Spec.Class == "" {
		return false, nil
	}
	class, err := get[snapshotv1.Class](ctx, s.kinds, snapshotv1.Classes, asked{Name: snap.Spec.Class})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && class.Driver != snapshotv1.Driver, err
}

// boundTo is what a snapshot says whose content is ready.
func boundTo(c *snapshotv1.Content) snapshotv1.SnapshotStatus {
	status := snapshotv1.SnapshotStatus{Content: c.Name, CreationTime: new(metav1.Unix(0, c.Status.CreationTime)), Ready: true}
	if c.Status.RestoreSize != nil {
		status.RestoreSize = inBytes(*c.Status.RestoreSize)
	}
	return status
}
