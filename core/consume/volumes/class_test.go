package volumes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const fast = "fast.storageclass.storage.k8s.io/requests.storage"

// kithFast is a class at home by which claims ask for one of peers'.
func kithFast() *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith-fast"}, Provisioner: v1alpha1.StorageProvisioner, Parameters: map[string]string{v1alpha1.ParameterClass: "fast"}}
}

func granting(peer string, resources corev1.ResourceList) *v1alpha1.Contract {
	return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "from-" + peer}, Spec: v1alpha1.ContractSpec{Peer: peer, Role: v1alpha1.RoleConsumer, Resources: resources}}
}

// A claim whose class names one of peers' gets a volume of that: at a peer that shares it, at home where it is there, and nowhere else.
func TestAClaimAsksForAClassOfAPeer(t *testing.T) {
	fastAt := func(node string) *corev1.PersistentVolumeClaim {
		claim := claimAt(node)
		*claim.Spec.StorageClassName = "kith-fast"
		return claim
	}
	h := newHome(t, fastAt("kith-bob"), kithFast())
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	if v := h.made(); v == nil || AtPeer(v) != "bob" || ClassOf(v) != "fast" || v.Spec.StorageClassName != "kith-fast" || h.peers.asked[0] != "claim bob shop/data 2Gi of fast" {
		t.Fatalf("%+v, %q", v, h.peers.asked)
	}

	h = newHome(t, fastAt("alice"), kithFast())
	if _, err := h.make(); err != nil || h.made() != nil {
		t.Errorf("a volume of a class that is not there: %+v, %v", h.made(), err)
	}
	behind := func() string {
		var back corev1.PersistentVolumeClaim
		if h.client.Get(t.Context(), types.NamespacedName{Namespace: Namespace, Name: "pvc-2c7c6d51"}, &back) != nil {
			return ""
		}
		return *back.Spec.StorageClassName
	}
	if is := behind(); is != "" {
		t.Errorf("%s stands behind it", is)
	}
	for _, provisioner := range []string{v1alpha1.StorageProvisioner, "example.com/ssd"} { // one of Kith's own stands behind nothing
		h = newHome(t, fastAt("alice"), kithFast(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: provisioner})
		if _, err := h.make(); err != nil {
			t.Fatal(err)
		}
		if is := behind(); (is == "fast") != (provisioner != v1alpha1.StorageProvisioner) {
			t.Errorf("%s: %q stands behind it", provisioner, is)
		}
	}
}

// The scheduler knows of each class how much is left of it, and where there is none of it.
func TestTheSchedulerKnowsWhatIsLeftOfEachClass(t *testing.T) {
	keep := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "kith-keep"}, Provisioner: v1alpha1.StorageProvisioner}
	claim := claimAt("kith-bob")
	*claim.Spec.StorageClassName = "kith-fast"
	h := newHome(t, claim, kithFast(), keep, granting("bob", corev1.ResourceList{fast: resource.MustParse("3Gi"), "storage": resource.MustParse("5Gi")}),
		granting("carol", corev1.ResourceList{"storage": resource.MustParse("1Gi")}))
	left := func() (all []string) {
		t.Helper()
		if _, err := h.capacities(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		var list storagev1.CSIStorageCapacityList
		if err := h.client.List(t.Context(), &list, client.InNamespace(Namespace)); err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			all = append(all, c.Name+" "+c.StorageClassName+" "+c.Capacity.String())
		}
		return all
	}
	want := "at.bob kith 5Gi, at.carol kith 1Gi, home kith 1Ei, kith-fast.at.bob kith-fast 3Gi, kith-keep.at.bob kith-keep 5Gi, kith-keep.at.carol kith-keep 1Gi, kith-keep.home kith-keep 1Ei"
	if got := strings.Join(left(), ", "); got != want {
		t.Error(got)
	}
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(left(), ", "), strings.Replace(want, "kith-fast 3Gi", "kith-fast 1Gi", 1); got != want {
		t.Error(got)
	}
	if err := h.client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/ssd"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(left(), ", "); !strings.Contains(got, "kith-fast.home kith-fast 1Ei") {
		t.Error(got)
	}
}

// A move takes a volume to the same class, or is refused with what to do.
func TestAVolumeMovesWithinItsClass(t *testing.T) {
	newFast := func(objects ...client.Object) *mover {
		t.Helper()
		m := newMover(t, "", append(objects, kithFast(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/ssd"})...)
		claim := m.claimNow()
		*claim.Spec.StorageClassName = "kith-fast"
		if err := m.client.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := newFast(granting("bob", corev1.ResourceList{fast: resource.MustParse("3Gi")}))
	m.to("kith-bob")
	m.run()
	m.isAt("bob")
	if is := ClassOf(m.made()); is != "fast" || m.peers.asked[0] != "claim bob shop/data 2Gi of fast" {
		t.Errorf("it is of class %q: %q", is, m.peers.asked)
	}
	m.to("alice")
	m.run()
	m.isAt("")

	refused := func(m *mover, to, why string) {
		t.Helper()
		m.peers.asked = nil
		m.to(to)
		m.run()
		if is := MoveOf(m.claimNow()); is == nil || is.Phase != Failed || !strings.Contains(is.Why, why) || len(m.peers.asked) > 0 {
			t.Errorf("%+v, want %q; asked %q", is, why, m.peers.asked)
		}
	}
	m = newFast(granting("bob", corev1.ResourceList{"storage": resource.MustParse("3Gi")}))
	refused(m, "kith-bob", "the contract with bob grants none of that: `kith peer bob --storage fast=AMOUNT`")
	refused(m, "kith-carol", "the contract with carol grants none of that")

	m = newFast(granting("bob", corev1.ResourceList{fast: resource.MustParse("3Gi")}))
	m.to("kith-bob")
	m.run()
	if err := m.client.Delete(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}); err != nil {
		t.Fatal(err)
	}
	refused(m, "alice", "this cluster has no class of that name")
	m.isAt("bob")
}
