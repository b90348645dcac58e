package tenants

import (
	"log/slog"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/test/hostingtest"
)

// provider is tenants over an API server in memory.
type provider struct {
	*testing.T
	tenants     *Tenants
	contracts   *grants.Contracts
	allocations *grants.Allocations
	client      client.Client
	shut        []string
}

func newProvider(t *testing.T, objects ...client.Object) *provider {
	t.Helper()
	log, c := slog.New(slog.DiscardHandler), hostingtest.Client(t, objects...)
	p := &provider{T: t, client: c, contracts: grants.NewContracts(c, ledgertest.Over(t, c), log), allocations: grants.NewAllocations()}
	p.contracts.OnShut(func(id string) { p.shut = append(p.shut, id) })
	p.tenants = New(c, c, p.contracts, p.allocations, nil, log)
	return p
}

func (p *provider) ensure(contract *v1alpha1.Contract, consumer grants.Consumer, home string, mapping v1alpha1.NamespaceMapping) (string, error) {
	terms, err := p.contracts.TermsOf(p.Context(), contract.Spec.ID, consumer.ID)
	if err != nil {
		return "", err
	}
	return p.tenants.EnsureNamespace(p.Context(), terms, home, mapping, Origin{})
}

var list, contractWith = hostingtest.List, hostingtest.Contract

const bobsShop = hostingtest.BobsShop

func peerOf(name string, fill byte) (*v1alpha1.Peer, grants.Consumer) {
	peer := hostingtest.Peer(name, fill)
	consumer, err := grants.ConsumerOf(peer)
	if err != nil {
		panic(err)
	}
	return peer, consumer
}
