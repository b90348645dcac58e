package volumes

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

const snapUID = "77777777-9b1e-4d0a-8f0e-0d5d1f2e3a4b"

// builtin has the cluster be the built-in Kubernetes, which makes snapshots.
func (p *provider) builtin() {
	p.Helper()
	p.Node = "here"
	var class storagev1.StorageClass
	if err := p.client.Get(p.Context(), client.ObjectKey{Name: "local-path"}, &class); err != nil {
		p.Fatal(err)
	}
	if err := p.client.Delete(p.Context(), &class); err != nil {
		p.Fatal(err)
	}
	crd := new(unstructured.Unstructured)
	crd.SetGroupVersionKind(definition)
	crd.SetName("volumesnapshots.snapshot.storage.k8s.io")
	crd.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	for _, o := range []client.Object{crd, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class.Name, Annotations: class.Annotations}, Provisioner: snapshotv1.Driver, AllowVolumeExpansion: new(true),
	}} {
		if err := p.client.Create(p.Context(), o); err != nil {
			p.Fatal(err)
		}
	}
	p.mux.HandleFunc("PUT "+remote.SnapshotPath, func(w http.ResponseWriter, r *http.Request) { p.PutSnapshot(w, r, r.Header.Get("By")) })
	p.mux.HandleFunc("DELETE "+remote.SnapshotPath, func(w http.ResponseWriter, r *http.Request) { p.DeleteSnapshot(w, r, r.Header.Get("By")) })
}

// snap asks about a snapshot as a consumer.
func (p *provider) snap(code int, word, method, by, contract, name, uid, body string) {
	p.Helper()
	path := fmt.Sprintf("/kith/v2/namespaces/shop/snapshots/%s?contract=%s&uid=%s", name, contract, uid)
	if method == "PUT" && body == "" {
		body = fmt.Sprintf(`{"uid":%q,"claim":"data","claimUID":%q}`, uid, claimUID)
	}
	r := httptest.NewRequestWithContext(p.Context(), method, path, strings.NewReader(body))
	r.Header.Set("By", p.id[by])
	w := httptest.NewRecorder()
	p.mux.ServeHTTP(w, r)
	if w.Code != code || !strings.Contains(w.Body.String(), word) {
		p.Errorf("%s %s of %s under %s: %d %s, want %d %q", method, name, by, contract, w.Code, w.Body, code, word)
	}
}

const claimUID = uid

// made does what the engine does for a VolumeSnapshot: its content says whose it is.
func (p *provider) made(by, name, size string) {
	p.Helper()
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot))
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: p.twin[by], Name: name}, u); err != nil {
		p.Fatal(err)
	}
	bytes := map[string]int64{"2Gi": 2 << 30, "4Gi": 4 << 30}[size]
	content, err := snapshotv1.Write(map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindContent,
		"metadata": metav1.ObjectMeta{Name: "snapcontent-" + name, Labels: u.GetLabels(), Annotations: u.GetAnnotations()},
		"spec": snapshotv1.ContentSpec{Snapshot: corev1.ObjectReference{Namespace: p.twin[by], Name: name, UID: u.GetUID()}, DeletionPolicy: snapshotv1.Retain, Driver: snapshotv1.Driver,
			Source: snapshotv1.ContentSource{Volume: "pv"}},
		"status": snapshotv1.ContentStatus{Ready: true, CreationTime: time.Now().UnixNano(), RestoreSize: &bytes},
	})
	if err != nil {
		p.Fatal(err)
	}
	u.Object["status"] = map[string]any{"readyToUse": true}
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { return p.client.Create(ctx, content) }, func(ctx context.Context) error { return p.client.Update(ctx, u) },
	} {
		if err := do(p.Context()); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *provider) there(by string) map[types.UID]*guestSnapshot {
	p.Helper()
	all, err := p.snapshotsOf(p.Context(), p.contracts.Of(by+"-1").Consumer.Compact)
	if err != nil {
		p.Fatal(err)
	}
	return all
}

func newSnapshots(t *testing.T, size string) *provider {
	t.Helper()
	p := newProvider(t)
	p.builtin()
	p.want(200, "", "PUT", "bob", "bob-1", "data", claimUID, size)
	p.snap(503, "is being made", "PUT", "bob", "bob-1", "monday", snapUID, "") // it has no volume yet
	p.bind("bob", "data", "pv")
	return p
}

// A snapshot is made of a consumer's own volume, and the contract counts it as it counts a claim.
func TestASnapshotIsMadeWithinTheContract(t *testing.T) {
	p := newSnapshots(t, "4Gi")
	for range 2 {
		p.snap(200, `{}`, "PUT", "bob", "bob-1", "monday", snapUID, "")
	}
	is := p.there("bob")[snapUID]
	if is == nil || is.snapshot == nil || is.snapshot.Namespace != p.twin["bob"] || is.snapshot.Spec.Source.Claim != "data" || is.snapshot.Spec.Class != v1alpha1.GuestStorageClass || is.snapshot.Annotations[v1alpha1.AnnotationSize] != "4Gi" {
		t.Fatalf("%+v", is)
	}
	p.want(503, "a snapshot of it is being made", "PUT", "bob", "bob-1", "data", claimUID, "5Gi") // it would be larger than it is counted
	p.snap(403, "the snapshot takes 4Gi, 8Gi of 10Gi is in use", "PUT", "bob", "bob-1", "tuesday", "88888888", "")
	p.want(403, "the claim asks for 3Gi, 8Gi of 10Gi is in use", "PUT", "bob", "bob-1", "other", "99999999", "3Gi")
	p.made("bob", "monday", "4Gi")
	p.snap(200, `"ready":true`, "PUT", "bob", "bob-1", "monday", snapUID, "")
	p.snap(200, `"size":4294967296`, "PUT", "bob", "bob-1", "monday", snapUID, fmt.Sprintf(`{"uid":%q}`, snapUID))
	if used := p.allocations.Used("bob-1"); used.Storage().String() != "8Gi" {
		t.Errorf("the contract says %s", used.Storage())
	}
	p.want(200, "", "DELETE", "bob", "bob-1", "data", claimUID, "") // its volume goes, it stays and is counted
	if err := p.client.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.twin["bob"], Name: "data"}}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	p.want(403, "the claim asks for 7Gi, 4Gi of 10Gi is in use", "PUT", "bob", "bob-1", "other", "99999999", "7Gi")
}

func TestSnapshotsThatAConsumerDoesNotGet(t *testing.T) {
	p := newSnapshots(t, "2Gi")
	p.snap(409, "no such claim is kept here", "PUT", "eve", "eve-1", "monday", snapUID, "") // bob's
	p.snap(403, "none of that ID", "PUT", "eve", "bob-1", "monday", snapUID, "")
	p.snap(409, "no such claim is kept here", "PUT", "bob", "bob-1", "monday", snapUID, fmt.Sprintf(`{"uid":%q,"claim":"data","claimUID":"12"}`, snapUID))
	p.snap(409, "no such snapshot is kept here", "PUT", "bob", "bob-1", "monday", snapUID, fmt.Sprintf(`{"uid":%q}`, snapUID))
	p.snap(400, "is no UID", "PUT", "bob", "bob-1", "monday", "..", "")
	p.snap(400, "body", "PUT", "bob", "bob-1", "monday", snapUID, strings.Repeat(" ", 2000))
	p.snap(400, "a lowercase RFC 1123", "PUT", "bob", "bob-1", "Monday", snapUID, "")
	p.snap(200, "", "PUT", "bob", "bob-1", "monday", snapUID, "")
	p.made("bob", "monday", "2Gi")
	p.snap(409, "is called otherwise", "PUT", "bob", "bob-1", "other", snapUID, "")
	p.snap(503, "a former snapshot of that name", "PUT", "bob", "bob-1", "monday", "8888", "")
	p.snap(200, "", "DELETE", "eve", "eve-1", "monday", snapUID, "") // bob's is there all the same
	if len(p.there("bob")) != 1 {
		t.Error("another consumer deleted it")
	}
	plain := newProvider(t)
	plain.Node = "here"
	plain.want(200, "", "PUT", "bob", "bob-1", "data", claimUID, "2Gi")
	plain.bind("bob", "data", "pv")
	plain.mux.HandleFunc("PUT "+remote.SnapshotPath, func(w http.ResponseWriter, r *http.Request) { plain.PutSnapshot(w, r, r.Header.Get("By")) })
	plain.snap(403, "the Kubernetes here makes none", "PUT", "bob", "bob-1", "monday", snapUID, "")
}

// What begins with a snapshot is made at once, of its class, and as large at least.
func TestAClaimThatBeginsWithASnapshot(t *testing.T) {
	p := newSnapshots(t, "2Gi")
	p.snap(200, "", "PUT", "bob", "bob-1", "monday", snapUID, "")
	again := func(code int, word, by, storage string) {
		t.Helper()
		body := fmt.Sprintf(`{"uid":"4444","storage":%q,"accessModes":["ReadWriteOnce"],"snapshot":%q}`, storage, snapUID)
		if class, amount, of := strings.Cut(storage, "="); of {
			body = fmt.Sprintf(`{"uid":"4444","storage":%q,"accessModes":["ReadWriteOnce"],"snapshot":%q,"class":%q}`, amount, snapUID, class)
		}
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "/kith/v2/namespaces/shop/claims/again?contract="+by+"-1", strings.NewReader(body))
		r.Header.Set("By", p.id[by])
		w := httptest.NewRecorder()
		p.mux.ServeHTTP(w, r)
		if w.Code != code || !strings.Contains(w.Body.String(), word) {
			t.Errorf("%s of %s: %d %s, want %d %q", storage, by, w.Code, w.Body, code, word)
		}
	}
	again(503, "is not ready", "bob", "2Gi")
	p.made("bob", "monday", "2Gi")
	again(409, "is not kept here", "eve", "2Gi")
	again(403, "needs 2Gi", "bob", "1Gi")
	again(403, "is of the default class", "bob", "fast=2Gi")
	again(403, "the claim asks for 9Gi", "bob", "9Gi")
	again(200, "Pending", "bob", "3Gi")
	claim := p.claimOf("bob", "again")
	if s := claim.Spec.DataSource; s == nil || s.Kind != snapshotv1.KindSnapshot || s.Name != "monday" || claim.Annotations[annotationSelectedNode] != "here" {
		t.Errorf("%+v, %v", claim.Spec.DataSource, claim.Annotations)
	}
}

// A snapshot is gone when its files are: until then its consumer asks again. What is deleted at its end says so of its content first, or it would be kept.
func TestADeletedSnapshotOfAConsumers(t *testing.T) {
	p := newSnapshots(t, "2Gi")
	p.snap(200, "", "PUT", "bob", "bob-1", "monday", snapUID, "")
	p.made("bob", "monday", "2Gi")
	p.snap(503, "it is being deleted", "DELETE", "bob", "bob-1", "monday", snapUID, "")
	is := p.there("bob")[snapUID]
	if is == nil || is.snapshot != nil || is.content.Spec.DeletionPolicy != snapshotv1.Delete {
		t.Fatalf("%+v", is)
	}
	p.snap(503, "it is being deleted", "DELETE", "bob", "bob-1", "monday", snapUID, "")
	p.snap(200, "", "DELETE", "bob", "bob-1", "monday", snapUID, "")
	if used := p.allocations.Used("bob-1"); used.Storage().String() != "2Gi" {
		t.Errorf("the contract says %s", used.Storage())
	}
}

// With its twin a snapshot does not go: it is kept for the time of the contract, counted by the next one, and given back.
func TestSnapshotsAreKept(t *testing.T) {
	p := newSnapshots(t, "4Gi")
	p.snap(200, "", "PUT", "bob", "bob-1", "monday", snapUID, "")
	p.made("bob", "monday", "4Gi")
	twin := new(unstructured.Unstructured)
	twin.SetGroupVersionKind(snapshotv1.GroupVersion.WithKind(snapshotv1.KindSnapshot))
	twin.SetNamespace(p.twin["bob"])
	twin.SetName("monday")
	if err := p.client.Delete(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	kept := func() string { return p.there("bob")[snapUID].content.Annotations[v1alpha1.AnnotationKeptUntil] }
	if again, err := p.keepSnapshots(t.Context()); err != nil || again != 0 || kept() != "" {
		t.Errorf("under its contract: %v, %v, until %q", again, err, kept())
	}
	p.want(403, "the claim asks for 4Gi, 8Gi of 10Gi", "PUT", "bob", "bob-1", "other", "99999999", "4Gi")

	var contracts v1alpha1.ContractList
	if err := p.client.List(t.Context(), &contracts); err != nil {
		t.Fatal(err)
	}
	state := func(s v1alpha1.RelationState) {
		t.Helper()
		for i := range contracts.Items {
			contracts.Items[i].Status.State = s
			if err := p.client.Status().Update(t.Context(), &contracts.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	late := metav1.ObjectMeta{Namespace: p.twin["bob"], Name: "late", Labels: maps.Clone(p.there("bob")[snapUID].content.Labels)}
	late.Labels[v1alpha1.LabelHomeSnapshot] = "8888"
	if err := p.createSnapshot(t.Context(), late, map[string]any{"persistentVolumeClaimName": "data"}); err != nil {
		t.Fatal(err)
	}
	state(v1alpha1.StateEnding)
	if again, err := p.keepSnapshots(t.Context()); err != nil || again != goingLook {
		t.Errorf("one is being made yet: %v, %v", again, err)
	}
	other := twin.DeepCopy()
	other.SetName(late.Name)
	if err := p.client.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	again, err := p.keepSnapshots(t.Context())
	until, read := time.Parse(time.RFC3339, kept())
	if err != nil || read != nil || again <= 0 || time.Until(until) < again-2*time.Second {
		t.Errorf("%v, %v, until %q", again, err, kept())
	}
	state("")
	if again, err := p.keepSnapshots(t.Context()); err != nil || again != 0 || kept() != "" {
		t.Errorf("under the next: %v, %v, until %q", again, err, kept())
	}
	p.snap(200, "", "PUT", "bob", "bob-1", "monday", snapUID, fmt.Sprintf(`{"uid":%q}`, snapUID))
	is := p.there("bob")[snapUID]
	if is.snapshot == nil || is.snapshot.Spec.Source.Content != is.content.Name || is.content.Spec.Snapshot.UID != "" || !maps.Equal(is.snapshot.Labels, is.content.Labels) {
		t.Errorf("%+v, of %+v", is.snapshot, is.content.Spec)
	}

	if err := p.client.Delete(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	state(v1alpha1.StateEnding)
	if err := p.patchContent(t.Context(), is.content, []byte(`{"metadata":{"annotations":{"kith.dev/kept-until":"2026-01-01T00:00:00Z"}}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.keepSnapshots(t.Context()); err != nil || len(p.there("bob")) != 0 {
		t.Errorf("its time is over: %v, %v", err, p.there("bob"))
	}
}
