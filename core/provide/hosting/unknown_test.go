package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/tenants"
)

// counted has what is asked of the API server itself counted.
func counted(d *provider) (reads *atomic.Int32) {
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
	log := slog.New(slog.DiscardHandler)
	d.contracts = grants.NewContracts(live, ledgertest.Over(d, d.client), log)
	d.tenants = tenants.New(d.client, live, d.contracts, d.allocations, nil, log)
	return reads
}

func TestUnknownContractIDsCostNoReads(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	other, carol := peerOf("carol", 2)
	d := newProvider(t, peer, other, contractWith("bob", "contractb"))
	reads := counted(d)
	h := &Host{client: d.client, Contracts: d.contracts, Tenants: d.tenants, log: slog.New(slog.DiscardHandler), usage: &usage{answers: cache.NewExpiring()}}
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
	if found, err := h.TermsOf(t.Context(), "contractc", carol.ID); err != nil || found.Contract != "contractc" {
		t.Errorf("%+v, %v", found, err)
	}
}
