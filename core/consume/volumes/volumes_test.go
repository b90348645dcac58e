package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/snapshotv1"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
)

// peers are asked, and answer as they are told to.
type peers struct {
	asked    []string
	state    remote.ClaimState
	claim    error
	unclaim  error
	reviewed []string
	snapshot remote.SnapshotState
	snapErr  error
	copies   func(ctx context.Context, peer string, end remote.CopyEnd) (io.ReadWriteCloser, error)
}

func (p *peers) Claim(_ context.Context, peer, namespace, name string, c *remote.Claim) (remote.ClaimState, error) {
	of := ""
	if c.Class != "" {
		of = " of " + c.Class
	}
	if c.Snapshot != "" {
		of += " from " + string(c.Snapshot)
	}
	p.asked = append(p.asked, fmt.Sprintf("claim %s %s/%s %s%s", peer, namespace, name, c.Storage, of))
	return p.state, p.claim
}

func (p *peers) Unclaim(_ context.Context, peer, namespace, name string, uid types.UID) error {
	p.asked = append(p.asked, fmt.Sprintf("unclaim %s %s/%s %s", peer, namespace, name, uid))
	return p.unclaim
}

func (p *peers) Snapshot(_ context.Context, peer, namespace, name string, s *remote.Snapshot) (remote.SnapshotState, error) {
	p.asked = append(p.asked, fmt.Sprintf("snapshot %s %s/%s %s of %s %s", peer, namespace, name, s.UID, s.Claim, s.ClaimUID))
	return p.snapshot, p.snapErr
}

func (p *peers) Unsnapshot(_ context.Context, peer, namespace, name string, uid types.UID) error {
	p.asked = append(p.asked, fmt.Sprintf("unsnapshot %s %s/%s %s", peer, namespace, name, uid))
	return p.snapErr
}

func (p *peers) Copy(ctx context.Context, peer, namespace, name string, _ types.UID, end remote.CopyEnd) (io.ReadWriteCloser, error) {
	if p.copies == nil {
		return nil, errors.New("nobody copies here")
	}
	return p.copies(ctx, peer, end)
}

func (p *peers) Review(namespace string) { p.reviewed = append(p.reviewed, namespace) }

// home is a cluster in memory with one node of its own, alice, and the nodes of bob and carol.
type home struct {
	*testing.T
	*Controller
	peers *peers
}

func newHome(t *testing.T, objects ...client.Object) *home {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	s.AddKnownTypeWithName(snapshotv1.GroupVersion.WithKind(snapshotv1.KindContent+"List"), &unstructured.UnstructuredList{}) // lists of metadata, too, are made of it
	node := func(name, peer string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelPeer: peer}}}
	}
	local := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{annotationDefault: "true"}}, Provisioner: "example.com/local"}
	objects = append(objects, node("alice", ""), node("kith-bob", "bob"), node("kith-carol", "carol"), local, Objects()[0])
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(unstructuredOf(snapshotv1.KindSnapshot, "", ""), unstructuredOf(snapshotv1.KindContent, "", "")).
		WithIndex(&corev1.Event{}, eventOf, func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).Build()
	h := &home{T: t, peers: &peers{}}
	h.Controller = New(c, c, h.peers, "alice", slog.New(slog.DiscardHandler))
	h.events = &events.FakeRecorder{Events: make(chan string, 100)}
	return h
}

// claimAt is one that waits for a volume at the node that the scheduler chose.
func claimAt(node string) *corev1.PersistentVolumeClaim {
	class := v1alpha1.StorageClassName
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "2c7c6d51", Annotations: map[string]string{
			annotationProvisioner: v1alpha1.StorageProvisioner, annotationSelectedNode: node,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		},
	}
}

func (h *home) make() (ctrl.Result, error) {
	h.Helper()
	return h.claim(h.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "data"}})
}

func (h *home) made() *corev1.PersistentVolume {
	h.Helper()
	var v corev1.PersistentVolume
	if err := h.client.Get(h.Context(), client.ObjectKey{Name: "pvc-2c7c6d51"}, &v); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		h.Fatal(err)
	}
	return &v
}

func TestAVolumeIsWhereThePodGoes(t *testing.T) {
	h := newHome(t, claimAt("kith-bob"))
	for range 2 { // a restart in between asks again
		if _, err := h.make(); err != nil {
			t.Fatal(err)
		}
	}
	v := h.made()
	if v == nil || AtPeer(v) != "bob" || v.Spec.ClaimRef.UID != "2c7c6d51" || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		v.Annotations[annotationProvisionedBy] != v1alpha1.StorageProvisioner || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "bob" {
		t.Fatalf("%+v", v)
	}
	if want := []string{"claim bob shop/data 2Gi"}; !slices.Equal(h.peers.asked, want) {
		t.Errorf("asked %q, want %q", h.peers.asked, want)
	}
	if words := Words(Held([]corev1.PersistentVolume{*v}, "bob", "shop")); words != "shop/data (2Gi at bob)" {
		t.Error(words)
	}
	for _, other := range [][2]string{{"carol", ""}, {"", "other"}} {
		if held := Held([]corev1.PersistentVolume{*v}, other[0], other[1]); len(held) != 0 {
			t.Errorf("%q: %v", other, held)
		}
	}
}

// What asking again changes is asked again; what a peer refuses for good is somewhere else.
func TestAPeerThatGivesNoVolume(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		elsewhere bool
	}{
		"refused":     {peering.Refuse(peering.CodeForbidden, "the contract would be exceeded", ""), true},
		"not ready":   {peering.Refuse(peering.CodeUnavailable, "a former claim is there", ""), false},
		"unreachable": {errors.New("no answer"), false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, claimAt("kith-bob"))
			h.peers.claim = c.err
			if _, err := h.make(); (err == nil) != c.elsewhere {
				t.Errorf("%v", err)
			}
			var claim corev1.PersistentVolumeClaim
			if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &claim); err != nil {
				t.Fatal(err)
			}
			if _, chosen := claim.Annotations[annotationSelectedNode]; chosen == c.elsewhere || h.made() != nil {
				t.Errorf("%v, %v", claim.Annotations, h.made())
			}
			said := <-h.events.(*events.FakeRecorder).Events
			if !strings.Contains(said, "ProvisioningFailed") || !strings.Contains(said, "kith-bob") {
				t.Error(said)
			}
		})
	}
}

// What no volume of the class can be is said of the claim itself, and the scheduler is not sent round in circles.
func TestWhatNoVolumeCanBeIsRefused(t *testing.T) {
	block, other := corev1.PersistentVolumeBlock, "example.com"
	for name, c := range map[string]struct {
		ask   func(*corev1.PersistentVolumeClaimSpec)
		nodes []string
		word  string
	}{
		"something of another kind": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &other, Kind: "Book", Name: "a"}
		}, []string{"alice", "kith-bob"}, "dataSource: volumes of class kith begin empty, with a VolumeSnapshot or"},
		"something of another namespace": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSourceRef = &corev1.TypedObjectReference{Kind: kindClaim, Name: "a", Namespace: &other}
		}, []string{"alice"}, "dataSourceRef: volumes begin with what is in their own namespace"},
		"many nodes": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, []string{"alice"}, "accessModes: ReadWriteMany is not to be had"},
		"many that read": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, []string{"alice"}, "accessModes: ReadOnlyMany is not to be had"},
		"a device": {func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeMode = &block }, []string{"alice"}, "volumeMode: Block is not to be had"},
	} {
		for _, node := range c.nodes {
			asks := claimAt(node)
			c.ask(&asks.Spec)
			h := newHome(t, asks)
			var class storagev1.StorageClass
			if err := h.client.Get(t.Context(), client.ObjectKey{Name: "local-path"}, &class); err != nil {
				t.Fatal(err)
			}
			class.Provisioner = "kith.dev/local"
			if err := errors.Join(h.client.Delete(t.Context(), &class), h.client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class.Name, Annotations: class.Annotations}, Provisioner: class.Provisioner})); err != nil {
				t.Fatal(err)
			}
			if result, err := h.make(); err != nil || result.RequeueAfter != unfitPause || h.made() != nil || len(h.peers.asked) > 0 {
				t.Errorf("%s at %s: %v, %v, asked %q", name, node, result, err, h.peers.asked)
			}
			var claim corev1.PersistentVolumeClaim
			if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &claim); err != nil || claim.Annotations[annotationSelectedNode] != node {
				t.Errorf("%s at %s: %v, %v", name, node, claim.Annotations, err)
			}
			if said := <-h.events.(*events.FakeRecorder).Events; !strings.Contains(said, "ProvisioningFailed") || !strings.Contains(said, c.word) {
				t.Errorf("%s at %s: %s", name, node, said)
			}
		}
	}
}

func TestAVolumeAtHomeStandsForOneOfTheDefaultClass(t *testing.T) {
	h := newHome(t, claimAt("alice"))
	if result, err := h.make(); err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	var back corev1.PersistentVolumeClaim
	key := client.ObjectKey{Namespace: Namespace, Name: "pvc-2c7c6d51"}
	if err := h.client.Get(t.Context(), key, &back); err != nil || *back.Spec.StorageClassName != "local-path" || back.Annotations[annotationSelectedNode] != "alice" {
		t.Fatalf("%+v, %v", back, err)
	}
	if result, err := h.make(); err != nil || result.RequeueAfter == 0 || h.made() != nil {
		t.Fatal("it is there before the volume that it stands for", result, err)
	}
	real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/folder"}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}},
	}}
	back.Spec.VolumeName = "real"
	err := errors.Join(h.client.Create(t.Context(), real), h.client.Update(t.Context(), &back))
	back.Status.Phase = corev1.ClaimBound
	if err = errors.Join(err, h.client.Status().Update(t.Context(), &back)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	v := h.made()
	if v == nil || v.Spec.Local.Path != "/folder" || v.Spec.NodeAffinity == nil || AtPeer(v) != "" || len(h.peers.asked) > 0 {
		t.Fatalf("%+v, asked %q", v, h.peers.asked)
	}
	if err := h.leave(v); err != nil {
		t.Error(err)
	}
	if h.made() != nil {
		t.Error("the volume is still there")
	}
	if err := h.client.Get(t.Context(), key, &back); !apierrors.IsNotFound(err) {
		t.Errorf("the claim behind it: %v", err)
	}
}

// leave has the claim deleted, and the volume looked at.
func (h *home) leave(v *corev1.PersistentVolume) error {
	h.Helper()
	if err := client.IgnoreNotFound(h.client.Delete(h.Context(), claimAt(""))); err != nil {
		h.Fatal(err)
	}
	return h.released(v)
}

// released has Kubernetes say that the claim is gone.
func (h *home) released(v *corev1.PersistentVolume) error {
	h.Helper()
	if err := h.client.Update(h.Context(), v); err != nil {
		h.Fatal(err)
	}
	v.Status.Phase = corev1.VolumeReleased
	if err := h.client.Status().Update(h.Context(), v); err != nil {
		h.Fatal(err)
	}
	_, err := h.volume(h.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: v.Name}})
	return err
}

func TestAVolumeGoesWithItsClaim(t *testing.T) {
	for name, c := range map[string]struct {
		policy  corev1.PersistentVolumeReclaimPolicy
		claimed bool // the claim is there
		unclaim error
		gone    bool
		asked   int
	}{
		"deleted":                   {policy: corev1.PersistentVolumeReclaimDelete, gone: true, asked: 1},
		"the peer does not answer":  {policy: corev1.PersistentVolumeReclaimDelete, unclaim: errors.New("no answer"), asked: 1},
		"there is no contract":      {policy: corev1.PersistentVolumeReclaimDelete, unclaim: ErrNoContract, gone: true, asked: 1},
		"it is to be retained":      {policy: corev1.PersistentVolumeReclaimRetain},
		"its claim is there, still": {policy: corev1.PersistentVolumeReclaimDelete, claimed: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, claimAt("kith-bob"))
			if _, err := h.make(); err != nil {
				t.Fatal(err)
			}
			h.peers.asked, h.peers.unclaim = nil, c.unclaim
			v := h.made()
			v.Spec.PersistentVolumeReclaimPolicy = c.policy
			var err error
			if c.claimed { // Kubernetes says otherwise, and is wrong
				err = h.released(v)
			} else {
				err = h.leave(v)
			}
			if failed := c.unclaim != nil && !c.gone; (err != nil) != failed || (h.made() == nil) != c.gone || len(h.peers.asked) != c.asked {
				t.Errorf("%v, volume %v, asked %q", err, h.made(), h.peers.asked)
			}
			if c.gone && !slices.Equal(h.peers.reviewed, []string{"shop"}) {
				t.Errorf("reviewed %q", h.peers.reviewed)
			}
		})
	}
}

func TestTheSchedulerKnowsWhatIsLeft(t *testing.T) {
	contract := func(peer, storage string, role v1alpha1.Role) *v1alpha1.Contract {
		return &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: peer + string(role)}, Spec: v1alpha1.ContractSpec{
			Peer: peer, Role: role, Resources: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(storage)},
		}}
	}
	h := newHome(t, claimAt("kith-bob"), contract("bob", "5Gi", v1alpha1.RoleConsumer), contract("carol", "1Gi", v1alpha1.RoleConsumer), contract("bob", "7Gi", v1alpha1.RoleProvider))
	left := func() string {
		t.Helper()
		if _, err := h.capacities(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		var all storagev1.CSIStorageCapacityList
		if err := h.client.List(t.Context(), &all, client.InNamespace(Namespace)); err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, c := range all.Items {
			words = append(words, c.Name+" "+c.Capacity.String())
		}
		slices.Sort(words)
		return strings.Join(words, ", ")
	}
	if got := left(); got != "at.bob 5Gi, at.carol 1Gi, home 1Ei" {
		t.Error(got)
	}
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Delete(t.Context(), contract("carol", "1Gi", v1alpha1.RoleConsumer)); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != "at.bob 3Gi, home 1Ei" {
		t.Error(got)
	}
}

func TestAPodGoesToNoPeerWithoutItsVolumes(t *testing.T) {
	h := newHome(t, claimAt("kith-bob"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}}}
	if _, err := Of(t.Context(), h.client, pod, "bob"); err == nil {
		t.Error("a claim without a volume is fine")
	}
	if _, err := h.make(); err != nil {
		t.Fatal(err)
	}
	var claim corev1.PersistentVolumeClaim
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data"}, &claim); err != nil {
		t.Fatal(err)
	}
	claim.Spec.VolumeName = "pvc-2c7c6d51"
	if err := h.client.Update(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	needed, err := Of(t.Context(), h.client, pod, "bob")
	if err != nil || len(needed) != 1 || needed[0].Name != "data" || needed[0].Claim.UID != "2c7c6d51" || needed[0].Claim.Validate() != nil {
		t.Errorf("%+v, %v", needed, err)
	}
	if _, err := Of(t.Context(), h.client, pod, "carol"); !errors.As(err, new(*Elsewhere)) {
		t.Error(err)
	}
	ephemeral := pod.DeepCopy()
	ephemeral.Name, ephemeral.Spec.Volumes[1] = "d", corev1.Volume{Name: "ata", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	if _, err := Of(t.Context(), h.client, ephemeral, "bob"); err == nil || !strings.Contains(err.Error(), "d-ata") {
		t.Error(err)
	}
}

func TestTheDefaultClassIsNoneOfKith(t *testing.T) {
	class := func(name, provisioner, is string, hour int) storagev1.StorageClass {
		return storagev1.StorageClass{Provisioner: provisioner, ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{annotationDefault: is}, CreationTimestamp: metav1.Date(2026, 11, 29, hour, 0, 0, 0, metav1.Now().Location()),
		}}
	}
	all := []storagev1.StorageClass{class("old", "x", "true", 1), class("new", "x", "true", 2), class("not", "x", "false", 3), class("kith", v1alpha1.StorageProvisioner, "true", 4)}
	if got := DefaultClass(all); got == nil || got.Name != "new" {
		t.Errorf("%+v", got)
	}
	if got := DefaultClass(all[2:]); got != nil {
		t.Errorf("%+v", got)
	}
}
