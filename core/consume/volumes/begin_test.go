package volumes

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
)

// beginning is a claim that no pod uses yet, and that is to begin with something.
func beginning(group, kind, name string) *corev1.PersistentVolumeClaim {
	claim := claimAt("")
	claim.Annotations = nil // nobody has said who provisions it, nor where
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if group != "" {
		claim.Spec.DataSource.APIGroup = &group
	}
	return claim
}

// taken is a VolumeSnapshot of 1Gi.
func taken(name string, ready bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotv1.GroupVersion.String(), "kind": snapshotv1.KindSnapshot, "metadata": map[string]any{"namespace": "shop", "name": name, "uid": name},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "old"}}, "status": map[string]any{"readyToUse": ready, "restoreSize": "1Gi"},
	}}
}

// builtin has the class behind be the built-in one.
func (h *home) builtin() {
	h.Helper()
	var class storagev1.StorageClass
	if err := h.client.Get(h.Context(), client.ObjectKey{Name: "local-path"}, &class); err != nil {
		h.Fatal(err)
	}
	if err := h.client.Delete(h.Context(), &class); err != nil {
		h.Fatal(err)
	}
	if err := h.client.Create(h.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class.Name, Annotations: class.Annotations}, Provisioner: snapshotv1.Driver}); err != nil {
		h.Fatal(err)
	}
}

func (h *home) back() *corev1.PersistentVolumeClaim {
	h.Helper()
	back := new(corev1.PersistentVolumeClaim)
	if err := h.client.Get(h.Context(), client.ObjectKey{Namespace: Namespace, Name: "pvc-2c7c6d51"}, back); client.IgnoreNotFound(err) != nil {
		h.Fatal(err)
	}
	return back
}

// A claim that begins with a snapshot gets its volume where that is, and waits for no pod: the scheduler then has no choice.
func TestAClaimThatBeginsWithASnapshotIsWhereThatIs(t *testing.T) {
	for _, chosen := range []string{"", "kith-bob"} {
		claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
		if chosen != "" {
			claim.Annotations = map[string]string{annotationProvisioner: v1alpha1.StorageProvisioner, annotationSelectedNode: chosen}
		}
		h := newHome(t, claim, taken("monday", true))
		h.builtin()
		if result, err := h.make(); err != nil || result.RequeueAfter == 0 {
			t.Fatal(result, err)
		}
		back := h.back()
		if back.Annotations[v1alpha1.AnnotationSnapshot] != "shop/monday" || back.Annotations[annotationSelectedNode] != "alice" || back.Spec.DataSource != nil || len(h.peers.asked) > 0 {
			t.Errorf("chosen %q: %+v, asked %q", chosen, back, h.peers.asked)
		}
	}
}

// So does one that begins with what another claim has: the claim behind it begins with the one behind that.
func TestAClaimThatBeginsWithAnother(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: "old"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-old"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	at := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-old", Annotations: map[string]string{annotationBacking: Namespace + "/pvc-old", annotationProvisionedBy: v1alpha1.StorageProvisioner}},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "old", UID: "old"}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"alice"}}},
			}}}},
		},
	}
	h := newHome(t, beginning("", kindClaim, "old"), old, at)
	h.builtin()
	if result, err := h.make(); err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	if back := h.back(); back.Spec.DataSource == nil || *back.Spec.DataSource != (corev1.TypedLocalObjectReference{Kind: kindClaim, Name: "pvc-old"}) || back.Annotations[annotationSelectedNode] != "alice" {
		t.Errorf("%+v", back)
	}
}

// onNode is the volume of a claim of class kith, of a folder on a node.
func onNode(node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-old", Annotations: map[string]string{annotationBacking: Namespace + "/pvc-old", annotationProvisionedBy: v1alpha1.StorageProvisioner}},
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}},
	}
}

// What a claim cannot begin with is said of it, and no volume is made that is empty.
func TestWhatAClaimCannotBeginWith(t *testing.T) {
	bound := func(v *corev1.PersistentVolume) []client.Object {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "old", UID: "old"}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		return []client.Object{v, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: "old"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: v.Name},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}}
	}
	class := v1alpha1.StorageClassName
	there := atPeer(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: types.UID("old")}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}},
		"pvc-old", "", "bob", corev1.PersistentVolumeReclaimDelete)
	snapshot, claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday"), beginning("", kindClaim, "old")
	small := snapshot.DeepCopy()
	small.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1023Mi")
	for name, c := range map[string]struct {
		claim   *corev1.PersistentVolumeClaim
		there   []client.Object
		foreign bool // the class behind is another's
		final   bool
		word    string
	}{
		"too small":              {claim: small, there: []client.Object{taken("monday", true)}, final: true, word: "asks for 1023Mi, and what it is to begin with has 1Gi"},
		"not ready":              {claim: snapshot, there: []client.Object{taken("monday", false)}, word: "is not ready"},
		"not there":              {claim: snapshot, there: []client.Object{taken("tuesday", true)}, word: "not found"},
		"another class behind":   {claim: snapshot, there: []client.Object{taken("monday", true)}, foreign: true, final: true, word: "make the claim of class local-path itself"},
		"a claim at a peer":      {claim: claim, there: bound(there), final: true, word: "is at bob, and a peer copies none but to a snapshot: make a VolumeSnapshot of it and begin with that, or `kith volume move shop/old --to home`"},
		"a claim of another one": {claim: claim, there: bound(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}), final: true, word: "claim old is of another class than kith"},
		"a claim on a node":      {claim: claim, there: bound(onNode("carl")), final: true, word: "is on node carl, and volumes are copied on alice alone"},
		"a claim without volume": {claim: claim, there: []client.Object{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old"}}}, word: "claim old has no volume yet"},
	} {
		h := newHome(t, append(c.there, c.claim.DeepCopy())...)
		if !c.foreign {
			h.builtin()
		}
		result, err := h.make()
		if (err == nil) != c.final || c.final && result.RequeueAfter != unfitPause || h.made() != nil || h.back().Name != "" {
			t.Errorf("%s: %v, %v, %+v", name, result, err, h.back())
		}
		if said := <-h.events.(*events.FakeRecorder).Events; !strings.Contains(said, "ProvisioningFailed") || !strings.Contains(said, c.word) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// A cluster without the kind says so.
func TestWithoutVolumeSnapshots(t *testing.T) {
	h := newHome(t, beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday"))
	h.fresh = noKind{h.fresh}
	if result, err := h.make(); err != nil || result.RequeueAfter != unfitPause {
		t.Error(result, err)
	}
	if said := <-h.events.(*events.FakeRecorder).Events; !strings.Contains(said, "this cluster has no VolumeSnapshots") {
		t.Error(said)
	}
}

type noKind struct{ client.Reader }

func (r noKind) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if u, is := o.(*unstructured.Unstructured); is {
		return &meta.NoKindMatchError{GroupKind: u.GroupVersionKind().GroupKind()}
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// A claim of somebody else's class is not touched, whatever it is called.
func TestAnothersClaimThatBeginsWithSomething(t *testing.T) {
	claim := beginning(snapshotv1.GroupVersion.Group, snapshotv1.KindSnapshot, "monday")
	claim.Spec.StorageClassName = new("kith-and-kin")
	h := newHome(t, claim, taken("monday", true), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith-and-kin"}, Provisioner: "example.com/kin"})
	h.builtin()
	if result, err := h.make(); err != nil || !result.IsZero() || h.back().Name != "" || h.made() != nil {
		t.Error(result, err)
	}
}
