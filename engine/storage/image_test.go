package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"kith.dev/core/api/v1alpha1"
)

// guestsVolume is one of 16 MiB, whose data is at the path.
func guestsVolume(t *testing.T, f *folders) (pv *corev1.PersistentVolume, data string) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestStorageClass}}
	asks := claim("alice", corev1.ReadWriteOnce)
	asks.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("16Mi")
	pv, state, err := f.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class, PVName: "pvc-1", PVC: asks})
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	pv.Spec.StorageClassName = v1alpha1.GuestStorageClass
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(f.root, "pvc-1_shop_data"), unix.MNT_DETACH) })
	return pv, pv.Spec.Local.Path
}

// A guest that fills its volume fills no more than that, and what it wrote is there after a restart of the machine.
func TestAVolumeOfAGuestIsAsLargeAsItSays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	if again, _ := guestsVolume(t, f); again.Spec.Local.Path != data || data != filepath.Join(f.root, "pvc-1_shop_data", "data") {
		t.Fatalf("%s, and asked again %s", data, again.Spec.Local.Path)
	}
	if st, err := os.Stat(data); err != nil || st.Mode().Perm() != 0o777 {
		t.Fatal(st, err)
	}
	if in, err := os.ReadDir(data); err != nil || len(in) > 0 {
		t.Errorf("a new volume has %v, %v", in, err)
	}
	if err := os.WriteFile(filepath.Join(data, "word"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(filepath.Join(data, "large"))
	if err != nil {
		t.Fatal(err)
	}
	written, piece := 0, make([]byte, 1<<20)
	for err == nil && written < 64 {
		if _, err = large.Write(piece); err == nil {
			err = large.Sync()
		}
		written++
	}
	large.Close()
	if !errors.Is(err, unix.ENOSPC) || written < 8 || written > 17 {
		t.Errorf("after %d MiB: %v", written, err)
	}
	if err := os.Remove(large.Name()); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(data, os.ModeSetgid|0o770); err != nil { // as an fsGroup has it
		t.Fatal(err)
	}
	mount := filepath.Dir(data)
	if err := unix.Unmount(mount, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its file system a pod would write beside it: %v", err)
	}
	for range 2 {
		if err := mountImages(f.root); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(data, &st); err != nil || st.Mode&0o7777 != 0o2770 {
		t.Errorf("after a restart its mode is %o, %v", st.Mode&0o7777, err)
	}
	if word, err := os.ReadFile(filepath.Join(data, "word")); err != nil || string(word) != "here" {
		t.Errorf("%q, %v", word, err)
	}

	open, err := os.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), pv); !errors.Is(err, unix.EBUSY) {
		t.Errorf("deleted while it is in use: %v", err)
	}
	open.Close()
	for range 2 {
		if err := f.Delete(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(f.root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What broke off before the file system was made is no volume.
func TestAHalfMadeVolumeIsMadeAnew(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	f := &folders{root: t.TempDir(), node: "alice"}
	if err := os.WriteFile(filepath.Join(f.root, "pvc-1_shop_data.half"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mountImages(f.root); err != nil {
		t.Fatal(err)
	}
	pv, data := guestsVolume(t, f)
	if err := os.WriteFile(filepath.Join(data, "word"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), pv); err != nil {
		t.Fatal(err)
	}
}

// A link that somebody put in the place of a file is not mounted.
func TestOnlyFilesAreMounted(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(root, "pvc-2.img")); err != nil {
		t.Fatal(err)
	}
	if err := mountImages(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "pvc-2")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a folder was made for it")
	}
}

// Where the size of a guest's volume could not be held to, there is none: a folder would take the whole disk.
func TestAGuestGetsNoVolumeWithoutALimit(t *testing.T) {
	refused := func(what, node string, f *folders) {
		t.Helper()
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestStorageClass}}
		pv, _, err := f.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class, PVName: "pvc-1", PVC: claim(node, corev1.ReadWriteOnce)})
		if pv != nil || err == nil {
			t.Errorf("%s: %+v, %v", what, pv, err)
		}
		if left, err := os.ReadDir(f.root); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", what, left, err)
		}
	}
	joined := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Annotations: map[string]string{AnnotationRoot: "/volumes"}}}
	refused("a node that joined", "bob", &folders{root: t.TempDir(), node: "alice", other: func(context.Context, string) (*corev1.Node, error) { return joined, nil }})
	was := mkfsAt
	defer func() { mkfsAt = was }()
	mkfsAt = []string{"/nowhere/mkfs.ext4"}
	refused("no mkfs", "alice", &folders{root: t.TempDir(), node: "alice"})
}
