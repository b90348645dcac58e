package guests

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/test/hostingtest"
)

// provider is what hosts guests over an API server in memory.
type provider struct {
	*testing.T
	contracts   *grants.Contracts
	allocations *grants.Allocations
	client      client.Client
}

func newProvider(t *testing.T, objects ...client.Object) *provider {
	t.Helper()
	if !slices.ContainsFunc(objects, func(o client.Object) bool { _, is := o.(*corev1.Node); return is }) {
		objects = append(objects, laptop())
	}
	c := hostingtest.Client(t, objects...)
	return &provider{T: t, client: c, contracts: grants.NewContracts(c, ledgertest.Over(t, c), slog.New(slog.DiscardHandler)), allocations: grants.NewAllocations()}
}

// ensure makes the twin that there is of a namespace.
func (p *provider) ensure(contract *v1alpha1.Contract, consumer grants.Consumer, home string, _ v1alpha1.NamespaceMapping) (string, error) {
	name := home + "-" + consumer.Compact[:7]
	if err := p.client.Create(p.Context(), hostingtest.Twin(name, home, contract.Spec.ID, consumer.Compact)); err != nil {
		return "", err
	}
	return name, p.contracts.Load(p.Context())
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

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// bob is no real peer.
var bob = grants.Consumer{ID: "BOB", Compact: "bbbbbbbccccccc" + strings.Repeat("d", 42), Name: "bob"}
