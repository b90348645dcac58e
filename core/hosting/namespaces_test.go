package hosting

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestADeletionIsAnsweredAtOnce: the consumer gives up after 15 s, and guests may take 35 s to end.
func TestADeletionIsAnsweredAtOnce(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	d := newDesk(t, peer, contractWith("bob", "contractb"))
	if _, err := d.ensure(contractWith("bob", "contractb"), bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	// What holds a namespace back: a guest whose pod has not ended.
	var ns corev1.Namespace
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil {
		t.Fatal(err)
	}
	ns.Finalizers = []string{"test/held"} // what the API server holds back in spec.finalizers
	if err := d.client.Update(t.Context(), &ns); err != nil {
		t.Fatal(err)
	}
	h := d.tenants
	ask := func(home string) int {
		r := httptest.NewRequestWithContext(t.Context(), "DELETE", "/kith/v2/namespaces/"+home+"?contract=contractb", nil)
		r.SetPathValue("home", home)
		w := httptest.NewRecorder()
		h.DeleteNamespace(w, r, bob.ID)
		return w.Code
	}
	for range 2 { // asked again, it is the same
		if code := ask("shop"); code != http.StatusAccepted {
			t.Errorf("answered %d, want 202", code)
		}
	}
	if err := d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil || ns.DeletionTimestamp == nil {
		t.Errorf("the namespace is not being deleted: %v", err)
	}
	if !d.tenants.contracts.leaving(bobsShop) {
		t.Error("that it is leaving is not known")
	}
	if code := ask("market"); code != http.StatusOK {
		t.Errorf("of a namespace that has no twin: %d, want 200", code)
	}
}

// counted counts what is asked of the API server itself.
func counted(d *desk) (reads *atomic.Int32) {
	reads = new(atomic.Int32)
	live := interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			reads.Add(1)
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads.Add(1)
			return c.Get(ctx, key, o, opts...)
		},
	})
	d.tenants.live, d.tenants.contracts.live = live, live
	return reads
}

func TestUnknownContractIDsCostNoReads(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	d := newDesk(t, peer, other, contractWith("bob", "contractb"))
	reads := counted(d)
	h := &Host{client: d.client, contracts: d.tenants.contracts, tenants: d.tenants, log: d.tenants.log, usage: &usage{now: time.Now, known: map[string]reading{}}}
	if err := h.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	reads.Store(0)
	ask := func(id, consumer string) int {
		for method, serve := range map[string]func(http.ResponseWriter, *http.Request, string){"PUT": h.PutNamespace, "DELETE": h.DeleteNamespace, "GET": h.GetUsage, "HEAD": h.GetMachine} {
			r := httptest.NewRequestWithContext(t.Context(), method, "/kith/v1/x?form=stats/summary&contract="+id, nil)
			r.SetPathValue("home", "shop")
			w := httptest.NewRecorder()
			if serve(w, r, consumer); w.Code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", method, id, w.Code, w.Body)
			}
		}
		return int(reads.Load())
	}
	for i := range 50 {
		id := fmt.Sprintf("nothing%d", i)
		if n := ask(id, bob.ID) + ask(id, carol.ID) + ask(id, "a stranger") + ask("contractb", carol.ID); n > 0 {
			t.Fatalf("%d reads of the API server", n)
		}
	}
	// Signed a moment ago, and this view has not heard of it: that is looked for, by its consumer.
	if err := d.client.Create(t.Context(), contractWith("carol", "contractc")); err != nil {
		t.Fatal(err)
	}
	if n := ask("contractc", bob.ID); n > 0 {
		t.Errorf("%d reads for another's contract", n)
	}
	if found, err := h.termsOf(t.Context(), "contractc", carol.ID); err != nil || found.contract != "contractc" {
		t.Errorf("%+v, %v", found, err)
	}
}

// bob was forgotten, and another who calls himself bob accepted, before the contract with the first one was cleared away.
func TestAContractIsItsKeysNotItsNames(t *testing.T) {
	_, was := peerOf("bob", 1)
	now, bob := peerOf("bob", 2)
	ctr := contractWith("bob", "contractb")
	ctr.Spec.Document = fmt.Appendf(nil, `{"consumer":{"id":%q}}`, was.ID)
	d := newDesk(t, now, ctr)
	if _, err := d.ensure(ctr, bob, "shop", ""); err == nil {
		t.Error("the new bob has a namespace under the contract of the old one")
	}
	if _, ok := d.tenants.contracts.Admitted(bob.ID); ok {
		t.Error("the new bob is let in under the contract of the old one")
	}
	ctr.Spec.Document = fmt.Appendf(nil, `{"consumer":{"id":%q}}`, bob.ID)
	if d := newDesk(t, now, ctr); d.tenants.contracts.Load(t.Context()) != nil {
		t.Error("not loaded")
	} else if _, ok := d.tenants.contracts.Admitted(bob.ID); !ok {
		t.Error("the new bob is not let in under his own contract")
	}
}
