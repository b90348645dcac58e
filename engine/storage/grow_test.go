package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/api/v1alpha1"
)

// growing is a claim of 16Mi that has the volume, and asks for 64Mi.
func growing(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	is := claim("alice", corev1.ReadWriteOnce)
	is.UID, is.Annotations[provisioner] = "2c7c6d51", Provisioner
	is.Spec.VolumeName, is.Spec.Resources.Requests[corev1.ResourceStorage] = pv.Name, resource.MustParse("64Mi")
	is.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}}
	pv.Spec.Capacity = is.Status.Capacity.DeepCopy()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: is.Namespace, Name: is.Name, UID: is.UID}
	if pv.Annotations == nil {
		pv.Annotations = map[string]string{}
	}
	pv.Annotations[provisionedBy] = Provisioner
	return is
}

// sizes are those that the claim and the volume are said to have now.
func sizes(t *testing.T, g *grower) (claim *corev1.PersistentVolumeClaim, of, on string) {
	t.Helper()
	claim, err := g.client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := g.client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim, claim.Status.Capacity.Storage().String(), v.Spec.Capacity.Storage().String()
}

func newGrower(f *folders, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) *grower {
	return &grower{folders: f, client: fake.NewClientset(pv, claim), events: record.NewFakeRecorder(100), used: newUsed()}
}

// A folder that is held to no size is as large as its claim says; what somebody else made is his to make larger.
func TestAClaimHasWhatItAsksFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim)
		grows  bool
		want   string
	}{
		"asks for more": {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, true, "64Mi 64Mi"},
		"half noted": {func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("64Mi")
		}, true, "64Mi 64Mi"},
		"another's volume": {func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { v.Spec.ClaimRef.UID = "another" }, true, "16Mi 16Mi"},
		"of another provisioner": {func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			v.Annotations[provisionedBy] = "example.com"
		}, true, "16Mi 16Mi"},
		"a claim of another": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Annotations[provisioner] = "example.com"
		}, false, "16Mi 16Mi"},
		"a claim without volume": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
		}, false, "16Mi 16Mi"},
		"a claim that asks less": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("16Mi")
		}, false, "16Mi 16Mi"},
		"a claim that is deleted": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp = new(metav1.Now())
		}, false, "16Mi 16Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &folders{root: t.TempDir(), node: "alice"}
			pv := provision(t, f)
			is := growing(pv)
			c.change(pv, is)
			g := newGrower(f, pv, is)
			if grows(is) != c.grows {
				t.Errorf("grows: %v", grows(is))
			}
			if grows(is) {
				if err := g.grow(t.Context(), is); err != nil {
					t.Fatal(err)
				}
			}
			if _, of, on := sizes(t, g); of+" "+on != c.want {
				t.Errorf("%s %s, want %s", of, on, c.want)
			}
		})
	}
}

// A guest's volume is said to be larger when it is; where that has to wait for its pods, the claim says so, and nothing is larger until then.
func TestAVolumeOfAGuestIsSaidToBeLargerWhenItIs(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	pod := t.TempDir()
	if err := unix.Mount(data, pod, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(pod, unix.MNT_DETACH)
	for range 2 {
		err := g.grow(t.Context(), is)
		now, of, on := sizes(t, g)
		if err == nil {
			if of != "64Mi" || on != "64Mi" {
				t.Errorf("%s %s", of, on)
			}
			return
		}
		if !errors.Is(err, errInUse) || of != "16Mi" || on != "16Mi" || len(now.Status.Conditions) != 1 || now.Status.Conditions[0].Type != corev1.PersistentVolumeClaimFileSystemResizePending {
			t.Fatalf("%v: %s %s, %+v", err, of, on, now.Status.Conditions)
		}
		is = now
	}
	if err := unix.Unmount(pod, 0); err != nil {
		t.Fatal(err)
	}
	if err := g.grow(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if now, of, on := sizes(t, g); of != "64Mi" || on != "64Mi" || len(now.Status.Conditions) != 0 {
		t.Errorf("%s %s, %+v", of, on, now.Status.Conditions)
	}
}

// The moment between a pod and the one in its place is enough: what is unmounted is told at once, and not before.
func TestAVolumeGrowsBetweenTwoPods(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	g.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	t.Cleanup(g.queue.ShutDown)
	pod := t.TempDir()
	if err := unix.Mount(data, pod, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(pod, unix.MNT_DETACH) })
	g.used.watching = true // here, in the test's own mount namespace
	g.queue.Add(cache.MetaObjectToName(is))
	if !g.next(t.Context()) {
		t.Fatal("it ended")
	}
	if now, of, on := sizes(t, g); len(now.Status.Conditions) == 0 { // this kernel lets a file system grow while it is mounted
		if of != "64Mi" || on != "64Mi" {
			t.Errorf("%s %s", of, on)
		}
		return
	}
	table, err := os.Open(mountTable)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if !g.used.release(table, g.queue) || g.queue.Len() != 0 {
		t.Fatal("it does not wait for the pod")
	}
	if err := unix.Unmount(pod, 0); err != nil {
		t.Fatal(err)
	}
	g.used.look(t.Context(), table, g.queue)
	if g.queue.Len() != 1 || !g.next(t.Context()) {
		t.Fatal("it was not told that the pod is gone")
	}
	if now, of, on := sizes(t, g); of != "64Mi" || on != "64Mi" || len(now.Status.Conditions) != 0 {
		t.Errorf("%s %s, %+v", of, on, now.Status.Conditions)
	}
}

// One whose file system is not on this node, or lies elsewhere than in the folder, is not said to be larger.
func TestNothingIsSaidToBeLargerThatIsNot(t *testing.T) {
	f := &folders{root: t.TempDir(), node: "alice"}
	pv := provision(t, f)
	pv.Spec.StorageClassName, pv.Spec.Local.Path = v1alpha1.GuestStorageClass, filepath.Join(t.TempDir(), "pvc-1_shop_data", inImage)
	is := growing(pv)
	g := newGrower(f, pv, is)
	if err := g.grow(t.Context(), is); err == nil {
		t.Error("it grew")
	}
	if _, of, on := sizes(t, g); of != "16Mi" || on != "16Mi" {
		t.Errorf("%s %s", of, on)
	}
}
