package storage

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// newGuests is a shop whose volume is a guest's, of 16 MiB.
func newGuests(t *testing.T) *shop {
	t.Helper()
	aside(t)
	s := newShop(t)
	root := s.root
	s.root = t.TempDir()
	pv, data := guestsVolume(t, s.folders)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	pv.Spec.ClaimRef = s.volume.Spec.ClaimRef
	if _, err := s.client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.volume, s.data = pv, data
	s.fill("word", "one")
	return s
}

var ofAlice = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: "alice", v1alpha1.LabelHomeSnapshot: "7"}

// wantsCounted makes shop/monday as a contract counts it.
func (s *shop) wantsCounted() {
	s.Helper()
	s.wants(ofData)
	patch := `{"metadata":{"labels":{"kith.dev/managed-by":"kith","kith.dev/consumer":"alice","kith.dev/home-snapshot-uid":"7"},"annotations":{"kith.dev/size":"16Mi"}}}`
	if _, err := s.kinds.Resource(snapshotv1.Snapshots).Namespace("shop").Patch(s.Context(), "monday", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) restoreGuests(class, size string) (*corev1.PersistentVolume, error) {
	s.Helper()
	asks := claim("alice", corev1.ReadWriteOnce)
	asks.Name, asks.Spec.Resources.Requests[corev1.ResourceStorage] = "again", resource.MustParse(size)
	asks.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupVersion.Group), Kind: snapshotv1.KindSnapshot, Name: "monday"}
	pv, _, err := s.Provision(s.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}}, PVName: "pvc-2", PVC: asks})
	s.Cleanup(func() { _ = unix.Unmount(filepath.Join(s.root, "pvc-2_shop_again"), unix.MNT_DETACH) })
	return pv, err
}

// A snapshot of a guest's volume is a file of that size, and a volume that begins with it is a guest's.
func TestASnapshotOfAGuestsVolume(t *testing.T) {
	s := newGuests(t)
	s.fill("gone", strings.Repeat("x", 3<<20))
	if err := os.Remove(filepath.Join(s.data, "gone")); err != nil { // the file has a hole there again
		t.Fatal(err)
	}
	s.wantsCounted()
	is, err := s.look()
	if err != nil || !is.Ready || is.RestoreSize.String() != "16Mi" {
		t.Fatalf("%+v, %v", is, err)
	}
	content, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "snapcontent-1"})
	if err != nil || !maps.Equal(content.Labels, ofAlice) || content.Annotations[v1alpha1.AnnotationSize] != "16Mi" {
		t.Errorf("whose it is: %v %v, %v", content.Labels, content.Annotations, err)
	}
	image := filepath.Join(s.at, "snapcontent-1", inSnapshotImage)
	if st, err := os.Stat(image); err != nil || st.Size() != 16<<20 {
		t.Error(st, err)
	}
	s.fill("word", "two") // its file system goes on
	if err := s.Delete(t.Context(), s.volume); err != nil {
		t.Fatal(err)
	}
	if _, err := s.restoreGuests(v1alpha1.GuestStorageClass, "15Mi"); err == nil || !strings.Contains(err.Error(), "needs 16777216") {
		t.Errorf("smaller than that: %v", err)
	}
	if _, err := s.restoreGuests(Class, "16Mi"); err == nil || !strings.Contains(err.Error(), "no other begins with that") {
		t.Errorf("of the laptop's own: %v", err)
	}
	for range 2 {
		pv, err := s.restoreGuests(v1alpha1.GuestStorageClass, "32Mi")
		if err != nil {
			t.Fatal(err)
		}
		var disk unix.Statfs_t
		if got := read(t, filepath.Join(pv.Spec.Local.Path, "word")); got != "one" || filepath.Base(pv.Spec.Local.Path) != inImage {
			t.Errorf("it begins with %q at %s", got, pv.Spec.Local.Path)
		}
		if err := unix.Statfs(pv.Spec.Local.Path, &disk); err != nil || disk.Blocks*uint64(disk.Bsize) < 24<<20 {
			t.Errorf("it has %d bytes, %v", disk.Blocks*uint64(disk.Bsize), err)
		}
	}
	s.deleted(snapshotv1.Contents, asked{Name: "snapcontent-1"})
	s.deleted(snapshotv1.Snapshots, monday)
	if err := s.snapshot(t.Context(), monday); err != nil {
		t.Error(err)
	}
	if left := s.there(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Of a guest's volume there is no snapshot that no contract counts, and none that is larger than it.
func TestNoSnapshotOfAGuestsIsUncounted(t *testing.T) {
	s := newGuests(t)
	s.wants(ofData)
	if is, err := s.look(); err == nil || is.Error == nil || !strings.Contains(is.Error.Message, "is a guest's") || len(s.there()) > 0 {
		t.Errorf("%+v, %v, %q", is, err, s.there())
	}
	path := filepath.Dir(s.data)
	if err := os.Truncate(path+imageSuffix, 64<<20); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(s.at, "image")
	if _, err := s.copyImage(t.Context(), path, into, 16<<20); err == nil || !strings.Contains(err.Error(), "larger meanwhile") {
		t.Error(err)
	}
	if left := s.there(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What this program had rest when it was killed goes on when it starts again; and nothing but a guest's file system ever rests.
func TestAFileSystemGoesOnAfterAKill(t *testing.T) {
	s := newGuests(t)
	path := filepath.Dir(s.data)
	killed, err := s.rest(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = awake(path) })
	if _, err := s.rest(t.Context(), path); !errors.Is(err, errBusy) {
		t.Errorf("twice: %v", err)
	}
	next := &folders{root: s.root} // of the next process
	if _, err := next.rest(t.Context(), path); !errors.Is(err, unix.EBUSY) {
		t.Errorf("twice: %v", err)
	}
	for range 2 {
		Awake(s.root, s.log)
	}
	if err := mountImages(s.root); err != nil {
		t.Fatal(err)
	}
	s.fill("word", "three")
	if thaw, err := next.rest(t.Context(), path); err != nil || thaw() != nil {
		t.Errorf("again: %v", err)
	}
	if err := killed(); !errors.Is(err, unix.EINVAL) { // it went on; and with the process its files are closed
		t.Error(err)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := next.rest(t.Context(), path); !errors.Is(err, errNotMounted) {
		t.Errorf("the laptop's own file system: %v", err)
	}
}

// While the file system of a volume rests, nobody removes it, others' are made, and it goes on when nobody waits for that any more.
func TestARestHoldsUpNobodyElse(t *testing.T) {
	s := newGuests(t)
	path := filepath.Dir(s.data)
	thaw, err := s.rest(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = awake(path) })
	if err := s.Delete(t.Context(), s.volume); err == nil || !strings.Contains(err.Error(), "copied, just now") {
		t.Errorf("removed: %v", err)
	}
	if release, ok := s.take("another"); !ok {
		t.Error("another is taken")
	} else {
		release()
	}
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancelCause(t.Context())
	end(errDeleted)
	for range 20 { // whichever comes first
		if thaw, err := s.rest(over, path); err == nil {
			err = thaw()
			if err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, errDeleted) && !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if thaw, err := s.rest(t.Context(), path); err == nil {
			if err := thaw(); err != nil {
				t.Error(err)
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	s.fill("word", "four")
	if err := s.Delete(t.Context(), s.volume); err != nil {
		t.Error(err)
	}
}

// A copy for which nobody stands still takes what time it takes, until a pod has the volume.
func TestACopyOfWhatIsUnusedEndsWhenAPodStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now().Add(3 * stillMost)
		within, stop := unused(t.Context(), func(context.Context) ([]types.UID, error) {
			if time.Now().Before(started) {
				return nil, nil
			}
			return []types.UID{"one"}, nil
		})
		defer stop()
		<-within.Done()
		if late := time.Since(started); !errors.Is(context.Cause(within), errStarted) || late < 0 || late > unusedLook {
			t.Errorf("%v, %s after it started", context.Cause(within), late)
		}
	})
}

// A copy becomes the same as its file, holes and all, however that changes.
func TestAFileBecomesLikeAnother(t *testing.T) {
	from, into := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "into")
	piece := slices.Repeat([]byte("kith"), 1<<18) // 1 MiB
	write := func(at int64) {
		t.Helper()
		file, err := os.OpenFile(from, os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteAt(piece, at)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := newFile(into); err != nil {
		t.Fatal(err)
	}
	change := []func(){
		func() { write(4<<20 + 7) },
		func() { write(9 << 20) },
		func() {
			if err := os.Truncate(from, 8<<20); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := errors.Join(os.Truncate(from, 0), os.Truncate(from, 8<<20)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for i, do := range change {
		do()
		if err := sameFile(t.Context(), from, into, 64<<20); err != nil {
			t.Fatal(err)
		}
		if read(t, from) != read(t, into) {
			t.Errorf("after change %d they are not the same", i)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(into, &st); err != nil || st.Blocks > 64 {
		t.Errorf("%d blocks of holes, %v", st.Blocks, err)
	}
	if err := sameFile(t.Context(), from, into, 8<<20-1); err == nil {
		t.Error("larger than it may be")
	}
}
