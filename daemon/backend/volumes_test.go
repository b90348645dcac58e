package backend

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// atBob is a volume of the claim shop/data at bob.
func atBob() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: v1alpha1.StorageProvisioner, VolumeAttributes: map[string]string{"peer": "bob", "namespace": "shop", "claim": "data"},
		}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
}

func clusterWith(t *testing.T, objects ...client.Object) *Cluster {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).Build()
	return &Cluster{Client: ledgertest.Over(t, c), Fresh: c}
}

func conflict(t *testing.T, err error, reason, do string) {
	t.Helper()
	var no *api.Error
	if !errors.As(err, &no) || no.Code != api.CodeConflict || !strings.Contains(no.Reason, reason) || !strings.Contains(no.Do, do) {
		t.Errorf("%+v, want a conflict for %q that says %q", err, reason, do)
	}
}

// What would leave a volume behind names it, and says what to do.
func TestNothingEndsThatLeavesVolumesBehind(t *testing.T) {
	c := clusterWith(t, atBob())
	var said []string
	report := func(p api.Progress) { said = append(said, p.Message) }
	conflict(t, c.leaveVolumes(t.Context(), "bob", "bob", api.EndOptions{}, report), "shop/data (2Gi at bob)", "kith unpeer bob --delete-volumes")
	conflict(t, c.leaveVolumes(t.Context(), "bob", "bob", api.EndOptions{DryRun: true}, report), "shop/data (2Gi at bob)", "--leave-volumes")
	conflict(t, c.letGo(t.Context(), "", "shop", "bringing shop home", "kith unoffload shop", false, false, report), "shop/data", "kith unoffload shop --delete-volumes")
	if err := c.letGo(t.Context(), "", "other", "", "", false, false, report); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if err := c.leaveVolumes(t.Context(), "carol", "carol", api.EndOptions{}, report); err != nil {
		t.Errorf("another peer: %v", err)
	}
	for _, o := range []api.EndOptions{{DeleteVolumes: true, DryRun: true}, {LeaveVolumes: true, DryRun: true}} {
		if err := c.leaveVolumes(t.Context(), "bob", "bob", o, report); err != nil || len(said) > 0 {
			t.Errorf("%+v: %v, said %q", o, err, said)
		}
	}
	if err := c.leaveVolumes(t.Context(), "bob", "bob", api.EndOptions{LeaveVolumes: true}, report); err != nil || len(said) != 1 || !strings.Contains(said[0], "shop/data (2Gi at bob)") {
		t.Errorf("%v, said %q", err, said)
	}
}

func TestWhereVolumesMayBeIsNotChangedUnderThem(t *testing.T) {
	slow := "slow"
	waits := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "early"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &slow}}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "x"}
	c := clusterWith(t, atBob(), waits, class)
	const home, anywhere = v1alpha1.VolumesHome, v1alpha1.VolumesAnywhere
	conflict(t, c.checkVolumes(t.Context(), "shop", anywhere, home), "shop/data (2Gi at bob)", "--volumes anywhere")
	conflict(t, c.checkVolumes(t.Context(), "shop", home, anywhere), "early", "delete them")
	for _, fine := range []error{
		c.checkVolumes(t.Context(), "other", anywhere, home), c.checkVolumes(t.Context(), "other", home, anywhere),
		c.checkVolumes(t.Context(), "shop", anywhere, anywhere), c.checkVolumes(t.Context(), "shop", home, home), c.checkVolumes(t.Context(), "shop", "", home),
	} {
		if fine != nil {
			t.Error(fine)
		}
	}
}

func TestVolumesOfBothDirections(t *testing.T) {
	guest := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-2", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumerName: "carol"},
			Annotations: map[string]string{v1alpha1.AnnotationHomeClaim: "batch/results", v1alpha1.AnnotationKeptUntil: "2026-12-06T20:41:00Z"},
		},
		Spec:   corev1.PersistentVolumeSpec{StorageClassName: v1alpha1.GuestStorageClass, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	own := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.PersistentVolumeSpec{StorageClassName: v1alpha1.GuestStorageClass}}
	for pv, want := range map[*corev1.PersistentVolume]*api.Volume{
		atBob(): {Direction: api.Outgoing, Peer: "bob", Namespace: "shop", Claim: "data", Size: "2Gi", Volume: "pvc-1", Phase: "Bound"},
		guest:   {Direction: api.Incoming, Peer: "carol", Namespace: "batch", Claim: "results", Size: "1Gi", Volume: "pvc-2", Phase: "Released", KeptUntil: time.Date(2026, 12, 6, 20, 41, 0, 0, time.UTC)},
		own:     nil,
	} {
		got, is := volumeOf(pv, nil)
		if is != (want != nil) || is && got != *want {
			t.Errorf("%s: %+v %v, want %+v", pv.Name, got, is, want)
		}
	}
}
