package storage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"kith.dev/core/api/v1alpha1"
)

// aside has the rest of a test mount where nobody else sees it: who starts with a namespace of mounts of his own meanwhile would keep them.
func aside(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
}

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

// A volume grows while a pod has it; what broke off in between is done once more, and none becomes smaller.
func TestAVolumeOfAGuestGrowsInUse(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	path, is := f.image(pv)
	if !is {
		t.Fatalf("%+v", pv.Spec)
	}
	var open *os.File
	reopen := func() {
		t.Helper()
		var err error
		if open, err = os.OpenFile(filepath.Join(data, "word"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	defer func() { open.Close() }()
	pod := t.TempDir()
	if err := unix.Mount(data, pod, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(pod, unix.MNT_DETACH)
	write := func(s string) {
		t.Helper()
		if _, err := open.WriteString(s); err != nil {
			t.Error(err)
		}
	}
	room := func() int {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(data, &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Blocks * uint64(st.Bsize) >> 20)
	}
	if is := room(); is > 16 {
		t.Fatalf("%d MiB", is)
	}
	write("be")
	if err := os.Truncate(path+imageSuffix, 40<<20); err != nil { // the machine lost power here
		t.Fatal(err)
	}
	for _, size := range []int64{64 << 20, 64 << 20, 32 << 20, 64<<20 + 77, 2 << 30} {
		err := growImage(path, size)
		if errors.Is(err, errInUse) { // in a container the kernel lets no mounted file system grow, and that is waited for
			write("")
			open.Close()
			if err := growImage(path, size); !errors.Is(err, errInUse) {
				t.Fatalf("a pod has it, and it grows: %v", err)
			}
			if err := unix.Unmount(pod, 0); err != nil {
				t.Fatal(err)
			}
			t.Log("grown while nobody has it, to", size)
			device, err := unmount(path)
			if err != nil {
				t.Fatal(err)
			}
			device.Close()
			if is, err := growUnused(t.Context(), path); err != nil || is < size {
				t.Fatalf("to %d: %d, %v", size, is, err)
			}
			if err := mountImages(f.root); err != nil {
				t.Fatal(err)
			}
			if back := unix.Mount(data, pod, "", unix.MS_BIND, ""); back != nil {
				t.Fatal(back)
			}
			reopen()
		} else if err != nil {
			t.Fatalf("to %d: %v", size, err)
		}
	}
	if is := room(); is < 1900 || is > 2048 {
		t.Errorf("%d MiB", is)
	}
	write("fore")
	piece := make([]byte, 1<<20)
	for range 100 {
		if _, err := open.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(open.Close(), unix.Unmount(pod, 0), unix.Unmount(path, 0)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("e2fsck", "-fn", path+imageSuffix).CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v: %s", err, out)
	}
	if err := mountImages(f.root); err != nil {
		t.Fatal(err)
	}
	if all, err := os.ReadFile(filepath.Join(data, "word")); err != nil || len(all) != 6+100<<20 || string(all[:6]) != "before" {
		t.Errorf("%d bytes, %v", len(all), err)
	}
	if err := f.Delete(t.Context(), pv); err != nil {
		t.Fatal(err)
	}
}

// What broke off before the file system was made is no volume.
func TestAHalfMadeVolumeIsMadeAnew(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	f := &folders{root: t.TempDir(), node: "alice"}
	if err := os.WriteFile(filepath.Join(f.root, "pvc-1_shop_data"+halfSuffix), []byte("half"), 0o600); err != nil {
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
