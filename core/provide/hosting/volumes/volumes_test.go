package volumes

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/contract"
	"kith.dev/test/hostingtest"
)

// provider keeps volumes for bob, whose contract grants 10Gi, and for eve, over an API server in memory.
type provider struct {
	*testing.T
	*Claims
	mux  *http.ServeMux
	id   map[string]string // of consumers
	twin map[string]string // of their namespace shop
}

const uid = "2c7c6d51-9b1e-4d0a-8f0e-0d5d1f2e3a4b"

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{T: t, mux: http.NewServeMux(), id: map[string]string{}, twin: map[string]string{}}
	objects := []client.Object{&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "example.com/local", AllowVolumeExpansion: new(true),
		Parameters: map[string]string{"a": "b"},
	}}
	for i, name := range []string{"bob", "eve"} {
		peer := hostingtest.Peer(name, byte(i+1))
		consumer, err := grants.ConsumerOf(peer)
		if err != nil {
			t.Fatal(err)
		}
		p.id[name], p.twin[name] = consumer.ID, grants.TwinNames("shop", consumer)[0]
		ctr := hostingtest.Contract(name, name+"-1")
		ctr.Spec.Resources[corev1.ResourceStorage] = resource.MustParse("10Gi")
		twin := hostingtest.Twin(p.twin[name], "shop", ctr.Spec.ID, consumer.Compact)
		twin.UID = types.UID(name)
		objects = append(objects, peer, ctr, twin)
	}
	c := hostingtest.Client(t, objects...)
	log := slog.New(slog.DiscardHandler)
	contracts := grants.NewContracts(c, ledgertest.Over(t, c), log)
	if err := contracts.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Claims = New(c, c, contracts, grants.NewAllocations(), nil, log)
	for method, serve := range map[string]func(http.ResponseWriter, *http.Request, string){"PUT": p.PutClaim, "DELETE": p.DeleteClaim} {
		p.mux.HandleFunc(method+" "+remote.ClaimPath, func(w http.ResponseWriter, r *http.Request) { serve(w, r, r.Header.Get("By")) })
	}
	return p
}

// says asks as a consumer, and gives the answer's code and body.
func (p *provider) says(method, by, contract, claim, uid, storage string) (int, string) {
	p.Helper()
	path := fmt.Sprintf("/kith/v2/namespaces/shop/claims/%s?contract=%s", claim, contract)
	body := fmt.Sprintf(`{"uid":%q,"storage":%q,"accessModes":["ReadWriteOnce"]}`, uid, storage)
	if class, amount, of := strings.Cut(storage, "="); of { // of a storage class
		body = fmt.Sprintf(`{"uid":%q,"storage":%q,"accessModes":["ReadWriteOnce"],"class":%q}`, uid, amount, class)
	}
	if method == "DELETE" {
		path, body = path+"&uid="+uid, ""
	}
	r := httptest.NewRequestWithContext(p.Context(), method, path, strings.NewReader(body))
	r.Header.Set("By", p.id[by])
	w := httptest.NewRecorder()
	p.mux.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (p *provider) want(code int, word, method, by, contract, claim, uid, storage string) {
	p.Helper()
	if got, said := p.says(method, by, contract, claim, uid, storage); got != code || !strings.Contains(said, word) {
		p.Errorf("%s %s of %s under %s: %d %s, want %d %q", method, claim, by, contract, got, said, code, word)
	}
}

func (p *provider) claimOf(by, name string) *corev1.PersistentVolumeClaim {
	p.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: p.twin[by], Name: name}, &claim); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		p.Fatal(err)
	}
	return &claim
}

// bind does what the cluster does when a guest uses the claim.
func (p *provider) bind(by, name, volume string) {
	p.Helper()
	claim := p.claimOf(by, name)
	claim.Spec.VolumeName = volume
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, Capacity: claim.Spec.Resources.Requests,
		ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}}
	if err := errors.Join(p.client.Update(p.Context(), claim), p.client.Create(p.Context(), v)); err != nil {
		p.Fatal(err)
	}
	p.grown(by, name, v.Spec.Capacity.Storage().String())
	p.phase(volume, corev1.VolumeBound)
	p.look(volume)
}

// grown says of a claim that its volume is so large.
func (p *provider) grown(by, name, size string) {
	p.Helper()
	claim := p.claimOf(by, name)
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	if err := p.client.Status().Update(p.Context(), claim); err != nil {
		p.Fatal(err)
	}
}

func (p *provider) look(volume string) ctrl.Result {
	p.Helper()
	result, err := p.reconcile(p.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: volume}})
	if err != nil {
		p.Fatal(err)
	}
	return result
}

func (p *provider) volume(name string) *corev1.PersistentVolume {
	p.Helper()
	var v corev1.PersistentVolume
	if err := p.client.Get(p.Context(), client.ObjectKey{Name: name}, &v); err != nil {
		p.Fatal(err)
	}
	return &v
}

// gone has the claim deleted by somebody who says nothing of the data, as the end of a namespace does.
func (p *provider) gone(by, name, volume string) {
	p.Helper()
	if err := p.client.Delete(p.Context(), p.claimOf(by, name)); err != nil {
		p.Fatal(err)
	}
	p.phase(volume, corev1.VolumeReleased)
}

// phase is what Kubernetes says of a volume.
func (p *provider) phase(volume string, is corev1.PersistentVolumePhase) {
	p.Helper()
	v := p.volume(volume)
	v.Status.Phase = is
	if err := p.client.Status().Update(p.Context(), v); err != nil {
		p.Fatal(err)
	}
}

func TestAClaimIsMadeWithinTheContract(t *testing.T) {
	p := newProvider(t)
	for range 2 { // asked twice, it is one
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
	}
	claim := p.claimOf("bob", "data")
	if claim == nil || *claim.Spec.StorageClassName != v1alpha1.GuestStorageClass || claim.Labels[v1alpha1.LabelHomeClaim] != uid || claim.Spec.VolumeName != "" {
		t.Fatalf("%+v", claim)
	}
	var class storagev1.StorageClass
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.GuestStorageClass}, &class); err != nil ||
		class.Provisioner != "example.com/local" || class.Parameters["a"] != "b" || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("%+v, %v", class, err)
	}
	if used := p.allocations.Used("bob-1")[corev1.ResourceStorage]; used.String() != "6Gi" {
		t.Errorf("%s in use", used.String())
	}
	p.want(403, "6Gi of 10Gi is in use", "PUT", "bob", "bob-1", "more", "aa", "5Gi")
	p.want(200, "", "PUT", "bob", "bob-1", "more", "aa", "4Gi")
	p.want(400, "accessModes", "PUT", "bob", "bob-1", "x\",\"accessModes\":[]", "bb", "1Gi")
	p.want(503, "a former claim", "PUT", "bob", "bob-1", "data", "cc", "1Gi")
	p.want(403, "", "PUT", "bob", "eve-1", "data", "dd", "1Gi") // another's contract
	p.want(403, "", "DELETE", "eve", "bob-1", "data", uid, "")
	p.want(200, "", "DELETE", "eve", "eve-1", "data", uid, "") // under its own there is nothing of that name
	if p.claimOf("bob", "data") == nil {
		t.Error("another consumer deleted it")
	}
	p.want(200, "", "DELETE", "bob", "bob-1", "data", "ee", "") // of another UID there is none
	if p.claimOf("bob", "data") == nil {
		t.Error("a claim of another UID was deleted")
	}
}

// One whose volume is being made goes when that is there: else it would be nobody's.
func TestAClaimIsNotDeletedWhileItsVolumeIsMade(t *testing.T) {
	p := newProvider(t)
	p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
	claim := p.claimOf("bob", "data")
	since := func(made time.Time) {
		t.Helper()
		claim = p.claimOf("bob", "data")
		claim.CreationTimestamp = metav1.NewTime(made)
		claim.Annotations[annotationSelectedNode] = "here"
		if err := p.client.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	since(time.Now())
	p.want(503, "is being made", "DELETE", "bob", "bob-1", "data", uid, "")
	if p.claimOf("bob", "data") == nil {
		t.Fatal("it is deleted")
	}
	p.bind("bob", "data", "pv-1")
	p.want(200, "", "DELETE", "bob", "bob-1", "data", uid, "")
	if policy := p.volume("pv-1").Spec.PersistentVolumeReclaimPolicy; p.claimOf("bob", "data") != nil || policy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("its volume is not deleted: %s", policy)
	}
	// One that nobody makes a volume for does not stay for ever.
	p.want(200, "", "PUT", "bob", "bob-1", "data", "ab", "6Gi")
	since(time.Now().Add(-2 * madeWithin))
	p.want(200, "", "DELETE", "bob", "bob-1", "data", "ab", "")
	if p.claimOf("bob", "data") != nil {
		t.Error("it is not deleted")
	}
}

// However small they are: bob has five pods.
func TestClaimsAreCounted(t *testing.T) {
	p := newProvider(t)
	for i := range 15 {
		p.want(200, "", "PUT", "bob", "bob-1", fmt.Sprint("c", i), fmt.Sprintf("a%x", i), "1")
	}
	p.want(403, "15 claims and snapshots are kept under it", "PUT", "bob", "bob-1", "c15", "af0", "1")
	p.want(200, "", "DELETE", "bob", "bob-1", "c3", "a3", "")
	p.want(200, "", "PUT", "bob", "bob-1", "c15", "af0", "1")
}

func TestNothingIsLentThatTheContractDoesNotName(t *testing.T) {
	p := newProvider(t)
	terms := *p.contracts.Of("bob-1")
	terms.Limit = hostingtest.List("cpu", "1", "pods", "5")
	if err := p.fits(t.Context(), &terms, "", "claim", nil, resource.MustParse("1")); err == nil || !strings.Contains(err.Error(), "grants no storage") {
		t.Error(err)
	}
}

// The claim that its consumer deletes goes with its data; one that goes otherwise leaves it for a time, for that consumer alone.
func TestDataGoesWhenItsConsumerDeletesTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t)
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
		p.bind("bob", "data", "pv-1")
		if v := p.volume("pv-1"); v.Labels[v1alpha1.LabelHomeClaim] != uid || v.Annotations[v1alpha1.AnnotationHomeClaim] != "shop/data" {
			t.Fatalf("%+v", v.ObjectMeta)
		}
		p.gone("bob", "data", "pv-1")
		if again := p.look("pv-1").RequeueAfter; again <= contract.DefaultKeep-time.Minute || again > contract.DefaultKeep {
			t.Errorf("looked at again after %s", again)
		}
		if used := p.allocations.Used("bob-1")[corev1.ResourceStorage]; !used.IsZero() {
			t.Errorf("%s in use", used.String())
		}

		// Another asks for a claim of that name, or the same consumer for another.
		p.want(200, "", "PUT", "eve", "eve-1", "data", uid, "6Gi")
		p.want(200, "", "PUT", "bob", "bob-1", "data", "ab", "1Gi")
		for _, by := range []string{"eve", "bob"} {
			if claim := p.claimOf(by, "data"); claim.Spec.VolumeName != "" {
				t.Errorf("%s was given the volume %s", by, claim.Spec.VolumeName)
			}
		}
		p.want(200, "", "DELETE", "bob", "bob-1", "data", "ab", "")
		time.Sleep(contract.DefaultKeep - time.Hour)
		p.look("pv-1")
		if v := p.volume("pv-1"); v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			t.Error("it was deleted before its time")
		}

		// The same claim again: its data is there.
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
		v := p.volume("pv-1")
		if claim := p.claimOf("bob", "data"); claim.Spec.VolumeName != "pv-1" || v.Spec.ClaimRef.UID != "" || v.Annotations[v1alpha1.AnnotationKeptUntil] != "" {
			t.Fatalf("claim of %q, volume %+v", claim.Spec.VolumeName, v)
		}
		v.Spec.ClaimRef.UID = p.claimOf("bob", "data").UID
		if err := p.client.Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		p.phase("pv-1", corev1.VolumeBound)
		p.look("pv-1")

		p.want(200, "", "DELETE", "bob", "bob-1", "data", uid, "")
		if v := p.volume("pv-1"); p.claimOf("bob", "data") != nil || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			t.Errorf("the consumer deleted it, and the volume is %+v", v.Spec)
		}
	})
}

func TestDataIsKeptForItsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t)
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
		p.bind("bob", "data", "pv-1")
		p.gone("bob", "data", "pv-1")
		time.Sleep(p.look("pv-1").RequeueAfter)
		p.look("pv-1")
		if v := p.volume("pv-1"); v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			t.Errorf("still %s", v.Spec.PersistentVolumeReclaimPolicy)
		}
		p.want(200, "", "PUT", "bob", "bob-1", "data", uid, "6Gi")
		if claim := p.claimOf("bob", "data"); claim.Spec.VolumeName != "" {
			t.Error("a volume that is being deleted was given back")
		}
	})
}

// A volume of the guests' class that Kith did not have made is the owner's.
func TestOthersVolumesAreLeftAlone(t *testing.T) {
	p := newProvider(t)
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: v1alpha1.GuestStorageClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
	}}
	if err := p.client.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	p.phase("own", corev1.VolumeReleased)
	if again := p.look("own").RequeueAfter; again != 0 || p.volume("own").Annotations != nil {
		t.Errorf("looked at after %s: %+v", again, p.volume("own"))
	}
}
