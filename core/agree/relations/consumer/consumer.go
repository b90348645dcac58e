package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// Fleet runs the virtual nodes: one for each contract under which this cluster consumes.
type Fleet interface {
	// Ensure has the node of the contract run; called again, it takes changed amounts and addresses over.
	Ensure(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error
	// SetPresence tells the node whether its peer is there and works.
	SetPresence(peer string, there presence.Presence)
	// SetTunnel tells the node why no packet passes between the pods here and there; empty when they do.
	SetTunnel(peer, why string)
	// Retire brings the pods home and takes the node away. A peer that does not answer is not waited for; left, which
	// may be nil, is closed when nothing of them is left there, or nobody answers any more.
	Retire(ctx context.Context, peer string, reachable bool, left <-chan struct{}) error
}

// Config is what a Consumer needs.
type Config struct {
	Client    *ledger.Ledger
	Fresh     client.Reader // the API server, before something is asked or signed
	Identity  *identity.Identity
	Name      string          // of this cluster
	Endpoints func() []string // of this cluster's peer API, told to those we ask
	Directory link.Directory
	Fleet     Fleet
	Mode      Mode // nil: always autonomous
	Announce  func(api.Event)
	Log       *slog.Logger
}

// Consumer keeps the direction in which this cluster consumes.
type Consumer struct {
	Config

	closing sync.Mutex // held while a request is ended

	mu      sync.Mutex
	waiting map[string]*waiter  // by Peer name
	asked   map[string]question // by Peer name: what was put to the peer last
	// renewals are by Peer name; one that is lost with this process begins anew, and the provider sees to it that no more come of it.
	renewals map[string]*renewal
	lowered  map[string]time.Time // by Peer name: before when it is not tried again to sign a lowering

	// Calls of the peer, but in tests.
	books         func(context.Context, *v1alpha1.Peer) ([]peering.ContractRef, error)               // booksOf
	signedOnce    func(context.Context, *v1alpha1.Peer, contract.Document) (contract.Signed, error)  // signedAs
	countersigned func(context.Context, *v1alpha1.Peer, *contract.Document) (contract.Signed, error) // signedBy, but in tests
}

// New makes a Consumer.
func New(cfg Config) *Consumer {
	r := &Consumer{Config: cfg, waiting: map[string]*waiter{}, asked: map[string]question{}, renewals: map[string]*renewal{}, lowered: map[string]time.Time{}}
	if r.Mode == nil {
		r.Mode = autonomous{}
	}
	r.countersigned, r.signedOnce, r.books = r.signedBy, r.signedAs, r.booksOf
	return r
}

// Forget drops what is known of a Peer that is gone.
func (r *Consumer) Forget(peer string) {
	r.stopWaiting(peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.renewals, peer)
	delete(r.lowered, peer)
}
