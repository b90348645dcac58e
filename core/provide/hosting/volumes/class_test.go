package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

const fast = "fast.storageclass.storage.k8s.io/requests.storage"

// Each class has an amount of its own under a contract; what is not granted, or not there, is refused by its name, and none is lent of another.
func TestClassesAreCountedEachByItself(t *testing.T) {
	p := newProvider(t)
	p.want(403, "the contract grants no storage of storage class fast", "PUT", "bob", "bob-1", "data", uid, "fast=1Gi")
	for _, id := range []string{"bob-1", "eve-1"} {
		p.contracts.Of(id).Limit[fast] = resource.MustParse("2Gi")
	}
	p.want(403, "this cluster has no storage class of that name", "PUT", "bob", "bob-1", "data", uid, "fast=1Gi")
	ours := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: v1alpha1.StorageProvisioner}
	if err := p.client.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	p.want(403, "this cluster has no storage class of that name", "PUT", "bob", "bob-1", "data", uid, "fast=1Gi") // what a peer lends is not lent on
	if err := p.client.Delete(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/ssd", AllowVolumeExpansion: new(true), Parameters: map[string]string{"kind": "ssd"}}
	if err := p.client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}

	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "fast=1Gi")
	claim := p.claimOf("bob", "data")
	var made storagev1.StorageClass
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: *claim.Spec.StorageClassName}, &made); err != nil {
		t.Fatal(err)
	}
	if made.Name != "fast.guests.kith.dev" || made.Provisioner != "example.com/ssd" || made.Parameters["kind"] != "ssd" || *made.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("%+v", made)
	}
	p.want(403, "storage (fast): the claim asks for 1536Mi, 1Gi of 2Gi is in use", "PUT", "bob", "bob-1", "more", "aa", "fast=1536Mi")
	p.want(403, "--storage fast=AMOUNT", "PUT", "bob", "bob-1", "more", "aa", "fast=1536Mi")
	p.want(200, "", "PUT", "bob", "bob-1", "plain", "bb", "10Gi") // all of the default class
	p.want(403, "storage: the claim asks for 1, 10Gi of 10Gi is in use", "PUT", "bob", "bob-1", "more", "aa", "1")
	p.want(200, "", "PUT", "eve", "eve-1", "data", uid, "fast=2Gi") // another's

	p.bind("bob", "data", "pv-1")
	p.want(409, "its volume here is of storage class fast, and the default class is asked for", "PUT", "bob", "bob-1", "data", uid, "2Gi")
	p.want(409, "its volume here is of the default class, and storage class fast is asked for", "PUT", "bob", "bob-1", "plain", "bb", "fast=1Gi")
	p.want(403, "storage (fast): the claim is to grow from 1Gi to 3Gi, 1Gi of 2Gi is in use", "PUT", "bob", "bob-1", "data", uid, "fast=3Gi")
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "fast=2Gi")
	used := p.allocations.Used("bob-1")
	of, rest := used[fast], used[corev1.ResourceStorage]
	if of.String() != "2Gi" || rest.String() != "10Gi" {
		t.Errorf("in use: %v", used)
	}

	for _, wrong := range []string{"Fast", "a/b", "fast.", "..", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		p.want(400, "is not the name of a storage class", "PUT", "bob", "bob-1", "wrong", "cc", wrong+"=1Gi")
	}

	// What is kept is of its class, whatever is asked for.
	p.gone("bob", "data", "pv-1")
	p.look("pv-1")
	if _, is := p.allocations.Used("bob-1")[fast]; is {
		t.Error("what is kept is counted")
	}
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "fast=1Gi")
	if again := p.claimOf("bob", "data"); again.Spec.VolumeName != "pv-1" || *again.Spec.StorageClassName != "fast.guests.kith.dev" {
		t.Errorf("%+v", again.Spec)
	}
}
