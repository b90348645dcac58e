package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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
	f.client = fake.NewClientset(pv, claim)
	return &grower{folders: f, events: record.NewFakeRecorder(100),
		waiting: map[cache.ObjectName]bool{}, grown: map[cache.ObjectName]int64{}}
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

// A claim that could not be read for once is not forgotten, and nothing is said of a claim that nobody knows.
func TestAClaimThatIsNotReadGrowsLater(t *testing.T) {
	f := &folders{root: t.TempDir(), node: "alice"}
	pv := provision(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	g.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Millisecond, time.Millisecond))
	defer g.queue.ShutDown()
	said := record.NewFakeRecorder(100)
	g.events = said
	down := true
	g.client.(*fake.Clientset).PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		defer func() { down = false }()
		return down, nil, apierrors.NewTimeoutError("the server starts", 1)
	})
	g.queue.Add(cache.MetaObjectToName(is))
	if g.next(t.Context()); len(said.Events) > 0 {
		t.Errorf("said: %s", <-said.Events)
	}
	g.next(t.Context())
	if _, of, on := sizes(t, g); of != "64Mi" || on != "64Mi" {
		t.Errorf("%s %s", of, on)
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
	if err := g.between(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if err := g.grow(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if now, of, on := sizes(t, g); of != "64Mi" || on != "64Mi" || len(now.Status.Conditions) != 0 {
		t.Errorf("%s %s, %+v", of, on, now.Status.Conditions)
	}
}

// withMounts runs a function on a thread of its own, which sees the mounts of the one that calls, and gives what it says.
func withMounts(do func() error) <-chan error {
	mounts, said := fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid()), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the function
		ns, err := os.Open(mounts)
		if err == nil {
			defer ns.Close()
			err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS))
		}
		if err == nil {
			err = do()
		}
		said <- err
	}()
	return said
}

// A volume is kept from the next pod from the moment on in which the last one is to end, until nobody has it and it is larger: not before, and not for
// good. Others' volumes are made meanwhile.
func TestAVolumeGrowsBetweenTwoPods(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	pv, data := guestsVolume(t, f)
	is := growing(pv)
	g := newGrower(f, pv, is)
	path, old, next := filepath.Dir(data), t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(data, "word"), []byte("here"), 0o600), unix.Mount(data, old, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(old, unix.MNT_DETACH) })
	if err := g.enlarge(cache.MetaObjectToName(is), path, 64<<20); err != nil && !errors.Is(err, errInUse) {
		t.Fatal(err)
	}

	within, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := g.between(within, is); !errors.Is(err, errInUse) {
		t.Fatalf("a pod has it until the end: %v", err)
	}
	if now, err := os.ReadFile(filepath.Join(data, "word")); err != nil || string(now) != "here" || g.grown[cache.MetaObjectToName(is)] != 0 {
		t.Fatalf("it is not given back as it was: %q, %v", now, err)
	}

	pods := g.client.CoreV1().Pods(is.Namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.PodSpec{NodeName: "alice", Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: is.Name}}}}}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet := withMounts(func() error {
		time.Sleep(300 * time.Millisecond)
		if err := errors.Join(unix.Mount(data, next, "", unix.MS_BIND, ""), unix.Unmount(next, 0)); err != nil {
			return fmt.Errorf("a second pod does not get it while the first goes on: %w", err)
		}
		if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Lstat(data); errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(end) {
				return errors.New("the next pod would get it")
			}
		}
		time.Sleep(100 * time.Millisecond)
		if !f.images.TryLock() {
			return errors.New("no other volume could be made")
		}
		f.images.Unlock()
		return unix.Unmount(old, 0)
	})
	if err := g.between(t.Context(), is); err != nil {
		t.Error(err)
	}
	if err := <-kubelet; err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(data, next, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(next, unix.MNT_DETACH)
	if now, err := os.ReadFile(filepath.Join(next, "word")); err != nil || string(now) != "here" {
		t.Errorf("%q, %v", now, err)
	}
	var has unix.Statfs_t
	if err := unix.Statfs(next, &has); err != nil || has.Blocks*uint64(has.Bsize) < 50<<20 {
		t.Errorf("the next pod has %d blocks of %d, %v", has.Blocks, has.Bsize, err)
	}
	if err := g.grow(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	if now, of, on := sizes(t, g); of != "64Mi" || on != "64Mi" || len(now.Status.Conditions) != 0 {
		t.Errorf("%s %s, %+v", of, on, now.Status.Conditions)
	}
}

// A pod that ends slowly keeps nobody from the volume for longer than a minute at once: between two tries kubelets find it mounted.
func TestAPodThatEndsSlowlyDoesNotKeepTheNextFromTheVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aside(t)
		f := &folders{root: t.TempDir(), node: "alice"}
		pv, data := guestsVolume(t, f)
		is := growing(pv)
		g := newGrower(f, pv, is)
		old, begun := t.TempDir(), time.Now()
		if err := unix.Mount(data, old, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(old, unix.MNT_DETACH)
		if err := lengthen(filepath.Dir(data), 64<<20); err != nil {
			t.Fatal(err)
		}
		kubelet := withMounts(func() (err error) {
			for _, at := range []struct {
				after   time.Duration
				mounted bool
			}{
				{30 * time.Second, false}, {62 * time.Second, true}, {2 * time.Minute, true}, {230 * time.Second, true},
				{255 * time.Second, false}, {310 * time.Second, true}, {10 * time.Minute, true},
			} {
				time.Sleep(time.Until(begun.Add(at.after)))
				if _, is := os.Lstat(data); (is == nil) != at.mounted {
					err = errors.Join(err, fmt.Errorf("after %s: %v", at.after, is))
				}
			}
			return errors.Join(err, unix.Unmount(old, 0))
		})
		if err := g.patiently(t.Context(), is); err != nil {
			t.Error(err)
		}
		if err := <-kubelet; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 12*time.Minute || g.grown[cache.MetaObjectToName(is)] != 64<<20 {
			t.Errorf("after %s it has grown to %d", took, g.grown[cache.MetaObjectToName(is)])
		}
	})
}

// One that is killed while it keeps a volume from the next pod gives it back when it starts: the file system that the last pod still has, and no second.
func TestAVolumeThatAPodHasIsMountedOnce(t *testing.T) {
	aside(t)
	f := &folders{root: t.TempDir(), node: "alice"}
	_, data := guestsVolume(t, f)
	pod := t.TempDir()
	if err := unix.Mount(data, pod, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(pod, unix.MNT_DETACH)
	device, err := unmount(filepath.Dir(data))
	if err != nil {
		t.Fatal(err)
	}
	device.Close()
	for range 2 {
		if err := mountImages(f.root); err != nil {
			t.Fatal(err)
		}
	}
	var at, in unix.Stat_t
	if err := errors.Join(unix.Stat(data, &at), unix.Stat(pod, &in)); err != nil || at.Dev != in.Dev || at.Ino != in.Ino {
		t.Errorf("%d %d at the volume, %d %d in the pod, %v", at.Dev, at.Ino, in.Dev, in.Ino, err)
	}
}

// A volume is let go of only by pods that end, or did: another that has it goes on, and one that starts beside it gets it.
func TestWhoHasAClaim(t *testing.T) {
	has := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "config"}, {Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
		change(pod)
		return pod
	}
	runs := has(func(*corev1.Pod) {})
	ends := has(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	failed := has(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	succeeded := has(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	other := has(func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "other" })
	own := has(func(p *corev1.Pod) {
		p.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	})
	for name, c := range map[string]struct {
		pods  []any
		claim string
		want  bool
	}{
		"none":                        {nil, "data", true},
		"one that runs":               {[]any{runs}, "data", false},
		"one that ends":               {[]any{ends}, "data", true},
		"some that ended":             {[]any{failed, succeeded}, "data", true},
		"one of another claim":        {[]any{other}, "data", true},
		"one beside one that ends":    {[]any{ends, runs}, "data", false},
		"one with a claim of its own": {[]any{own}, "shop-data", false},
	} {
		if got := free(c.pods, c.claim); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		var slimmed []any
		for _, pod := range c.pods {
			slimmed = append(slimmed, slim(slim(pod, c.claim), c.claim))
		}
		if got := free(slimmed, c.claim); got != c.want {
			t.Errorf("%s, by what is kept of it: %v", name, got)
		}
	}
}

// However large a guest makes its pods, what is kept of them while a claim waits is little.
func TestLittleIsKeptOfPods(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop", UID: "1", ResourceVersion: "7", Annotations: map[string]string{"a": large}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Args: []string{large}}}},
		Status:     corev1.PodStatus{Message: large},
	}
	for i := range 100 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint(i), VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": large}}}}}})
	}
	kept := slim(pod, "shop-50").(*corev1.Pod)
	if size := kept.Size(); size > 500 {
		t.Errorf("%d bytes of %d are kept", size, pod.Size())
	}
	if kept.Namespace != "shop" || kept.Name != "shop" || kept.UID != "1" || kept.ResourceVersion != "7" {
		t.Errorf("%+v", kept.ObjectMeta)
	}
	if free([]any{kept}, "shop-50") {
		t.Error("it has the claim")
	}
	if last := (cache.DeletedFinalStateUnknown{Key: "shop/shop", Obj: kept}); slim(last, "shop-50") != any(last) {
		t.Error("what is not a pod is changed")
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
