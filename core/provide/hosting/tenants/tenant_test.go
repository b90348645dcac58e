package tenants

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

func TestEachConsumersTwinsHaveItsID(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	owners := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine-" + bob.Compact[:7], Labels: map[string]string{"team": "red"}}}
	cb, cc := contractWith("bob", "contractb"), contractWith("carol", "contractc")
	d := newProvider(t, peer, other, owners, cb, cc)
	for range 2 { // the second time nothing changes
		for _, c := range []struct {
			contract *v1alpha1.Contract
			who      grants.Consumer
			home     string
			want     string
		}{
			{cb, bob, "shop", "shop-" + bob.Compact[:7]},
			{cc, carol, "shop", "shop-" + carol.Compact[:7]},
			{cb, bob, "mine", "mine-" + bob.Compact[:14]},
			{cb, bob, "kube-system", "kube-system-" + bob.Compact[:7]},
		} {
			if got, err := d.ensure(c.contract, c.who, c.home, ""); err != nil || got != c.want {
				t.Errorf("%s's %s: %q, %v", c.who.Name, c.home, got, err)
			}
		}
	}
	var ns corev1.Namespace
	if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(owners), &ns); err != nil || len(ns.Labels) != 1 {
		t.Errorf("the owner's namespace now has labels %v, %v", ns.Labels, err)
	}
	var binding rbacv1.RoleBinding
	if err := d.client.Get(t.Context(), client.ObjectKey{Namespace: "shop-" + bob.Compact[:7], Name: tenantRole}, &binding); err != nil ||
		len(binding.Subjects) != 1 || binding.Subjects[0].Name != "kith:peer:"+bob.ID || binding.RoleRef.Name != tenantRole {
		t.Errorf("binding %+v, %v", binding, err)
	}
	if !d.contracts.Admitted(bob.ID) {
		t.Error("bob is not admitted")
	}
}

func TestTwinsAreForTheContractsOwnConsumer(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	over := contractWith("carol", "contractc")
	over.Spec.NotAfter = &metav1.Time{Time: time.Now().Add(-time.Minute)}
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, other, cb, over)
	forbidden := &api.Error{Code: api.CodeForbidden}
	if _, err := d.ensure(cb, carol, "shop", ""); !errors.Is(err, forbidden) {
		t.Error("somebody else's contract:", err)
	}
	if _, err := d.ensure(over, carol, "shop", ""); !errors.Is(err, forbidden) {
		t.Error("a contract that ran out:", err)
	}
	if _, err := d.ensure(contractWith("bob", "invented1"), bob, "shop", ""); !errors.Is(err, forbidden) {
		t.Error("a contract nobody has:", err)
	}
	var all corev1.NamespaceList
	if err := d.client.List(t.Context(), &all); err != nil || len(all.Items) != 0 {
		t.Errorf("namespaces: %v, %v", all.Items, err)
	}
}

func TestOneHomeHasOneTwinHoweverManyAsk(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	cb := contractWith("bob", "contractb")
	d := newProvider(t, peer, cb)
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			if got, err := d.ensure(cb, bob, "shop", ""); err != nil || got != "shop-"+bob.Compact[:7] {
				t.Error(got, err)
			}
		})
	}
	asking.Wait()
}

func TestTheNextContractTakesTheTwinOver(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	first, second := contractWith("bob", "contract1"), contractWith("bob", "contract2")
	d := newProvider(t, peer, first)
	if _, err := d.ensure(first, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	if err := d.client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	got, err := d.ensure(second, bob, "shop", "")
	if err != nil || got != "shop-"+bob.Compact[:7] {
		t.Fatal(got, err)
	}
	if left := d.contracts.TwinsOf("contract1"); len(left) != 0 {
		t.Errorf("under the first contract are still %v", left)
	}
	var ns corev1.Namespace
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: got}, &ns); err != nil || ns.Labels[v1alpha1.LabelContract] != "contract2" {
		t.Errorf("labels %v, %v", ns.Labels, err)
	}
}

func TestLastContractGoneShutsTheDoor(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	first, second := contractWith("bob", "contract1"), contractWith("bob", "contract2")
	d := newProvider(t, peer, first, second)
	view := d.contracts
	admitted := func(want bool) {
		t.Helper()
		if view.Admitted(bob.ID) != want {
			t.Errorf("admitted: %v, want %v", !want, want)
		}
	}
	refresh := func() {
		t.Helper()
		if _, err := view.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	admitted(true)
	changed := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer changed.ShutDown()
	if err := view.Changed.Start(t.Context(), changed); err != nil || changed.Len() != 2 {
		t.Errorf("%d contracts changed, want 2 (%v)", changed.Len(), err)
	}
	view.End("contract1")
	admitted(true)
	if len(d.shut) != 0 {
		t.Error("shut out with a contract in force")
	}
	second.Status.State = v1alpha1.StateEnding
	if err := d.client.Status().Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	refresh()
	admitted(false)
	if !slices.Equal(d.shut, []string{bob.ID}) {
		t.Errorf("shut out: %v", d.shut)
	}
	refresh() // what was ended stays so, though its object says otherwise
	admitted(false)
	if len(d.shut) != 1 {
		t.Errorf("shut out again: %v", d.shut)
	}
}

func TestContractsRunOutByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, bob := peerOf("bob", 1)
		contract := contractWith("bob", "contract1")
		end := time.Now().Add(time.Hour)
		contract.Spec.NotAfter = &metav1.Time{Time: end}
		d := newProvider(t, peer, contract)
		view := d.contracts
		next, err := view.Refresh(t.Context())
		if err != nil || !next.Equal(end) || !view.Admitted(bob.ID) {
			t.Fatalf("next %s, %v", next, err)
		}
		time.Sleep(time.Until(end))
		if view.Admitted(bob.ID) {
			t.Error("admitted after the end")
		}
		if _, err := view.Refresh(t.Context()); err != nil || len(d.shut) != 1 {
			t.Errorf("shut out: %v, %v", d.shut, err)
		}
	})
}

func TestQuotaBoundsWhatConsumersWrite(t *testing.T) {
	got := quotaFor(list("cpu", "2", "pods", "7", "storage", "5Gi"))
	for name, want := range list("requests.storage", "5Gi", "services.nodeports", "0", "services.loadbalancers", "0") {
		if q, ok := got[name]; !ok || q.Cmp(want) != 0 {
			t.Errorf("%s: %s", name, q.String())
		}
	}
	devices := quotaFor(list("cpu", "2", "pods", "7", "nvidia.com/gpu", "2", "kubernetes.io/odd", "1", "odd", "1"))
	if q := devices["requests.nvidia.com/gpu"]; q.Value() != 2 || len(devices) != len(got)+1 {
		t.Errorf("of devices: %v", devices)
	}
	const of = ".storageclass.storage.k8s.io/requests.storage"
	classes := quotaFor(list("pods", "7", "storage", "5Gi", "fast"+of, "2Gi"))
	for name, want := range list("requests.storage", "7Gi", "guests.kith.dev"+of, "5Gi", "fast.guests.kith.dev"+of, "2Gi") {
		if q, ok := classes[name]; !ok || q.Cmp(want) != 0 || len(classes) != len(got)+2 {
			t.Errorf("%s: %s of %v", name, q.String(), classes)
		}
	}
	if q, ok := quotaFor(nil)[corev1.ResourceRequestsStorage]; !ok || !q.IsZero() {
		t.Error("a contract that names no storage allows some")
	}
	// Counted by the API server they would halve the rate; the allocations counts them.
	for name := range list("pods", "1", "requests.cpu", "1", "requests.memory", "1") {
		if _, ok := got[name]; ok {
			t.Errorf("%s is counted by the API server", name)
		}
	}
}
