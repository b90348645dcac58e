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

// asks is how much a consumer's claim asks for here.
func (p *provider) asks(by, name string) string {
	p.Helper()
	size := p.claimOf(by, name).Spec.Resources.Requests[corev1.ResourceStorage]
	return size.String()
}

// A claim grows within what the contract grants, and what is beyond it is refused with the amounts, and changes nothing.
func TestAClaimGrowsWithinTheContract(t *testing.T) {
	p := newProvider(t)
	p.want(200, `{"phase":"Pending"}`, "PUT", "bob", "bob-1", "data", uid, "2Gi")
	p.want(200, `{"phase":"Pending"}`, "PUT", "bob", "bob-1", "data", uid, "3Gi") // not before it has a volume
	if asks := p.asks("bob", "data"); asks != "2Gi" {
		t.Errorf("a claim without a volume asks for %s", asks)
	}
	p.bind("bob", "data", "pv-1")
	p.want(200, "", "PUT", "bob", "bob-1", "more", "aa", "3Gi")
	p.want(403, "storage: the claim is to grow from 2Gi to 8Gi, 5Gi of 10Gi is in use", "PUT", "bob", "bob-1", "data", uid, "8Gi")
	p.want(403, "--storage", "PUT", "bob", "bob-1", "data", uid, "8Gi")
	if asks := p.asks("bob", "data"); asks != "2Gi" {
		t.Errorf("after a refusal it asks for %s", asks)
	}
	for range 2 { // asked twice, it grows once
		p.want(200, `{"phase":"Bound","capacity":"2Gi"}`, "PUT", "bob", "bob-1", "data", uid, "7Gi")
	}
	if used := p.allocations.Used("bob-1")[corev1.ResourceStorage]; p.asks("bob", "data") != "7Gi" || used.String() != "10Gi" {
		t.Errorf("it asks for %s, and %s is in use", p.asks("bob", "data"), used.String())
	}
	p.grown("bob", "data", "7Gi")
	p.want(200, `{"phase":"Bound","capacity":"7Gi"}`, "PUT", "bob", "bob-1", "data", uid, "7Gi")
	p.want(200, `{"phase":"Bound","capacity":"7Gi"}`, "PUT", "bob", "bob-1", "data", uid, "1Gi") // none becomes smaller
	if asks := p.asks("bob", "data"); asks != "7Gi" {
		t.Errorf("it asks for %s", asks)
	}
	p.want(503, "a former claim", "PUT", "bob", "bob-1", "data", "bb", "8Gi") // another claim of the name is not this one
}

// Whether volumes grow is a matter of the class here; folders that nobody holds to a size are as large as they are said to be.
func TestWhetherAClaimGrowsIsAMatterOfTheClass(t *testing.T) {
	for provisioner, c := range map[string]struct {
		code int
		word string
		asks string
	}{
		"example.com/fixed":     {403, "lets no volumes grow", "2Gi"},
		"rancher.io/local-path": {200, `{"phase":"Bound","capacity":"4Gi"}`, "4Gi"},
	} {
		p := newProvider(t)
		var class storagev1.StorageClass
		if err := p.client.Get(t.Context(), client.ObjectKey{Name: "local-path"}, &class); err != nil {
			t.Fatal(err)
		}
		class.Provisioner, class.AllowVolumeExpansion = provisioner, nil
		if err := p.client.Update(t.Context(), &class); err != nil {
			t.Fatal(err)
		}
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "2Gi")
		p.bind("bob", "data", "pv-1")
		p.want(c.code, c.word, "PUT", "bob", "bob-1", "data", uid, "4Gi")
		if asks := p.asks("bob", "data"); asks != c.asks {
			t.Errorf("%s: it asks for %s", provisioner, asks)
		}
		if size := p.volume("pv-1").Spec.Capacity.Storage().String(); size != c.asks {
			t.Errorf("%s: its volume is said to have %s", provisioner, size)
		}
	}
}

// A claim whose volume is still to grow keeps that when the class is gone meanwhile: pods start with it. More it does not get.
func TestAClaimThatGrowsOutlivesItsClass(t *testing.T) {
	p := newProvider(t)
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "2Gi")
	p.bind("bob", "data", "pv-1")
	p.want(200, `{"phase":"Bound","capacity":"2Gi"}`, "PUT", "bob", "bob-1", "data", uid, "4Gi")
	if err := p.client.Delete(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path"}}); err != nil {
		t.Fatal(err)
	}
	p.want(200, `{"phase":"Bound","capacity":"2Gi"}`, "PUT", "bob", "bob-1", "data", uid, "4Gi")
	p.want(403, "no default storage class", "PUT", "bob", "bob-1", "data", uid, "5Gi")
	if asks := p.asks("bob", "data"); asks != "4Gi" {
		t.Errorf("it asks for %s", asks)
	}
}

// The class of guests' volumes is made anew where it is of a Kith whose volumes did not grow.
func TestTheClassOfGuestsFollows(t *testing.T) {
	p := newProvider(t)
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "2Gi")
	p.bind("bob", "data", "pv-1")
	key := client.ObjectKey{Name: v1alpha1.GuestStorageClass}
	var class storagev1.StorageClass
	if err := p.client.Get(t.Context(), key, &class); err != nil {
		t.Fatal(err)
	}
	class.AllowVolumeExpansion = nil
	if err := p.client.Update(t.Context(), &class); err != nil {
		t.Fatal(err)
	}
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "4Gi")
	if err := p.client.Get(t.Context(), key, &class); err != nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		t.Errorf("%+v, %v", class, err)
	}
}

// A volume that is kept is given back as large as it is, whatever size its claim says, and counted so.
func TestAVolumeThatGrewIsGivenBackWhole(t *testing.T) {
	p := newProvider(t)
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "2Gi")
	p.bind("bob", "data", "pv-1")
	v := p.volume("pv-1")
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")} // and home has not heard of it
	if err := p.client.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	p.gone("bob", "data", "pv-1")
	p.look("pv-1")
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "2Gi")
	if claim := p.claimOf("bob", "data"); claim.Spec.VolumeName != "pv-1" || p.asks("bob", "data") != "4Gi" {
		t.Errorf("%+v", claim.Spec)
	}
}
