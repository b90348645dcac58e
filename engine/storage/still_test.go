package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"kith.dev/engine/guests"
)

// pod puts one that has the claim on the node, with a cgroup, as v1 has it.
func (s *shop) pod(uid types.UID) (state string) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(uid), UID: uid}, Spec: corev1.PodSpec{NodeName: "alice", Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	if err := s.client.(*fake.Clientset).Tracker().Add(p); err != nil { // a reactor may not call the client
		s.Fatal(err)
	}
	group := filepath.Join(s.stills.pods, "besteffort", "pod"+string(uid))
	if err := os.MkdirAll(group, 0o700); err != nil {
		s.Fatal(err)
	}
	state = filepath.Join(group, "freezer.state")
	if err := os.WriteFile(state, []byte("THAWED"), 0o600); err != nil {
		s.Fatal(err)
	}
	return state
}

// Pods that have the volume stand still for the last of the copy, and for no longer; one that starts meanwhile has it made again.
func TestPodsStandStillForASnapshot(t *testing.T) {
	s := newShop(t)
	state := s.pod("one")
	s.wants(ofData)
	if is, err := s.look(); err != nil || !is.Ready {
		t.Fatalf("%+v, %v", is, err)
	}
	if got := read(t, state); got != "THAWED" {
		t.Errorf("after it: %s", got)
	}

	s = newShop(t)
	state = s.pod("one")
	s.wants(ofData)
	looks, during := 0, ""
	s.fakes().PrependReactor("list", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		if looks++; looks == 3 { // after the last pass; another one is there by then
			during = read(t, state)
			s.pod("two")
		}
		return false, nil, nil
	})
	if is, err := s.look(); !errors.Is(err, errStarted) || is.Ready || during != "THAWED" || len(s.there()) > 0 {
		t.Errorf("%+v, %v, %s, %q", is, err, during, s.there())
	}
	if is, err := s.look(); err != nil || !is.Ready {
		t.Errorf("again: %+v, %v", is, err)
	}
}

// Pods that stood still in vain do not so again while they are there, whatever is asked: a snapshot, or a volume that begins with theirs.
func TestPodsDoNotStandStillInVainTwice(t *testing.T) {
	s := newShop(t)
	state := s.pod("one")
	looks := 0
	s.fakes().PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		if looks++; looks == 2 { // somebody takes away what the last pass is to complete
			if err := os.RemoveAll(filepath.Join(s.at, "snapcontent-1"+halfSuffix)); err != nil {
				t.Error(err)
			}
		}
		return false, nil, nil
	})
	s.wants(ofData)
	_, err := s.look()
	if _, final := errors.AsType[*refusedError](err); !final || looks < 3 || read(t, state)[:6] != "THAWED" {
		t.Fatalf("%v, %d, %s", err, looks, read(t, state))
	}
	if err := os.WriteFile(state, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	is, again := s.look()
	if _, final := errors.AsType[*refusedError](again); !final || is.Error == nil || read(t, state) != "as it was" || len(s.there()) > 0 {
		t.Errorf("%v, %+v, %s", again, is, read(t, state))
	}
	if err := s.client.CoreV1().Pods("shop").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if is, err := s.look(); err != nil || !is.Ready {
		t.Errorf("without it: %+v, %v", is, err)
	}
}

// What a snapshot says of itself is no reason to look at it.
func TestWhatASnapshotSaysIsNoQuestion(t *testing.T) {
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "1", Generation: 1, Finalizers: []string{"a"}}}
	for name, c := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		asks   bool
	}{
		"status":    {func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "2" }, false},
		"spec":      {func(o *metav1.PartialObjectMetadata) { o.Generation++ }, true},
		"deletion":  {func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = new(metav1.Now()) }, true},
		"finalizer": {func(o *metav1.PartialObjectMetadata) { o.Finalizers = nil }, true},
		"another":   {func(o *metav1.PartialObjectMetadata) { o.UID = "2" }, true},
	} {
		next := is.DeepCopy()
		if c.change(next); asksElse(is, next) != c.asks {
			t.Error(name)
		}
	}
}

// Who is killed while pods stand still has them go on when it starts again, and no others.
func TestPodsGoOnAfterAKill(t *testing.T) {
	s := newShop(t)
	state, other := s.pod("one"), s.pod("two")
	held, release, err := s.stills.hold(t.Context(), []types.UID{"one", "none"})
	if err != nil || !held["one"] || held["none"] || read(t, state) != "FROZEN" || read(t, other) != "THAWED" {
		t.Fatal(held, err)
	}
	again := s.stills // of the next process
	if err := again.letGo(); err != nil || read(t, state)[:6] != "THAWED" {
		t.Error(err, read(t, state))
	}
	if err := os.RemoveAll(filepath.Dir(state)); err != nil { // the pod is gone
		t.Fatal(err)
	}
	if err := errors.Join(release(), again.letGo()); err != nil {
		t.Error(err)
	}
	guest := filepath.Join(s.stills.all, guests.Cgroup, "podguest", "freezer.state") // beside the owner's
	if err := errors.Join(os.MkdirAll(filepath.Dir(guest), 0o700), os.WriteFile(guest, []byte("THAWED"), 0o600)); err != nil {
		t.Fatal(err)
	}
	held, release, err = s.stills.hold(t.Context(), []types.UID{"guest"})
	if err != nil || !held["guest"] || read(t, guest) != "FROZEN" || release() != nil || read(t, guest)[:6] != "THAWED" {
		t.Fatal(held, err, read(t, guest))
	}
	elsewhere := s.stills // the kubelet has another cgroup than it had
	elsewhere.pods = filepath.Join(s.stills.all, "kith", "kubepods")
	if _, _, err := s.stills.hold(t.Context(), []types.UID{"two"}); err != nil || read(t, other) != "FROZEN" {
		t.Fatal(err)
	}
	if err := elsewhere.letGo(); err != nil || read(t, other)[:6] != "THAWED" {
		t.Error(err, read(t, other))
	}
	outside := filepath.Join(t.TempDir(), "freezer.state")
	if err := errors.Join(os.WriteFile(outside, []byte("x"), 0o600), os.WriteFile(s.stills.note, []byte(filepath.Dir(outside)+"\n"+s.stills.all+"/../x\n"), 0o600), again.letGo()); err != nil || read(t, outside) != "x" {
		t.Error(err, read(t, outside))
	}
}

// Pods that could not be let go are noted until they are: none stands still beside them.
func TestNoPodIsForgottenThatStandsStill(t *testing.T) {
	s := newShop(t)
	first, second := s.pod("one"), s.pod("two")
	_, release, err := s.stills.hold(t.Context(), []types.UID{"one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(first), os.Mkdir(first, 0o700)); err != nil { // nothing is written there
		t.Fatal(err)
	}
	if release() == nil {
		t.Error("it is said to go on")
	}
	if _, _, err := s.stills.hold(t.Context(), []types.UID{"two"}); err == nil || read(t, second) != "THAWED" || !strings.Contains(read(t, s.stills.note), "podone") {
		t.Errorf("%v, %s, %s", err, read(t, second), read(t, s.stills.note))
	}
	if err := errors.Join(os.Remove(first), os.WriteFile(first, []byte("FROZEN"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.stills.hold(t.Context(), []types.UID{"two"}); err != nil || read(t, first) != "THAWED" || read(t, second) != "FROZEN" {
		t.Error(err, read(t, first), read(t, second))
	}
}
