package storage

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// shop is a node with the volume of the claim shop/data, and what makes snapshots of it.
type shop struct {
	*testing.T
	*snapshotter
	volume *corev1.PersistentVolume
	data   string // its folder
}

func newShop(t *testing.T) *shop {
	t.Helper()
	f := &folders{root: t.TempDir(), node: "alice"}
	at := t.TempDir()
	all := t.TempDir()
	f.stills = stills{all: all, pods: filepath.Join(all, "kubepods"), v1: true, note: filepath.Join(at, "still")}
	s := &shop{T: t, data: filepath.Join(f.root, "pvc-1_shop_data")}
	s.volume = provision(t, f)
	s.volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "data"}
	of := claim("alice", corev1.ReadWriteOnce)
	of.UID, of.Spec.VolumeName, of.Status.Phase = "data", s.volume.Name, corev1.ClaimBound
	f.client = fake.NewClientset(s.volume, of)
	lists := map[schema.GroupVersionResource]string{snapshotv1.Snapshots: "VolumeSnapshotList", snapshotv1.Contents: "VolumeSnapshotContentList", snapshotv1.Classes: "VolumeSnapshotClassList"}
	s.snapshotter = &snapshotter{
		folders: f, kinds: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), at: at, log: slog.New(slog.DiscardHandler),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[asked]()),
	}
	f.snapshots.Store(s.snapshotter)
	if err := s.defineClass(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fill("word", "one")
	return s
}

func (s *shop) fill(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o640); err != nil {
		s.Fatal(err)
	}
}

// wants makes the VolumeSnapshot shop/monday of a claim.
func (s *shop) wants(spec map[string]any) {
	s.Helper()
	u, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindSnapshot, "metadata": metav1.ObjectMeta{Namespace: "shop", Name: "monday", UID: "1"}, "spec": spec,
	})
	if err == nil {
		_, err = s.kinds.Resource(snapshotv1.Snapshots).Namespace("shop").Create(s.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

var (
	monday = asked{Namespace: "shop", Name: "monday"}
	ofData = map[string]any{"source": map[string]any{"persistentVolumeClaimName": "data"}}
)

// look has monday looked at, and gives what it says then.
func (s *shop) look() (snapshotv1.SnapshotStatus, error) {
	s.Helper()
	err := s.snapshot(s.Context(), monday)
	is, read := get[snapshotv1.Snapshot](s.Context(), s.kinds, snapshotv1.Snapshots, monday)
	if read != nil {
		s.Fatal(read)
	}
	return is.Status, err
}

// deleted is what the API server does to an object that has finalizers.
func (s *shop) deleted(kind schema.GroupVersionResource, name asked) {
	s.Helper()
	patch := []byte(`{"metadata":{"deletionTimestamp":"2026-11-30T17:00:00Z"}}`)
	if _, err := within(s.kinds, kind, name.Namespace).Patch(s.Context(), name.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// there are the snapshots in the folder of them, and what is half made.
func (s *shop) there() (names []string) {
	s.Helper()
	all, err := os.ReadDir(s.at)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// restore makes a volume of a claim of so many bytes that begins with monday.
func (s *shop) restore(size string) (*corev1.PersistentVolume, error) {
	s.Helper()
	asks := claim("alice", corev1.ReadWriteOnce)
	asks.Name, asks.Spec.Resources.Requests[corev1.ResourceStorage] = "again", resource.MustParse(size)
	asks.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupVersion.Group), Kind: snapshotv1.KindSnapshot, Name: "monday"}
	pv, _, err := s.Provision(s.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-2", PVC: asks})
	return pv, err
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestASnapshotIsOfOneMomentAndAVolumeBeginsWithIt(t *testing.T) {
	s := newShop(t)
	s.wants(ofData)
	is, err := s.look()
	if err != nil || !is.Ready || is.Content != "snapcontent-1" || is.RestoreSize.String() != "1Gi" || is.CreationTime == nil || is.Error != nil {
		t.Fatalf("%+v, %v", is, err)
	}
	content, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "snapcontent-1"})
	if err != nil || !content.Status.Ready || content.Status.Handle != "snapcontent-1" || *content.Status.RestoreSize != 1<<30 || content.Spec.DeletionPolicy != snapshotv1.Delete || !slices.Contains(content.Finalizers, snapshotv1.FinalizerContent) {
		t.Fatalf("%+v, %v", content, err)
	}
	s.fill("word", "two")
	if _, err := s.look(); err != nil { // twice
		t.Fatal(err)
	}
	if _, err := s.restore("1023Mi"); err == nil || !strings.Contains(err.Error(), "needs 1Gi") {
		t.Errorf("smaller than that: %v", err)
	}
	if err := s.Delete(t.Context(), s.volume); err != nil { // its source goes
		t.Fatal(err)
	}
	for range 2 {
		pv, err := s.restore("2Gi")
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(pv.Spec.Local.Path, "word")); got != "one" || nodeOf(pv) != "alice" {
			t.Errorf("it begins with %q", got)
		}
	}
	if got := s.there(); !slices.Equal(got, []string{"snapcontent-1"}) {
		t.Error(got)
	}
}

// What is missing for a moment, as the volume of a claim is that moves, is looked for again.
func TestASnapshotWhoseVolumeIsGoneForAMoment(t *testing.T) {
	s := newShop(t)
	if err := s.client.CoreV1().PersistentVolumes().Delete(t.Context(), s.volume.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wants(ofData)
	s.queue.Add(monday)
	if s.next(t.Context()); s.queue.NumRequeues(monday) != 1 {
		t.Error("it is forgotten")
	}
	s.queue.Add(asked{Namespace: "shop", Name: "none"})
	if s.next(t.Context()); s.queue.NumRequeues(asked{Namespace: "shop", Name: "none"}) != 0 {
		t.Error("what is deleted is looked for")
	}
}

// Whatever a kill leaves is taken away or taken up; what is whole is not made again.
func TestASnapshotThatWasKilledInTheMiddle(t *testing.T) {
	s := newShop(t)
	half := filepath.Join(s.at, "snapcontent-1"+halfSuffix, inSnapshot, "rest")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	s.wants(ofData)
	if _, err := s.restore("1Gi"); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("what is half made: %v", err)
	}
	if err := sweep(s.at); err != nil || len(s.there()) > 0 {
		t.Fatal(err, s.there())
	}
	whole := filepath.Join(s.at, "snapcontent-1", inSnapshot)
	if err := os.MkdirAll(whole, 0o700); err != nil { // it was killed before it said so
		t.Fatal(err)
	}
	moment := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(filepath.Dir(whole), moment, moment); err != nil {
		t.Fatal(err)
	}
	if is, err := s.look(); err != nil || !is.Ready || !is.CreationTime.Time.Equal(moment) {
		t.Errorf("%+v, %v", is, err)
	}
	if all, err := os.ReadDir(whole); err != nil || len(all) > 0 {
		t.Error("it was made again")
	}
}

func TestADeletedSnapshot(t *testing.T) {
	for _, policy := range []string{snapshotv1.Delete, snapshotv1.Retain} {
		s := newShop(t)
		patch := []byte(`{"deletionPolicy":"` + policy + `"}`)
		if _, err := s.kinds.Resource(snapshotv1.Classes).Patch(t.Context(), Class, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.wants(ofData)
		if _, err := s.look(); err != nil {
			t.Fatal(err)
		}
		contents := asked{Name: "snapcontent-1"}
		s.deleted(snapshotv1.Contents, contents)
		if err := s.content(t.Context(), contents.Name); err != nil || len(s.there()) != 1 {
			t.Errorf("a content whose snapshot is there: %v, %q", err, s.there())
		}
		if policy == snapshotv1.Retain { // the API server would not take that back; here it is the other case
			if _, err := s.kinds.Resource(snapshotv1.Contents).Patch(t.Context(), contents.Name, types.MergePatchType, []byte(`{"metadata":{"deletionTimestamp":null}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s.deleted(snapshotv1.Snapshots, monday)
		release, _ := s.take(filepath.Join(s.at, "snapcontent-1", inSnapshot))
		if err := s.snapshot(t.Context(), monday); policy == snapshotv1.Delete && !errors.Is(err, errBusy) {
			t.Errorf("a volume begins with it just now: %v", err)
		}
		release()
		if err := s.snapshot(t.Context(), monday); err != nil {
			t.Fatal(err)
		}
		content, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, contents)
		if err != nil || (len(content.Finalizers) == 0) != (policy == snapshotv1.Delete) || (len(s.there()) == 0) != (policy == snapshotv1.Delete) {
			t.Errorf("%s: %q, %+v, %v", policy, s.there(), content, err)
		}
		if len(content.Finalizers) == 0 { // then it is gone
			if err := s.kinds.Resource(snapshotv1.Contents).Delete(t.Context(), contents.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.snapshot(t.Context(), monday); err != nil {
			t.Fatal(err)
		}
		snap, err := get[snapshotv1.Snapshot](t.Context(), s.kinds, snapshotv1.Snapshots, monday)
		if err != nil || len(snap.Finalizers) > 0 {
			t.Errorf("%s: %v, %v", policy, snap.Finalizers, err)
		}
	}
}

// A deletion while it is made ends the copy, and leaves nothing; the volume is not deleted under it.
func TestASnapshotThatIsDeletedWhileItIsMade(t *testing.T) {
	s := newShop(t)
	s.wants(ofData)
	var during error
	s.fakes().PrependReactor("list", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) { // it is looked who has the folder
		during = s.Delete(t.Context(), s.volume)
		s.deleted(snapshotv1.Snapshots, monday)
		s.unwanted(monday)
		return false, nil, nil
	})
	if err := s.snapshot(t.Context(), monday); !errors.Is(err, errDeleted) {
		t.Error(err)
	}
	if !errors.Is(during, errBusy) {
		t.Errorf("its volume: %v", during)
	}
	if got := s.there(); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	if err := s.snapshot(t.Context(), monday); err != nil { // has the content deleted, which has nothing
		t.Error(err)
	}
	if _, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "snapcontent-1"}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func (s *shop) fakes() *k8stesting.Fake { return &s.client.(*fake.Clientset).Fake }

// A retained snapshot, or one whose objects are lost, is had again by a content that names it.
func TestAContentForWhatIsThere(t *testing.T) {
	s := newShop(t)
	if err := os.MkdirAll(filepath.Join(s.at, "snapcontent-old", inSnapshot), 0o700); err != nil {
		t.Fatal(err)
	}
	for handle, ready := range map[string]bool{"snapcontent-old": true, "snapcontent-lost": false, "../" + filepath.Base(s.root): false, "still": false} {
		u, err := snapshotv1.Write(map[string]any{
			"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": metav1.ObjectMeta{Name: "mine"},
			"spec": snapshotv1.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "monday"}, Driver: snapshotv1.Driver, DeletionPolicy: snapshotv1.Delete, Source: snapshotv1.ContentSource{Snapshot: handle}},
		})
		if err == nil {
			_, err = s.kinds.Resource(snapshotv1.Contents).Create(t.Context(), u, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.wants(map[string]any{"source": map[string]any{"volumeSnapshotContentName": "mine"}})
		for range 2 {
			if err := s.content(t.Context(), "mine"); err != nil {
				t.Fatal(err)
			}
			if is, err := s.look(); err != nil {
				t.Fatalf("%+v, %v", is, err)
			}
		}
		if is, _ := s.look(); is.Ready != ready {
			t.Errorf("%s: %+v", handle, is)
		}
		content, err := get[snapshotv1.Content](t.Context(), s.kinds, snapshotv1.Contents, asked{Name: "mine"})
		if err != nil || content.Spec.Snapshot.UID != "1" || (content.Status.Error == nil) != ready {
			t.Errorf("%s: %+v, %v", handle, content, err)
		}
		s.deleted(snapshotv1.Snapshots, monday)
		s.deleted(snapshotv1.Contents, asked{Name: "mine"})
		if err := s.content(t.Context(), "mine"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.root); err != nil {
			t.Fatalf("%s: what is no snapshot was deleted", handle)
		}
		for kind, name := range map[schema.GroupVersionResource]asked{snapshotv1.Snapshots: monday, snapshotv1.Contents: {Name: "mine"}} {
			if err := within(s.kinds, kind, name.Namespace).Delete(t.Context(), name.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What is not to be had is said once, and nothing is made.
func TestSnapshotsThatAreRefused(t *testing.T) {
	peer := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.StorageProvisioner}}
	for name, c := range map[string]struct {
		change func(*shop)
		class  string
		final  bool
		word   string
	}{
		"at a peer": {class: Class, change: func(s *shop) { s.volume.Spec.PersistentVolumeSource = peer }, final: true, word: "`kith volume move shop/data --to home`"},
		"another node": {change: func(s *shop) {
			s.volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "bob"
		}, final: true, word: "is on node bob"},
		"another place": {change: func(s *shop) { s.volume.Spec.Local.Path = "/etc" }, final: true, word: "is no folder of those"},
		"of a guest": {change: func(s *shop) {
			s.volume.Spec.StorageClassName, s.volume.Spec.Local.Path = v1alpha1.GuestStorageClass, filepath.Join(s.data, inImage)
		}, final: true, word: "is a guest's"},
		"anothers claim": {change: func(s *shop) { s.volume.Spec.ClaimRef.UID = "other" }, word: "is not that of claim shop/data"},
		"no such class":  {class: "none", final: true, word: "there is no VolumeSnapshotClass none"},
	} {
		s := newShop(t)
		if c.change != nil {
			c.change(s)
			if _, err := s.client.CoreV1().PersistentVolumes().Update(t.Context(), s.volume, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		spec := map[string]any{"source": ofData["source"]}
		if c.class != "" {
			spec["volumeSnapshotClassName"] = c.class
		}
		s.wants(spec)
		is, err := s.look()
		_, final := errors.AsType[*refusedError](err)
		if err == nil || final != c.final || is.Ready || is.Error == nil || !strings.Contains(is.Error.Message, c.word) || len(s.there()) > 0 {
			t.Errorf("%s: %+v, %v, %q", name, is.Error, err, s.there())
		}
	}
	s := newShop(t) // another driver's is not touched
	if _, err := s.kinds.Resource(snapshotv1.Classes).Patch(t.Context(), Class, types.MergePatchType, []byte(`{"driver":"example.com/disk"}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wants(map[string]any{"source": ofData["source"], "volumeSnapshotClassName": Class})
	if is, err := s.look(); err != nil || is.Ready || is.Error != nil {
		t.Errorf("%+v, %v", is, err)
	}
	protect := []byte(`{"metadata":{"finalizers":["` + snapshotv1.FinalizerSnapshot + `"]}}`)
	if _, err := s.kinds.Resource(snapshotv1.Snapshots).Namespace("shop").Patch(t.Context(), "monday", types.MergePatchType, protect, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.deleted(snapshotv1.Snapshots, monday)
	for _, there := range []bool{false, true} { // its content
		if there {
			s.contentNamed(snapshotv1.ContentFor("1"), "example.com/disk", snapshotv1.ContentSource{Volume: "a"})
		}
		if err := s.snapshot(t.Context(), monday); err != nil {
			t.Error(err)
		}
		if snap, err := get[snapshotv1.Snapshot](t.Context(), s.kinds, snapshotv1.Snapshots, monday); err != nil || len(snap.Finalizers) != 1 {
			t.Errorf("deleted, content %v: %+v, %v", there, snap, err)
		}
	}
}

// A full disk ends a copy before it begins.
func TestNoRoomForACopy(t *testing.T) {
	if err := roomFor(1<<62, t.TempDir()); err == nil || !strings.Contains(err.Error(), "make room there") {
		t.Error(err)
	}
	if err := roomForTree(t.Context(), filepath.Join(t.TempDir(), "none"), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A volume that begins with what another has is a copy of its own.
func TestAVolumeThatBeginsWithAnother(t *testing.T) {
	s := newShop(t)
	asks := claim("alice", corev1.ReadWriteOnce)
	asks.Name, asks.Spec.DataSource = "again", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	options := controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-2", PVC: asks}
	pv, _, err := s.Provision(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	s.fill("word", "two")
	if got := read(t, filepath.Join(pv.Spec.Local.Path, "word")); got != "one" {
		t.Error(got)
	}
	other := asks.DeepCopy()
	other.Annotations[selectedNode] = "bob"
	options.PVC = other
	if _, state, err := s.Provision(t.Context(), options); err == nil || state != controller.ProvisioningReschedule {
		t.Errorf("at another node: %v, %v", state, err)
	}
	guests := options
	guests.PVC, guests.StorageClass = asks, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestStorageClass}}
	if _, _, err := s.Provision(t.Context(), guests); err == nil || !strings.Contains(err.Error(), "guests begin empty or") {
		t.Error(err)
	}
}

// A snapshot is its namespace's: that of another is no source but of claims that kithd makes.
func TestASnapshotOfAnotherNamespace(t *testing.T) {
	s := newShop(t)
	s.wants(ofData)
	if _, err := s.look(); err != nil {
		t.Fatal(err)
	}
	asks := claim("alice", corev1.ReadWriteOnce)
	asks.Namespace, asks.Annotations[v1alpha1.AnnotationSnapshot] = "other", "shop/monday"
	if b, err := s.beginOf(t.Context(), asks); err != nil || b != nil {
		t.Errorf("%+v, %v", b, err)
	}
	asks.Namespace = v1alpha1.NamespaceVolumes
	if b, err := s.beginOf(t.Context(), asks); err != nil || b == nil || b.from != filepath.Join(s.at, "snapcontent-1", inSnapshot) {
		t.Errorf("%+v, %v", b, err)
	}
	forged := []byte(`{"metadata":{"uid":"2"}}`) // a snapshot that says it has another's content
	if _, err := s.kinds.Resource(snapshotv1.Snapshots).Namespace("shop").Patch(t.Context(), "monday", types.MergePatchType, forged, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := s.beginOf(t.Context(), asks); err == nil {
		t.Errorf("%+v", b)
	}
}

// The kinds are defined where nobody did, and somebody else's are let be.
func TestWhoDefinesTheKinds(t *testing.T) {
	ctx, client := t.Context(), crdfake.NewSimpleClientset()
	client.PrependReactor("create", "customresourcedefinitions", func(a k8stesting.Action) (bool, runtime.Object, error) {
		crd := a.(k8stesting.CreateAction).GetObject().(*apiextensionsv1.CustomResourceDefinition)
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		return false, nil, nil
	})
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for range 2 {
		if err := define(ctx, crds); err != nil {
			t.Fatal(err)
		}
	}
	all, err := crds.List(ctx, metav1.ListOptions{})
	if err != nil || len(all.Items) != 3 {
		t.Fatal(err, len(all.Items))
	}
	theirs := all.Items[1]
	delete(theirs.Labels, v1alpha1.LabelManagedBy)
	if _, err := crds.Update(ctx, &theirs, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := define(ctx, crds); !errors.Is(err, errOthers) {
		t.Error(err)
	}
}
