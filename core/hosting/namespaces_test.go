package hosting

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestATwinThatIsNotGoneYetIsNotSaidToBe(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	d := newDesk(t, peer, contract)
	if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	goOn, ended := make(chan struct{}), make(chan struct{})
	d.tenants.live = interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.NamespaceList); ok {
				cancel() // the caller's patience is over just now
				<-goOn
				defer close(ended)
			}
			return c.List(ctx, list, opts...)
		},
	})
	h := &Host{client: d.client, contracts: d.tenants.contracts, tenants: d.tenants, log: d.tenants.log}
	r := httptest.NewRequestWithContext(ctx, "DELETE", "/kith/v2/namespaces/shop?contract=contractb", nil)
	r.SetPathValue("home", "shop")
	w := httptest.NewRecorder()
	h.DeleteNamespace(w, r, bob.ID)
	if w.Code == 200 || !strings.Contains(w.Body.String(), "still being cleared away") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	close(goOn)
	<-ended
}
