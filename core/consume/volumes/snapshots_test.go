package volumes

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// withSnapshots is a home whose claim shop/data has its volume at bob, or at home, and a VolumeSnapshot of that.
func withSnapshots(t *testing.T, peer string, objects ...client.Object) *home {
	t.Helper()
	claim := claimAt("kith-bob")
	v := volume(claim, nameOf(claim), corev1.PersistentVolumeReclaimDelete)
	if peer != "" {
		v = atPeer(claim, nameOf(claim), "", peer, corev1.PersistentVolumeReclaimDelete)
	}
	claim.Spec.VolumeName, claim.Status.Phase = v.Name, corev1.ClaimBound
	monday := taken("monday", false)
	monday.Object["spec"] = map[string]any{"source": map[string]any{"persistentVolumeClaimName": "data"}}
	delete(monday.Object, "status")
	h := newHome(t, append(objects, claim, v, monday)...)
	if err := h.defineSnapshotClass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.defineSnapshotClass(t.Context()); err != nil { // twice
		t.Fatal(err)
	}
	return h
}

func (h *home) lookAt(name string) (ctrl.Result, error) {
	h.Helper()
	return h.snapshotted(h.Context(), client.ObjectKey{Namespace: "shop", Name: name})
}

func (h *home) snapshotIs() *snapshotv1.Snapshot {
	h.Helper()
	s, err := readSnapshotKind[snapshotv1.Snapshot](h.Context(), h.client, snapshotv1.KindSnapshot, client.ObjectKey{Namespace: "shop", Name: "monday"})
	if client.IgnoreNotFound(err) != nil {
		h.Fatal(err)
	}
	return s
}

func (h *home) contentIs() *snapshotv1.Content {
	h.Helper()
	c, err := readSnapshotKind[snapshotv1.Content](h.Context(), h.client, snapshotv1.KindContent, client.ObjectKey{Name: "snapcontent-monday"})
	if client.IgnoreNotFound(err) != nil {
		h.Fatal(err)
	}
	return c
}

// ready has bob say that it has made it.
func (h *home) ready() {
	h.Helper()
	h.peers.snapshot = remote.SnapshotState{Ready: true, CreationTime: time.Unix(1e9, 0), Size: 2 << 30}
	if _, err := h.lookAt("monday"); err != nil {
		h.Fatal(err)
	}
}

func TestASnapshotOfAVolumeAtAPeer(t *testing.T) {
	h := withSnapshots(t, "bob")
	if result, err := h.lookAt("monday"); err != nil || result.RequeueAfter < snapshotLook {
		t.Fatal(result, err)
	}
	if want := "snapshot bob shop/monday monday of data 2c7c6d51"; !slices.Equal(h.peers.asked, []string{want}) {
		t.Errorf("asked %q, want %q", h.peers.asked, want)
	}
	is, content := h.snapshotIs(), h.contentIs()
	if is.Spec.Class != v1alpha1.StorageClassName || !slices.Contains(is.Finalizers, snapshotv1.FinalizerSnapshot) || is.Status.Ready || content == nil || content.Spec.Driver != v1alpha1.StorageProvisioner || content.Spec.DeletionPolicy != snapshotv1.Delete {
		t.Fatalf("%+v, %+v", is, content)
	}
	held, err := Snapshots(t.Context(), h.client, "bob", "shop")
	if words := SnapshotWords(held); err != nil || words != "snapshot shop/monday (2Gi at bob)" { // from the first moment on
		t.Errorf("%q, %v", words, err)
	}
	h.peers.snapshot = remote.SnapshotState{Why: "no room"}
	if _, err := h.lookAt("monday"); err != nil || h.snapshotIs().Status.Error == nil || h.snapshotIs().Status.Error.Message != "at bob: no room" {
		t.Errorf("%+v, %v", h.snapshotIs().Status, err)
	}
	h.ready()
	is, content = h.snapshotIs(), h.contentIs()
	if !is.Status.Ready || is.Status.Error != nil || is.Status.RestoreSize.String() != "2Gi" || !is.Status.CreationTime.Time.Equal(time.Unix(1e9, 0)) || is.Status.Content != content.Name || content.Status.Handle != "bob/shop/monday/monday" {
		t.Errorf("%+v, %+v", is.Status, content.Status)
	}
	asked := len(h.peers.asked)
	if result, err := h.lookAt("monday"); err != nil || result.RequeueAfter != 0 || len(h.peers.asked) != asked {
		t.Errorf("it is ready, and looked at again: %v, %v, %q", result, err, h.peers.asked)
	}
	if _, known := h.HeldSnapshots(); known {
		t.Error("known, and nothing was read")
	}
	_, err = h.readHeld(t.Context(), ctrl.Request{})
	if held, known := h.HeldSnapshots(); err != nil || !known || SnapshotWords(held) != "snapshot shop/monday (2Gi at bob)" {
		t.Errorf("held: %+v, %v, %v", held, known, err)
	}
	grants := corev1.ResourceList{corev1.ResourceName(api.StorageOf("")): *is.Status.RestoreSize}
	if left := Left(grants, "bob", "", nil, held); left.Sign() != 0 {
		t.Errorf("%s is left", left.String())
	}
}

func TestSnapshotsAtPeersThatAreRefused(t *testing.T) {
	no := peering.Refuse(peering.CodeForbidden, "the contract grants no storage", "ask for some")
	h := withSnapshots(t, "bob")
	h.peers.snapErr = no
	if result, err := h.lookAt("monday"); err != nil || result.RequeueAfter != snapshotRefused || !strings.Contains(h.snapshotIs().Status.Error.Message, "grants no storage; ask for some") {
		t.Errorf("%v, %v, %+v", result, err, h.snapshotIs().Status)
	}
	h.peers.snapErr = errors.New("unreachable")
	if _, err := h.lookAt("monday"); err == nil {
		t.Error("it is not tried again")
	}

	h = withSnapshots(t, "") // at home: the engine's
	if result, err := h.lookAt("monday"); err != nil || result.RequeueAfter != 0 || h.snapshotIs().Status.Error != nil || h.contentIs() != nil || len(h.peers.asked) > 0 {
		t.Errorf("%v, %v, %+v", result, err, h.snapshotIs())
	}
	if err := h.client.Patch(t.Context(), unstructuredOf(snapshotv1.KindSnapshot, "shop", "monday"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"volumeSnapshotClassName":"kith"}}`))); err != nil {
		t.Fatal(err)
	}
	if _, err := h.lookAt("monday"); err != nil || h.snapshotIs().Status.Error == nil || !strings.Contains(h.snapshotIs().Status.Error.Message, "is at home") {
		t.Errorf("%v, %+v", err, h.snapshotIs().Status)
	}
}

// With its VolumeSnapshot a snapshot at a peer goes, or stays, as its class says; and nothing that stands for it goes before it.
func TestADeletedSnapshotAtAPeer(t *testing.T) {
	for _, policy := range []string{snapshotv1.Delete, snapshotv1.Retain} {
		h := withSnapshots(t, "bob")
		class := client.RawPatch(types.MergePatchType, []byte(`{"deletionPolicy":"`+policy+`"}`))
		if err := h.client.Patch(t.Context(), unstructuredOf(snapshotv1.KindClass, "", v1alpha1.StorageClassName), class); err != nil {
			t.Fatal(err)
		}
		h.ready()
		if err := h.client.Delete(t.Context(), unstructuredOf(snapshotv1.KindSnapshot, "shop", "monday")); err != nil {
			t.Fatal(err)
		}
		h.peers.asked, h.peers.snapErr = nil, errors.New("unreachable")
		look := func() error {
			_, err := h.lookAt("monday")
			_, other := h.content(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "snapcontent-monday"}})
			return errors.Join(err, other)
		}
		err := look()
		if policy == snapshotv1.Retain {
			if err != nil || h.snapshotIs() != nil || h.contentIs() == nil || len(h.peers.asked) > 0 {
				t.Errorf("retained: %v, %+v, asked %q", err, h.contentIs(), h.peers.asked)
			}
			continue
		}
		if err == nil || h.snapshotIs() != nil || h.contentIs() == nil { // else its namespace could not go
			t.Errorf("while bob cannot be reached: %v, %+v, %+v", err, h.snapshotIs(), h.contentIs())
		}
		h.peers.snapErr = nil
		for range 2 {
			if err := look(); err != nil {
				t.Fatal(err)
			}
		}
		if h.snapshotIs() != nil || h.contentIs() != nil || !slices.Contains(h.peers.asked, "unsnapshot bob shop/monday monday") || !slices.Contains(h.peers.reviewed, "shop") {
			t.Errorf("%+v, %+v, asked %q, reviewed %q", h.snapshotIs(), h.contentIs(), h.peers.asked, h.peers.reviewed)
		}
	}
}

// A content that is deleted before its VolumeSnapshot waits for that, and is looked at when it goes.
func TestAContentIsDeletedBeforeItsSnapshot(t *testing.T) {
	h := withSnapshots(t, "bob")
	h.ready()
	look := func() {
		t.Helper()
		for _, r := range h.deletedContents(t.Context(), nil) {
			if _, err := h.content(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if of := h.deletedContents(t.Context(), nil); len(of) > 0 {
		t.Errorf("nothing is deleted, and %v are looked at", of)
	}
	if err := h.client.Delete(t.Context(), unstructuredOf(snapshotv1.KindContent, "", "snapcontent-monday")); err != nil {
		t.Fatal(err)
	}
	if look(); h.contentIs() == nil || slices.Contains(h.peers.asked, "unsnapshot bob shop/monday monday") {
		t.Fatalf("its snapshot has it: %+v, asked %q", h.contentIs(), h.peers.asked)
	}
	if err := h.client.Delete(t.Context(), unstructuredOf(snapshotv1.KindSnapshot, "shop", "monday")); err != nil {
		t.Fatal(err)
	}
	is := unstructuredOf(snapshotv1.KindSnapshot, "shop", "monday")
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(is), is); err != nil {
		t.Fatal(err)
	}
	if !goes.Update(event.UpdateEvent{ObjectNew: is}) || !goes.Delete(event.DeleteEvent{Object: is}) || goes.Create(event.CreateEvent{Object: is}) {
		t.Error("its end is not seen")
	}
	if _, err := h.lookAt("monday"); err != nil {
		t.Fatal(err)
	}
	if look(); h.snapshotIs() != nil || h.contentIs() != nil || !slices.Contains(h.peers.asked, "unsnapshot bob shop/monday monday") {
		t.Errorf("%+v, %+v, asked %q", h.snapshotIs(), h.contentIs(), h.peers.asked)
	}
}

// contentOf is one that was made by hand, of what is at a peer.
func contentOf(t *testing.T, name, snapshot, handle string) *unstructured.Unstructured {
	t.Helper()
	u, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": metav1.ObjectMeta{Name: name, Finalizers: []string{snapshotv1.FinalizerContent}},
		"spec": snapshotv1.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: "shop", Name: snapshot, UID: types.UID(snapshot)}, Driver: v1alpha1.StorageProvisioner, DeletionPolicy: snapshotv1.Delete, Source: snapshotv1.ContentSource{Snapshot: handle}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// What two contents stand for is deleted at the peer with the second, and with both where both are deleted at once; but not below a VolumeSnapshot.
func TestContentsOfOneSnapshotAreDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		second string // its VolumeSnapshot; monday is there
		delete bool
		asks   bool
	}{
		"the other one stays":     {second: "gone", asks: false},
		"the other one goes, too": {second: "gone", delete: true, asks: true},
		"the other one waits":     {second: "monday", delete: true, asks: false},
	} {
		first, second := contentOf(t, "first", "gone", "bob/shop/old/u1"), contentOf(t, "second", c.second, "bob/shop/old/u1")
		h := withSnapshots(t, "bob", first, second)
		if err := h.client.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if c.delete {
			if err := h.client.Delete(t.Context(), second); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.content(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(first)}); err != nil {
			t.Fatal(err)
		}
		if asks := slices.Contains(h.peers.asked, "unsnapshot bob shop/old u1"); asks != c.asks {
			t.Errorf("%s: asked %q", name, h.peers.asked)
		}
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(first), first); !apierrors.IsNotFound(err) {
			t.Errorf("%s: it is there: %v", name, err)
		}
	}
}

// A content that names nothing goes, and that is said.
func TestAContentThatNamesNoSnapshotIsDeleted(t *testing.T) {
	content := contentOf(t, "first", "gone", "bob/shop")
	h := withSnapshots(t, "bob", content)
	var said strings.Builder
	h.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := h.client.Delete(t.Context(), content); err != nil {
		t.Fatal(err)
	}
	if _, err := h.content(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(content)}); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(content), content); !apierrors.IsNotFound(err) || len(h.peers.asked) > 0 {
		t.Errorf("%v, asked %q", err, h.peers.asked)
	}
	if !strings.Contains(said.String(), "nothing at a peer with it") || strings.Contains(said.String(), "let go") {
		t.Errorf("said %s", said.String())
	}
}

// What was retained is had again by a content that names it, of the same namespace.
func TestASnapshotAtAPeerIsHadAgain(t *testing.T) {
	for handle, fits := range map[string]bool{"bob/shop/old/u1": true, "bob/other/old/u1": false, "bob/shop": false} {
		u, err := snapshotv1.Write(map[string]any{
			"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent, "metadata": metav1.ObjectMeta{Name: "mine"},
			"spec": snapshotv1.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "monday"}, Driver: v1alpha1.StorageProvisioner, DeletionPolicy: snapshotv1.Delete, Source: snapshotv1.ContentSource{Snapshot: handle}},
		})
		if err != nil {
			t.Fatal(err)
		}
		h := withSnapshots(t, "bob", u)
		if err := h.client.Patch(t.Context(), unstructuredOf(snapshotv1.KindSnapshot, "shop", "monday"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"source":{"persistentVolumeClaimName":null,"volumeSnapshotContentName":"mine"}}}`))); err != nil {
			t.Fatal(err)
		}
		h.ready()
		if is := h.snapshotIs(); is.Status.Ready != fits || fits != (len(h.peers.asked) == 1 && h.peers.asked[0] == "snapshot bob shop/old u1 of  ") {
			t.Errorf("%s: %+v, asked %q", handle, is.Status, h.peers.asked)
		}
	}
}

// A claim that begins with a snapshot at a peer gets its volume there, when that is whole.
func TestAClaimThatBeginsWithASnapshotAtAPeer(t *testing.T) {
	claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
	claim.Name, claim.UID, claim.CreationTimestamp = "again", "again", metav1.Now()
	h := withSnapshots(t, "bob", claim)
	h.ready()
	h.peers.asked = nil
	make := func() (*corev1.PersistentVolume, ctrl.Result) {
		t.Helper()
		result, err := h.claim(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "again"}})
		if err != nil {
			t.Fatal(err)
		}
		v := new(corev1.PersistentVolume)
		if h.client.Get(t.Context(), client.ObjectKey{Name: "pvc-again"}, v) != nil {
			return nil, result
		}
		return v, result
	}
	h.peers.state = remote.ClaimState{Phase: corev1.ClaimPending}
	if v, result := make(); v != nil || result.RequeueAfter != restoringPause {
		t.Errorf("before it is whole: %+v, %v", v, result)
	}
	if want := []string{"snapshot bob shop/monday monday of  ", "claim bob shop/again 2Gi from monday"}; !slices.Equal(h.peers.asked, want) {
		t.Errorf("asked %q, want %q", h.peers.asked, want)
	}
	for since, most := range map[time.Duration]time.Duration{time.Minute: 16 * time.Second, time.Hour: restoringSlow} { // as long as it takes already
		var is corev1.PersistentVolumeClaim
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(claim), &is); err != nil {
			t.Fatal(err)
		}
		is.CreationTimestamp = metav1.NewTime(time.Now().Add(-since))
		if err := h.client.Update(t.Context(), &is); err != nil {
			t.Fatal(err)
		}
		if v, result := make(); v != nil || result.RequeueAfter > most || result.RequeueAfter < 15*time.Second {
			t.Errorf("after %s: %+v, %v", since, v, result)
		}
	}
	h.peers.state.Phase = corev1.ClaimBound
	v, _ := make()
	if v == nil || AtPeer(v) != "bob" || v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "bob" {
		t.Fatalf("%+v", v)
	}
}

// What a peer makes of a snapshot for a claim that is deleted meanwhile is deleted there, as soon as it can be asked; a claim that is there keeps it.
func TestAClaimIsDeletedWhileItsVolumeIsRestored(t *testing.T) {
	claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
	claim.Name, claim.UID = "again", "again"
	h := withSnapshots(t, "bob", claim)
	h.ready()
	h.peers.state = remote.ClaimState{Phase: corev1.ClaimPending}
	look := func() error {
		_, err := h.claim(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		return err
	}
	gone := func() int {
		return len(slices.DeleteFunc(slices.Clone(h.peers.asked), func(a string) bool { return !strings.HasPrefix(a, "unclaim") }))
	}
	for range 2 {
		if err := look(); err != nil || gone() != 0 {
			t.Fatal(err, h.peers.asked)
		}
	}
	if err := h.client.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	h.peers.unclaim = errors.New("unreachable")
	if err := look(); err == nil {
		t.Error("bob cannot be reached, and that is forgotten")
	}
	h.peers.unclaim = nil
	for range 2 {
		if err := look(); err != nil {
			t.Fatal(err)
		}
	}
	if gone() != 2 || !slices.Contains(h.peers.reviewed, "shop") {
		t.Errorf("asked %q, reviewed %q", h.peers.asked, h.peers.reviewed)
	}
}

// A claim of the name of one that was deleted gets its volume, though the peer that was making the other one's cannot be told; but not at that peer.
func TestAClaimOfTheNameOfOneThatWasRestored(t *testing.T) {
	for at, want := range map[string]string{"kith-carol": "carol", "kith-bob": ""} {
		old := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
		old.Name, old.UID = "again", "old"
		h := withSnapshots(t, "bob", old)
		h.ready()
		h.peers.state = remote.ClaimState{Phase: corev1.ClaimPending}
		look := func() error {
			_, err := h.claim(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)})
			return err
		}
		claim := claimAt(at)
		claim.Name, claim.UID = "again", "again"
		if err := errors.Join(look(), h.client.Delete(t.Context(), old), h.client.Create(t.Context(), claim)); err != nil {
			t.Fatal(err)
		}
		h.peers.asked, h.peers.unclaim = nil, errors.New("unreachable")
		made := func() (peer string) {
			var v corev1.PersistentVolume
			if err := h.client.Get(t.Context(), client.ObjectKey{Name: "pvc-again"}, &v); err == nil {
				peer = AtPeer(&v)
			}
			return peer
		}
		if err := look(); err == nil || !strings.Contains(err.Error(), "unreachable") || made() != want {
			t.Errorf("at %s: %v, it is at %q, asked %q", at, err, made(), h.peers.asked)
		}
		h.peers.unclaim = nil
		if err := look(); err != nil || made() != strings.TrimPrefix(at, v1alpha1.VirtualNodePrefix) {
			t.Errorf("at %s, when bob is back: %v, it is at %q, asked %q", at, err, made(), h.peers.asked)
		}
	}
}

// A peer's no, another class and another namespace's content are said, and nothing is made anywhere.
func TestWhatCannotBeginWithASnapshotAtAPeer(t *testing.T) {
	fast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith-fast"}, Provisioner: v1alpha1.StorageProvisioner, Parameters: map[string]string{v1alpha1.ParameterClass: "fast"}}
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		patch  string // of the content
		no     error
		word   string
	}{
		"another class": {change: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("kith-fast") }, word: "makes volumes of"},
		"smaller": {change: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
		}, word: "asks for 1Gi"},
		"anothers content":  {patch: `{"spec":{"volumeSnapshotRef":{"uid":"other"}}}`, word: "no content of this namespace"},
		"another namespace": {patch: `{"status":{"snapshotHandle":"bob/other/monday/monday"}}`, word: "no content of this namespace"},
		"the peer's no":     {no: peering.Refuse(peering.CodeForbidden, "no more storage", ""), word: "no more storage"},
	} {
		claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
		claim.Name, claim.UID = "again", "again"
		if c.change != nil {
			c.change(claim)
		}
		h := withSnapshots(t, "bob", claim, fast)
		h.ready()
		if c.patch != "" {
			patch := client.RawPatch(types.MergePatchType, []byte(c.patch))
			content := func() client.Object { return unstructuredOf(snapshotv1.KindContent, "", "snapcontent-monday") }
			if err := errors.Join(h.client.Patch(t.Context(), content(), patch), h.client.Status().Patch(t.Context(), content(), patch)); err != nil {
				t.Fatal(err)
			}
		}
		h.peers.asked, h.peers.claim = nil, c.no
		result, err := h.claim(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "again"}})
		if err != nil || result.RequeueAfter != unfitPause || c.no == nil && len(h.peers.asked) > 0 {
			t.Errorf("%s: %v, %v, asked %q", name, result, err, h.peers.asked)
		}
		if said := <-h.events.(*events.FakeRecorder).Events; !strings.Contains(said, c.word) {
			t.Errorf("%s: said %q, want %q", name, said, c.word)
		}
	}
}
