package consumer

import (
	"context"
	"log/slog"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/relations/link"
)

// Config is what a Consumer needs.
type Config struct {
	Client    client.Client
	Fresh     client.Reader // past the cache
	Identity  *identity.Identity
	Name      string          // of this cluster
	Endpoints func() []string // of this cluster's peer API, told to those we ask
	Directory link.Directory
	Fleet     Fleet
	Announce  func(api.Event)
	Log       *slog.Logger
}

// Consumer keeps the direction in which this cluster consumes.
type Consumer struct {
	client    client.Client
	fresh     client.Reader
	me        *identity.Identity
	name      string
	endpoints func() []string
	directory link.Directory
	fleet     Fleet
	announce  func(api.Event)
	log       *slog.Logger

	closing sync.Mutex // held while a request is ended

	mu      sync.Mutex
	waiting map[string]*waiter  // by Peer name
	asked   map[string]question // by Peer name: what was put to the peer last
	// renewals are by Peer name; one that is lost with this process begins anew, and the provider sees to it that no more come of it.
	renewals map[string]*renewal

	countersigned func(context.Context, *v1alpha1.Peer, *contract.Document) (contract.Signed, error) // signedBy, but in tests
}

// New makes a Consumer.
func New(cfg Config) *Consumer {
	r := &Consumer{
		client: cfg.Client, fresh: cfg.Fresh, me: cfg.Identity, name: cfg.Name, endpoints: cfg.Endpoints, directory: cfg.Directory,
		fleet: cfg.Fleet, announce: cfg.Announce, log: cfg.Log,
		waiting: map[string]*waiter{}, asked: map[string]question{}, renewals: map[string]*renewal{},
	}
	r.countersigned = r.signedBy
	return r
}

// Forget drops what is known of a Peer that is gone.
func (r *Consumer) Forget(peer string) {
	r.stopWaiting(peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.renewals, peer)
}
