package grants

import (
	"log/slog"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/hostingtest"
)

// provider is what is granted over an API server in memory.
type provider struct {
	*testing.T
	contracts   *Contracts
	allocations *Allocations
	client      client.Client
}

func newProvider(t *testing.T, objects ...client.Object) *provider {
	t.Helper()
	c := hostingtest.Client(t, objects...)
	return &provider{T: t, client: c, contracts: NewContracts(c, ledgertest.Over(t, c), slog.New(slog.DiscardHandler)), allocations: NewAllocations()}
}

var list, contractWith = hostingtest.List, hostingtest.Contract

const bobsShop = hostingtest.BobsShop

func peerOf(name string, fill byte) (*v1alpha1.Peer, Consumer) {
	peer := hostingtest.Peer(name, fill)
	consumer, err := ConsumerOf(peer)
	if err != nil {
		panic(err)
	}
	return peer, consumer
}
