package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestADeletionIsAnsweredAtOnce: the consumer gives up after 15 s, and guests may take 35 s to end.
func TestADeletionIsAnsweredAtOnce(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	d := newProvider(t, peer, contractWith("bob", "contractb"))
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
	if !d.contracts.Twin(bobsShop).Leaving {
		t.Error("that it is leaving is not known")
	}
	if code := ask("market"); code != http.StatusOK {
		t.Errorf("of a namespace that has no twin: %d, want 200", code)
	}
}

// bob was forgotten, and another who calls himself bob accepted, before the contract with the first one was cleared away.
func TestAContractIsItsKeysNotItsNames(t *testing.T) {
	_, was := peerOf("bob", 1)
	now, bob := peerOf("bob", 2)
	ctr := contractWith("bob", "contractb")
	ctr.Spec.Document = fmt.Appendf(nil, `{"consumer":{"id":%q}}`, was.ID)
	d := newProvider(t, now, ctr)
	if _, err := d.ensure(ctr, bob, "shop", ""); err == nil {
		t.Error("the new bob has a namespace under the contract of the old one")
	}
	if d.contracts.Admitted(bob.ID) {
		t.Error("the new bob is let in under the contract of the old one")
	}
	ctr.Spec.Document = fmt.Appendf(nil, `{"consumer":{"id":%q}}`, bob.ID)
	if d := newProvider(t, now, ctr); d.contracts.Load(t.Context()) != nil {
		t.Error("not loaded")
	} else if !d.contracts.Admitted(bob.ID) {
		t.Error("the new bob is not let in under his own contract")
	}
}

// The cluster's namespace controller looks again after half of the longest grace period it saw, however soon the guests ended.
func TestANamespaceThatIsEmptySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, bob := peerOf("bob", 1)
		d := newProvider(t, peer, contractWith("bob", "contractb"))
		if _, err := d.ensure(contractWith("bob", "contractb"), bob, "shop", ""); err != nil {
			t.Fatal(err)
		}
		var ns corev1.Namespace
		look := func() {
			t.Helper()
			if err := d.client.Get(t.Context(), client.ObjectKey{Name: bobsShop}, &ns); err != nil {
				t.Fatal(err)
			}
		}
		look()
		ns.Finalizers = []string{"test/held"}
		if err := errors.Join(d.client.Update(t.Context(), &ns), d.client.Delete(t.Context(), &ns)); err != nil {
			t.Fatal(err)
		}
		clear := func() time.Duration {
			t.Helper()
			result, err := d.tenants.clearing(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: bobsShop}})
			if err != nil {
				t.Fatal(err)
			}
			look()
			return result.RequeueAfter
		}
		if again := clear(); again <= 0 || again > wakeAfter || ns.Annotations[annotationCleared] != "" {
			t.Errorf("just deleted: %s, %v", again, ns.Annotations)
		}
		time.Sleep(wakeAfter)
		if again := clear(); again != 0 || ns.Annotations[annotationCleared] == "" {
			t.Errorf("empty for long: %s, %v", again, ns.Annotations)
		}
		version := ns.ResourceVersion
		if again := clear(); again != 0 || ns.ResourceVersion != version {
			t.Errorf("said twice: %s", again)
		}
	})
}
