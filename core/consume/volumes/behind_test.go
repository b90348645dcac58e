package volumes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A claim behind another goes with it when there is no volume yet, and stays in every other case.
func TestAClaimBehindGoesWithTheOneInFront(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *home, back *corev1.PersistentVolumeClaim)
		gone   bool
	}{
		"its claim is there": {func(*home, *corev1.PersistentVolumeClaim) {}, false},
		"its claim is gone": {func(h *home, _ *corev1.PersistentVolumeClaim) {
			if err := h.client.Delete(h.Context(), claimAt("")); err != nil {
				h.Fatal(err)
			}
		}, true},
		"another of its name is there": {func(h *home, _ *corev1.PersistentVolumeClaim) {
			next := claimAt("alice")
			next.UID = "3"
			if err := h.client.Delete(h.Context(), claimAt("")); err != nil {
				h.Fatal(err)
			}
			if err := h.client.Create(h.Context(), next); err != nil {
				h.Fatal(err)
			}
		}, true},
		"it has a volume": {func(h *home, back *corev1.PersistentVolumeClaim) {
			back.Spec.VolumeName = "real"
			if err := h.client.Delete(h.Context(), claimAt("")); err != nil {
				h.Fatal(err)
			}
		}, false},
		"somebody else made it": {func(h *home, back *corev1.PersistentVolumeClaim) {
			back.Labels = nil
			if err := h.client.Delete(h.Context(), claimAt("")); err != nil {
				h.Fatal(err)
			}
		}, false},
	} {
		h := newHome(t, claimAt("alice"))
		if _, err := h.make(); err != nil {
			t.Fatal(err)
		}
		back := h.back()
		c.change(h, back)
		if err := h.client.Update(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := h.orphan(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(back)}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(back), back); apierrors.IsNotFound(err) != c.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Why there is no volume is said of the claim that somebody made, and is asked seldom.
func TestAClaimSaysWhyTheOneBehindItHasNoVolume(t *testing.T) {
	h := newHome(t, claimAt("alice"))
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	back := h.back()
	back.UID = "behind"
	if err := h.client.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]corev1.Event{
		"first":  {Reason: "ProvisioningFailed", Message: "another copy is being made", LastTimestamp: metav1.Unix(1, 0)},
		"last":   {Reason: "ProvisioningFailed", Message: "make room there", LastTimestamp: metav1.Unix(2, 0)},
		"not it": {Reason: "Provisioning", Message: "it is made", LastTimestamp: metav1.Unix(3, 0)},
	} {
		e.Namespace, e.Name, e.InvolvedObject.UID = Namespace, strings.ReplaceAll(name, " ", "-"), "behind"
		if err := h.client.Create(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	said := h.events.(*events.FakeRecorder).Events
	for len(said) > 0 {
		<-said
	}
	if result, err := h.make(); err != nil || result.RequeueAfter != waitingPause {
		t.Fatal(result, err)
	}
	if len(said) != 1 {
		t.Fatal("nothing is said")
	}
	if got := <-said; !strings.Contains(got, "ProvisioningFailed") || !strings.Contains(got, "no volume at alice yet: make room there") {
		t.Error(got)
	}
}
