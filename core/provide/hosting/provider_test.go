package hosting

import (
	"log/slog"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/tenants"
	"kith.dev/test/hostingtest"
)

// provider is the provider's side over an API server in memory.
type provider struct {
	*testing.T
	tenants     *tenants.Tenants
	contracts   *grants.Contracts
	allocations *grants.Allocations
	client      client.Client
}

func newProvider(t *testing.T, objects ...client.Object) *provider {
	t.Helper()
	c := hostingtest.Client(t, objects...)
	p := &provider{T: t, client: c, contracts: grants.NewContracts(c, ledgertest.Over(t, c), slog.New(slog.DiscardHandler)), allocations: grants.NewAllocations()}
	p.tenants = tenants.New(c, c, p.contracts, p.allocations, nil, slog.New(slog.DiscardHandler))
	return p
}

func (p *provider) ensure(contract *v1alpha1.Contract, consumer grants.Consumer, home string, mapping v1alpha1.NamespaceMapping) (string, error) {
	terms, err := p.contracts.TermsOf(p.Context(), contract.Spec.ID, consumer.ID)
	if err != nil {
		return "", err
	}
	return p.tenants.EnsureNamespace(p.Context(), terms, home, mapping, tenants.Origin{})
}

var contractWith = hostingtest.Contract

const bobsShop = hostingtest.BobsShop

func peerOf(name string, fill byte) (*v1alpha1.Peer, grants.Consumer) {
	peer := hostingtest.Peer(name, fill)
	consumer, err := grants.ConsumerOf(peer)
	if err != nil {
		panic(err)
	}
	return peer, consumer
}
