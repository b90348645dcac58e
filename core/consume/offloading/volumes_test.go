package offloading

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

func TestClaimsThatCannotFollow(t *testing.T) {
	claim := func(name, class, volume string) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: volume}}
	}
	none := claim("none", "", "")
	none.Spec.StorageClassName = nil
	classes := []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "kith-slow"}, Provisioner: v1alpha1.StorageProvisioner}, {ObjectMeta: metav1.ObjectMeta{Name: "kith-like"}, Provisioner: "x"}}
	volumes := []corev1.PersistentVolume{
		{ObjectMeta: metav1.ObjectMeta{Name: "placed"}, Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "everywhere"}},
	}
	got := StaysHome([]corev1.PersistentVolumeClaim{
		claim("ours", "kith-slow", ""), claim("waits", "local-path", ""), claim("has", "local-path", "placed"), claim("shared", "nfs", "everywhere"), claim("like", "kith-like", ""), none,
	}, volumes, classes)
	if want := []string{"waits", "shared", "like", "none"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The admission policies of claims read on the namespace what the NamespaceOffloading says.
func TestANamespaceSaysWhereItsVolumesMayBe(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "x"}
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName}, Spec: v1alpha1.NamespaceOffloadingSpec{Volumes: v1alpha1.VolumesAnywhere}}
	c := world(t, class, nso, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	r := New(c, c, &released{}, slog.New(slog.DiscardHandler))
	says := func(volumes, class string) {
		t.Helper()
		for range 3 {
			if _, err := r.Reconcile(t.Context(), shop); err != nil {
				t.Fatal(err)
			}
		}
		var ns corev1.Namespace
		if err := c.Get(t.Context(), client.ObjectKey{Name: "shop"}, &ns); err != nil {
			t.Fatal(err)
		}
		if ns.Annotations[v1alpha1.AnnotationVolumes] != volumes || ns.Annotations[v1alpha1.AnnotationDefaultClass] != class {
			t.Errorf("%v, want %q, %q", ns.Annotations, volumes, class)
		}
	}
	says("Anywhere", "local-path")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil {
		t.Fatal(err)
	}
	nso.Spec.Volumes = v1alpha1.VolumesHome
	if err := c.Update(t.Context(), nso); err != nil {
		t.Fatal(err)
	}
	says("", "")
}
