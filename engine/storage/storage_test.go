package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func claim(node string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: map[string]string{selectedNode: node}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}
}

func provision(t *testing.T, f *folders) *corev1.PersistentVolume {
	t.Helper()
	pv, state, err := f.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-1", PVC: claim("alice", corev1.ReadWriteOnce)})
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	return pv
}

func TestVolumeIsAFolderForAnyUserOnThisNodeUntilDeleted(t *testing.T) {
	f := &folders{root: t.TempDir(), node: "alice"}
	pv := provision(t, f)
	provision(t, f) // a controller that was interrupted asks twice
	path := filepath.Join(f.root, "pvc-1_shop_data")
	if pv.Spec.Local == nil || pv.Spec.Local.Path != path {
		t.Fatalf("%+v, want folder %s", pv.Spec.PersistentVolumeSource, path)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if got := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]; got != "alice" {
		t.Errorf("bound to node %s", got)
	}
	if err := os.MkdirAll(filepath.Join(path, "deep", "down"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Delete(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// What was half made goes when the engine starts, and no volume does, whatever its claim is called.
func TestOnlyWhatIsHalfMadeIsSweptAway(t *testing.T) {
	f := &folders{root: t.TempDir(), node: "alice"}
	asks := claim("alice", corev1.ReadWriteOnce)
	for _, name := range []string{"db.half", strings.Repeat("a", longestName-len("pvc-1_shop_.half")) + ".half.cut"} {
		asks.Name = name
		pv, _, err := f.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-1", PVC: asks})
		if err != nil {
			t.Fatal(err)
		}
		half, older, image := pv.Spec.Local.Path+halfSuffix, pv.Spec.Local.Path+".data.half", pv.Spec.Local.Path+imageSuffix
		if err := errors.Join(os.Mkdir(half, 0o700), os.WriteFile(older, nil, 0o600), os.WriteFile(image, nil, 0o600), os.WriteFile(filepath.Join(pv.Spec.Local.Path, "word"), nil, 0o600), sweep(f.root)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(pv.Spec.Local.Path, "word")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(image); err != nil {
			t.Error(err)
		}
		for _, path := range []string{half, older} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what is half made, %s: %v", path, err)
			}
		}
	}
}

func TestNothingOutsideTheFolderIsDeleted(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.MkdirAll(filepath.Join(outside, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := &folders{root: t.TempDir(), node: "alice"}
	link := filepath.Join(f.root, "pvc-link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{outside, f.root, f.root + "/", filepath.Join(f.root, "a", "b"), f.root + "/../" + filepath.Base(outside), link} {
		pv := provision(t, f)
		pv.Spec.Local.Path = path
		_ = f.Delete(t.Context(), pv) // refused, or the link itself removed
		if _, err := os.Stat(filepath.Join(outside, "data")); err != nil {
			t.Fatalf("%s: what is outside was deleted", path)
		}
		if _, err := os.Stat(f.root); err != nil {
			t.Fatalf("%s: the folder itself was deleted", path)
		}
	}
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is still there: %v", err)
	}
}

func TestLinkInsideAVolumeIsNotFollowed(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &folders{root: t.TempDir(), node: "alice"}
	pv := provision(t, f)
	if err := os.Symlink(outside, filepath.Join(pv.Spec.Local.Path, "out")); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), pv); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Error("a pod's link led the deletion outside")
	}
}

func TestClaimsThatDoNotFitAreRefused(t *testing.T) {
	f := &folders{root: t.TempDir(), node: "alice"}
	shared := claim("alice", corev1.ReadWriteMany)
	selecting := claim("alice", corev1.ReadWriteOnce)
	selecting.Spec.Selector = &metav1.LabelSelector{}
	for what, c := range map[string]*corev1.PersistentVolumeClaim{"shared": shared, "selecting": selecting} {
		if _, _, err := f.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-2", PVC: c}); err == nil {
			t.Errorf("%s: provisioned", what)
		}
	}
	if entries, _ := os.ReadDir(f.root); len(entries) != 0 {
		t.Errorf("refused, and made %v", entries)
	}
}

// The scheduler takes back its choice of a node that has no folders; one that cannot be read now is tried again.
func TestAClaimIsNotBoundToANodeWithoutFolders(t *testing.T) {
	alone := &folders{root: t.TempDir(), node: "alice"}
	server := &folders{root: t.TempDir(), node: "alice", other: func(_ context.Context, name string) (*corev1.Node, error) {
		return map[string]*corev1.Node{"kith-carol": {}}[name], map[string]error{"down": errors.New("no answer")}[name]
	}}
	for _, c := range []struct {
		at    *folders
		node  string
		state controller.ProvisioningState
	}{
		{alone, "kith-bob", controller.ProvisioningReschedule}, {server, "kith-carol", controller.ProvisioningReschedule},
		{server, "nobody", controller.ProvisioningReschedule}, {server, "down", controller.ProvisioningFinished},
	} {
		pv, state, err := c.at.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-1", PVC: claim(c.node, corev1.ReadWriteOnce)})
		if pv != nil || state != c.state || err == nil {
			t.Errorf("%s: %v, %s, %v", c.node, pv, state, err)
		}
	}
}

// TestVolumesOfANodeThatJoinedAreItsOwnFolders: the server notes them, the node makes and removes them, and what else there is of volumes is left.
func TestVolumesOfANodeThatJoinedAreItsOwnFolders(t *testing.T) {
	there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bob", Annotations: map[string]string{AnnotationRoot: t.TempDir()}}}
	nodes := map[string]*corev1.Node{"bob": there}
	server := &folders{root: t.TempDir(), node: "alice", other: func(_ context.Context, name string) (*corev1.Node, error) { return nodes[name], nil }}
	pv, _, err := server.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &storagev1.StorageClass{}, PVName: "pvc-1", PVC: claim("bob", corev1.ReadWriteOnce)})
	if err != nil {
		t.Fatal(err)
	}
	node := &folders{root: there.Annotations[AnnotationRoot], node: "bob"}
	path := filepath.Join(node.root, "pvc-1_shop_data")
	if pv.Spec.Local.Path != path || nodeOf(pv) != "bob" {
		t.Fatalf("%+v", pv.Spec)
	}
	if left, _ := os.ReadDir(server.root); len(left) > 0 {
		t.Errorf("the server made %v", left)
	}
	is := func(there bool, what string) {
		t.Helper()
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v", what, err)
		}
	}
	keep := func(v *corev1.PersistentVolume, gone bool) {
		t.Helper()
		if err := node.keep(v, gone); err != nil {
			t.Fatal(err)
		}
	}
	keep(pv, false)
	is(false, "somebody else's volume that looks like ours")
	pv.Annotations = map[string]string{provisionedBy: Provisioner}
	keep(pv, false)
	keep(pv, false)
	is(true, "noted")
	other := pv.DeepCopy()
	other.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"alice"}
	outside := pv.DeepCopy()
	outside.Spec.Local.Path = filepath.Join(node.root, "..", "pvc-1_shop_data")
	retained := pv.DeepCopy()
	retained.Spec.PersistentVolumeReclaimPolicy, retained.Status.Phase = corev1.PersistentVolumeReclaimRetain, corev1.VolumeReleased
	for _, v := range []*corev1.PersistentVolume{other, outside, retained} {
		keep(v, true)
		is(true, "another volume that went")
	}
	if err := server.Delete(t.Context(), pv); err == nil {
		t.Error("deleted while its node is away")
	}
	there.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := server.Delete(t.Context(), pv); err != nil {
		t.Error(err)
	}
	pv.Status.Phase = corev1.VolumeReleased
	keep(pv, false)
	is(false, "released")
	if delete(nodes, "bob"); server.Delete(t.Context(), pv) != nil {
		t.Error("a node that is gone keeps its volumes")
	}
}
