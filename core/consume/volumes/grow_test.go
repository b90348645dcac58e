package volumes

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// grownHome has a claim whose volume of 2Gi is at a node, and that asks for more.
func grownHome(t *testing.T, node, asks string, objects ...client.Object) *home {
	t.Helper()
	claim := claimAt(node)
	claim.Spec.VolumeName, claim.Status.Phase = nameOf(claim), corev1.ClaimBound
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	v := volume(claim, nameOf(claim), corev1.PersistentVolumeReclaimDelete)
	if peer, at := strings.CutPrefix(node, "kith-"); at {
		v = atPeer(claim, nameOf(claim), "", peer, corev1.PersistentVolumeReclaimDelete)
	} else {
		v.Annotations[annotationBacking] = Namespace + "/" + nameOf(claim)
		v.Spec.Local = &corev1.LocalVolumeSource{Path: "/folder"}
	}
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(asks)
	return newHome(t, append(objects, claim, v)...)
}

func (h *home) growOnce() (ctrl.Result, error) {
	h.Helper()
	return h.grow(h.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "data"}})
}

// is gives the size that the claim, and its volume, are said to have, and the condition of its growth.
func (h *home) is() (claim, volume string, condition corev1.PersistentVolumeClaimCondition) {
	h.Helper()
	var c corev1.PersistentVolumeClaim
	if err := h.client.Get(h.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &c); err != nil {
		h.Fatal(err)
	}
	growth := slices.DeleteFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return !isGrowth(c) })
	if len(growth) > 1 {
		h.Errorf("%+v", growth)
	}
	if len(growth) > 0 {
		condition = growth[0]
	}
	of, on := c.Status.Capacity[corev1.ResourceStorage], h.made().Spec.Capacity[corev1.ResourceStorage]
	return of.String(), on.String(), condition
}

func (h *home) wantIs(claim, volume string, kind corev1.PersistentVolumeClaimConditionType, words string) {
	h.Helper()
	c, v, condition := h.is()
	if c != claim || v != volume || condition.Type != kind || !strings.Contains(condition.Message, words) {
		h.Errorf("claim %s, volume %s, %s %q; want %s, %s, %s %q", c, v, condition.Type, condition.Message, claim, volume, kind, words)
	}
}

func TestAVolumeAtAPeerGrows(t *testing.T) {
	h := grownHome(t, "kith-bob", "5Gi")
	h.peers.state = remote.ClaimState{Phase: corev1.ClaimBound, Capacity: "2Gi"}
	for range 2 { // a restart in between asks again
		if result, err := h.growOnce(); err != nil || result.RequeueAfter < pendingPause || result.RequeueAfter > growthLook {
			t.Fatal(result, err)
		}
		h.wantIs("2Gi", "2Gi", corev1.PersistentVolumeClaimResizing, "")
	}
	h.peers.state.FileSystemPending = true
	if result, err := h.growOnce(); err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	h.wantIs("2Gi", "2Gi", corev1.PersistentVolumeClaimFileSystemResizePending, "when a pod")
	h.peers.state = remote.ClaimState{Phase: corev1.ClaimBound, Capacity: "5Gi"}
	if result, err := h.growOnce(); err != nil || result.RequeueAfter != 0 {
		t.Fatal(result, err)
	}
	h.wantIs("5Gi", "5Gi", "", "")
	asked := len(h.peers.asked)
	if _, err := h.growOnce(); err != nil || len(h.peers.asked) != asked {
		t.Errorf("%v, and asked %q", err, h.peers.asked)
	}
	if want := "claim bob shop/data 5Gi"; slices.ContainsFunc(h.peers.asked, func(s string) bool { return s != want }) {
		t.Errorf("asked %q, want %q", h.peers.asked, want)
	}
}

// kithd may end after it noted how large the volume is, and before it said so of the claim.
func TestAHalfNotedGrowthIsFinished(t *testing.T) {
	h := grownHome(t, "kith-bob", "5Gi")
	if err := enlarge(t.Context(), h.client, h.made(), resource.MustParse("5Gi")); err != nil {
		t.Fatal(err)
	}
	h.peers.state = remote.ClaimState{Phase: corev1.ClaimBound, Capacity: "5Gi"}
	if _, err := h.growOnce(); err != nil {
		t.Fatal(err)
	}
	h.wantIs("5Gi", "5Gi", "", "")
}

// What does not grow says why, is as large as before, and its pods are given it as before; what is answered is not believed where it says nothing.
func TestAVolumeThatDoesNotGrow(t *testing.T) {
	for name, c := range map[string]struct {
		state remote.ClaimState
		err   error
		kind  corev1.PersistentVolumeClaimConditionType
		words string
		again bool // by an error
	}{
		"refused": {err: peering.Refuse(peering.CodeForbidden, "storage: the claim is to grow from 2Gi to 5Gi, 2Gi of 4Gi is in use", "ask for more: kith peer NAME --storage AMOUNT"),
			kind: corev1.PersistentVolumeClaimControllerResizeError, words: "2Gi as before: storage: the claim is to grow from 2Gi to 5Gi, 2Gi of 4Gi is in use; ask for more"},
		"no contract": {err: ErrNoContract, kind: corev1.PersistentVolumeClaimControllerResizeError, words: "no contract"},
		"unreachable": {err: errors.New("no answer"), kind: corev1.PersistentVolumeClaimResizing, words: "no answer", again: true},
		"older":       {kind: corev1.PersistentVolumeClaimControllerResizeError, words: "bob has an older Kith, whose volumes do not grow; bring it to this version there"},
		"not made":    {state: remote.ClaimState{Phase: corev1.ClaimPending}, kind: corev1.PersistentVolumeClaimResizing, words: "with the first pod"},
		"nonsense":    {state: remote.ClaimState{Phase: corev1.ClaimBound, Capacity: "much"}, kind: corev1.PersistentVolumeClaimResizing},
	} {
		t.Run(name, func(t *testing.T) {
			h := grownHome(t, "kith-bob", "5Gi")
			h.peers.claim, h.peers.state = c.err, c.state
			for range 3 {
				if result, err := h.growOnce(); (err != nil) != c.again || err == nil && result.RequeueAfter == 0 {
					t.Fatal(result, err)
				}
			}
			h.wantIs("2Gi", "2Gi", c.kind, c.words)
			if told := len(h.events.(*events.FakeRecorder).Events); c.err != nil && told != 1 {
				t.Errorf("told %d times", told)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			}}}}
			if needs, err := Of(t.Context(), h.client, pod, "bob"); err != nil || len(needs) != 1 || needs[0].Claim.Storage != "2Gi" {
				t.Errorf("%+v, %v", needs, err)
			}
		})
	}
}

// A contract that changed has what was refused asked for again, and a claim that asks for less than it has is done.
func TestARefusedGrowthIsAskedForAgain(t *testing.T) {
	h := grownHome(t, "kith-bob", "5Gi")
	h.peers.claim = peering.Refuse(peering.CodeForbidden, "too much", "")
	if result, err := h.growOnce(); err != nil || result.RequeueAfter != growthRefused {
		t.Fatal(result, err)
	}
	if all := h.growing(t.Context(), nil); len(all) != 1 || all[0].Name != "data" {
		t.Error(all)
	}
	h.peers.claim, h.peers.state = nil, remote.ClaimState{Phase: corev1.ClaimBound, Capacity: "5Gi"}
	if _, err := h.growOnce(); err != nil {
		t.Fatal(err)
	}
	h.wantIs("5Gi", "5Gi", "", "")
	if all := h.growing(t.Context(), nil); len(all) != 0 {
		t.Error(all)
	}
}

// A volume that is on its way to another place grows when it is there.
func TestAMovingVolumeDoesNotGrow(t *testing.T) {
	h := grownHome(t, "kith-bob", "5Gi")
	var claim corev1.PersistentVolumeClaim
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &claim); err != nil {
		t.Fatal(err)
	}
	claim.Annotations[v1alpha1.AnnotationMove] = `{"phase":"Copying","from":"kith-bob","to":"kith-carol"}`
	if err := h.client.Update(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	if _, err := h.growOnce(); err != nil || len(h.peers.asked) > 0 {
		t.Errorf("%v, asked %q", err, h.peers.asked)
	}
	claim.Status.Capacity = nil // for a moment, while another volume takes the place of the one that is there
	m := &Mover{Controller: h.Controller}
	if err := m.size(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	if at, err := m.at(t.Context(), &claim, "kith-carol", ""); err != nil || at.Spec.Capacity.Storage().String() != "2Gi" {
		t.Errorf("%+v, %v", at, err)
	}
}

// At home the claim of the class that stands behind it grows first, by whoever makes the volumes of that class.
func TestAVolumeAtHomeGrowsWithTheOneBehindIt(t *testing.T) {
	back := func(class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "pvc-2c7c6d51"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "real",
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		}
	}
	classes := []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "example.com/fixed"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "example.com/grows", AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "folders"}, Provisioner: "rancher.io/local-path"},
	}
	behind := func(h *home) *corev1.PersistentVolumeClaim {
		var is corev1.PersistentVolumeClaim
		if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: "pvc-2c7c6d51"}, &is); err != nil {
			t.Fatal(err)
		}
		return &is
	}
	t.Run("a class that grows", func(t *testing.T) {
		h := grownHome(t, "alice", "5Gi", append(classes, back("grows"))...)
		for range 2 {
			if result, err := h.growOnce(); err != nil || result.RequeueAfter == 0 {
				t.Fatal(result, err)
			}
		}
		is := behind(h)
		if asks := is.Spec.Resources.Requests[corev1.ResourceStorage]; asks.String() != "5Gi" {
			t.Errorf("the claim behind it asks for %s", asks.String())
		}
		h.wantIs("2Gi", "2Gi", corev1.PersistentVolumeClaimResizing, "")
		// A file system that a kubelet grows: it does so for the volume that the pod has.
		is.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
		if err := h.client.Status().Update(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		if _, err := h.growOnce(); err != nil {
			t.Fatal(err)
		}
		h.wantIs("2Gi", "5Gi", corev1.PersistentVolumeClaimFileSystemResizePending, "")
		is = behind(h)
		is.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("5Gi")
		if err := h.client.Status().Update(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		if _, err := h.growOnce(); err != nil {
			t.Fatal(err)
		}
		h.wantIs("5Gi", "5Gi", "", "")
	})
	t.Run("one that does not", func(t *testing.T) {
		h := grownHome(t, "alice", "5Gi", append(classes, back("fixed"))...)
		if result, err := h.growOnce(); err != nil || result.RequeueAfter != growthRefused {
			t.Fatal(result, err)
		}
		h.wantIs("2Gi", "2Gi", corev1.PersistentVolumeClaimControllerResizeError, "the class fixed, which stands behind it at home, lets no volumes grow")
	})
	t.Run("one of folders", func(t *testing.T) {
		h := grownHome(t, "alice", "5Gi", append(classes, back("folders"))...)
		if _, err := h.growOnce(); err != nil {
			t.Fatal(err)
		}
		h.wantIs("5Gi", "5Gi", "", "")
	})
}
