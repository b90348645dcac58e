package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// content does for a VolumeSnapshotContent what it needs now: of a deleted one the files go, unless they are retained; one that somebody made for files
// that are there says so.
func (s *snapshotter) content(ctx context.Context, name string) error {
	content, err := get[snapshotv1.Content](ctx, s.kinds, snapshotv1.Contents, asked{Name: name})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || content.Spec.Driver != snapshotv1.Driver {
		return err
	}
	of := cache.ObjectName{Namespace: content.Spec.Snapshot.Namespace, Name: content.Spec.Snapshot.Name}
	if content.DeletionTimestamp == nil {
		if err := s.adopt(ctx, content); err != nil {
			return err
		}
		s.wake(of)
		return nil
	}
	if !slices.Contains(content.Finalizers, snapshotv1.FinalizerContent) {
		return nil
	}
	snap, err := get[snapshotv1.Snapshot](ctx, s.kinds, snapshotv1.Snapshots, of)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err == nil && snap.UID == content.Spec.Snapshot.UID && snap.DeletionTimestamp == nil:
		return nil // its snapshot has it; the deletion of that brings us back
	}
	kept, err := s.named(ctx, content)
	if err != nil {
		return err
	}
	if content.Spec.DeletionPolicy == snapshotv1.Delete && !kept {
		if err := s.remove(handleOf(content)); err != nil {
			return fmt.Errorf("files of snapshot %s: %w", content.Name, err)
		}
		s.log.Info("the files of a snapshot are deleted", "namespace", of.Namespace, "snapshot", of.Name, "content", content.Name)
	}
	if err := s.release(ctx, snapshotv1.Contents, &content.ObjectMeta, snapshotv1.FinalizerContent); err != nil {
		return err
	}
	s.wake(of)
	return nil
}

// named reports whether another content names the files of a deleted one; they are its own then.
func (s *snapshotter) named(ctx context.Context, deleted *snapshotv1.Content) (bool, error) {
	all, err := s.kinds.Resource(snapshotv1.Contents).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range all.Items {
		c, err := snapshotv1.Read[snapshotv1.Content](&all.Items[i])
		if err != nil {
			return false, err
		}
		if c.Name != deleted.Name && c.DeletionTimestamp == nil && c.Spec.Driver == snapshotv1.Driver && handleOf(c) == handleOf(deleted) {
			return true, nil
		}
	}
	return false, nil
}

// wake has a content's snapshot looked at again. One that names no namespace names none.
func (s *snapshotter) wake(snapshot cache.ObjectName) {
	if snapshot.Namespace != "" {
		s.queue.Add(snapshot)
	}
}

// adopt has a content say what is there of it that somebody made for a snapshot that is there.
func (s *snapshotter) adopt(ctx context.Context, content *snapshotv1.Content) error {
	handle := content.Spec.Source.Snapshot
	if content.Status.Ready || handle == "" && content.Name == snapshotv1.ContentFor(content.Spec.Snapshot.UID) { // that one is made here
		return nil
	}
	status, why := snapshotv1.ContentStatus{Handle: handle}, ""
	if handle == "" {
		why = "source.volumeHandle: no snapshot is made for a content that is there already: name a snapshot that there is (source.snapshotHandle), or make a VolumeSnapshot of the claim"
	} else if is, err := s.snapshotAt(handle); err != nil {
		why = fmt.Sprintf("there is no snapshot %q here", handle)
	} else {
		status.Ready, status.CreationTime, status.RestoreSize = true, is.ModTime().UnixNano(), s.sizeOf(handle)
	}
	if why != "" {
		if no := content.Status.Error; no != nil && no.Message == why {
			return nil
		}
		status.Error = &snapshotv1.Error{Time: new(metav1.Now()), Message: why}
	}
	return s.status(ctx, snapshotv1.Contents, &content.ObjectMeta, status)
}

func (s *snapshotter) snapshotAt(handle string) (os.FileInfo, error) {
	path, err := s.pathOf(handle)
	if err != nil {
		return nil, err
	}
	return os.Lstat(path)
}

func writeSize(path string, size int64) error {
	if err := os.WriteFile(path, strconv.AppendInt(nil, size, 10), 0o600); err != nil {
		return err
	}
	return syncFile(path)
}

// sizeOf is how large the volume was of a snapshot that is there; nil where that was not noted.
func (s *snapshotter) sizeOf(handle string) *int64 {
	text, err := os.ReadFile(filepath.Join(s.at, handle, sizeBeside))
	if err != nil {
		return nil
	}
	size, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return nil
	}
	return &size
}

// handleOf names the folder of a content.
func handleOf(c *snapshotv1.Content) string {
	switch {
	case c.Status.Handle != "":
		return c.Status.Handle
	case c.Spec.Source.Snapshot != "":
		return c.Spec.Source.Snapshot
	}
	return c.Name
}

// pathOf is the folder of a snapshot; whatever its handle says, in the folder of snapshots.
func (s *snapshotter) pathOf(handle string) (string, error) {
	if !strings.HasPrefix(handle, snapshotv1.ContentFor("")) || filepath.Base(handle) != handle || strings.HasSuffix(handle, halfSuffix) {
		return "", refuse("%q is no name of a snapshot", handle)
	}
	return filepath.Join(s.at, handle), nil
}

// remove deletes the files of a snapshot. What is left when that breaks off is no snapshot any more.
func (s *snapshotter) remove(handle string) error {
	path, err := s.pathOf(handle)
	if err != nil {
		return nil // there never were any
	}
	release, ok := s.take(filepath.Join(path, inSnapshot))
	if !ok {
		return errBusy
	}
	defer release()
	half := path + halfSuffix
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := gone(os.Rename(path, half)); err != nil {
		return err
	}
	return os.RemoveAll(half)
}

// begin is what a new volume begins with.
type begin struct {
	from  string // folder
	image string // of a guest's snapshot: the file; that folder is not there then
	least resource.Quantity
	users func(context.Context) ([]types.UID, error) // of that folder
}

// beginOf is what the volume of a claim is to begin with; nil for nothing. The error is a *refusedError where asking again changes nothing.
func (f *folders) beginOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*begin, error) {
	if of := claim.Annotations[v1alpha1.AnnotationSnapshot]; of != "" && claim.Namespace == v1alpha1.NamespaceVolumes {
		namespace, name, _ := strings.Cut(of, "/")
		return f.ofSnapshot(ctx, cache.ObjectName{Namespace: namespace, Name: name})
	}
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
		return nil, refuse("dataSourceRef: it is of namespace %s, and volumes of storage class %s begin with what is in their own", *source.Namespace, Class)
	case group == snapshotv1.GroupVersion.Group && source.Kind == snapshotv1.KindSnapshot:
		return f.ofSnapshot(ctx, cache.ObjectName{Namespace: claim.Namespace, Name: source.Name})
	case group == "" && source.Kind == "PersistentVolumeClaim":
		v, err := f.source(ctx, claim.Namespace, source.Name)
		folder := ""
		if err == nil {
			folder, err = f.folder(v)
		}
		if err != nil {
			return nil, fmt.Errorf("dataSource: %w", err)
		}
		return &begin{from: folder, least: v.Spec.Capacity[corev1.ResourceStorage], users: func(ctx context.Context) ([]types.UID, error) { return f.usersOf(ctx, folder) }}, nil
	}
	return nil, refuse("dataSource: volumes of storage class %s begin empty, with a VolumeSnapshot or with a PersistentVolumeClaim", Class)
}

func (f *folders) ofSnapshot(ctx context.Context, name cache.ObjectName) (*begin, error) {
	s := f.snapshots.Load()
	if s == nil {
		return nil, refuse("dataSource: there are no snapshots here")
	}
	snap, err := get[snapshotv1.Snapshot](ctx, s.kinds, snapshotv1.Snapshots, name)
	if err != nil {
		return nil, fmt.Errorf("dataSource: %w", err)
	}
	if !snap.Status.Ready || snap.Status.Content == "" || snap.DeletionTimestamp != nil {
		return nil, fmt.Errorf("dataSource: VolumeSnapshot %s is not ready", name)
	}
	content, err := get[snapshotv1.Content](ctx, s.kinds, snapshotv1.Contents, asked{Name: snap.Status.Content})
	if err != nil {
		return nil, fmt.Errorf("dataSource: %w", err)
	}
	// Whoever may write a snapshot's status need not be who may read its files: the content decides whose they are.
	if content.Spec.Driver != snapshotv1.Driver || content.Spec.Snapshot.UID != snap.UID || !content.Status.Ready || content.DeletionTimestamp != nil {
		return nil, refuse("dataSource: VolumeSnapshot %s has no content here", name)
	}
	path, err := s.pathOf(handleOf(content))
	if err != nil {
		return nil, err
	}
	b := &begin{from: filepath.Join(path, inSnapshot)}
	if image := filepath.Join(path, inSnapshotImage); isFile(image) {
		b.image = image
	}
	if content.Status.RestoreSize != nil {
		b.least = *inBytes(*content.Status.RestoreSize)
	}
	return b, nil
}

func isFile(path string) bool {
	is, err := os.Lstat(path)
	return err == nil && is.Mode().IsRegular()
}

// filledFolder makes a volume's folder with what it begins with; one that is there is right.
func (f *folders) filledFolder(ctx context.Context, name string, b *begin, size resource.Quantity) error {
	path := filepath.Join(f.root, name)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if size.Cmp(b.least) < 0 {
		return refuse("dataSource: the claim asks for %s, and what it is to begin with needs %s", size.String(), b.least.String())
	}
	_, err := f.copyFolder(ctx, b.from, path, b.users)
	return err
}

// inBytes is so many of them as a quantity that people read.
func inBytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// within are the objects of a kind, in a namespace unless that is "".
func within(kinds dynamic.Interface, kind schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return kinds.Resource(kind)
	}
	return kinds.Resource(kind).Namespace(namespace)
}

// get reads an object of one of the kinds.
func get[T any](ctx context.Context, kinds dynamic.Interface, kind schema.GroupVersionResource, name asked) (*T, error) {
	u, err := within(kinds, kind, name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return snapshotv1.Read[T](u)
}
