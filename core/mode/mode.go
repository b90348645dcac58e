package mode

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/frontdoor"
	"kith.dev/core/relations/link"
)

// Engine is the local cluster, of which a switch needs little.
type Engine interface {
	Decide(ctx context.Context, on bool) error
	Decides() bool
}

// Cluster is what there is while the local API server answers.
type Cluster struct {
	Client     client.Client
	Fresh      client.Reader // past the cache
	SetBinding func(bool)    // of hosting: whether guests are bound here
}

// Door is the front door.
type Door interface{ Lead(frontdoor.Destination) }

// Config is what a Machine needs.
type Config struct {
	Path      string // of the journal
	Engine    Engine
	Ours      bool                                                // the cluster is one that Kith runs: others cannot be told what to decide
	Home      func() (frontdoor.Destination, error)               // the local API server, once it is ready
	Company   func(*v1alpha1.Peer) (frontdoor.Destination, error) // the API server of a company, through its peer API
	Door      Door                                                // nil: there is none, and the laptop cannot be tethered
	Cluster   func() *Cluster                                     // nil while the API server does not answer
	Directory link.Directory
	Changed   <-chan struct{} // TODO(mode): how the machine hears of contacts and objects
	Patience  time.Duration   // autoUntetherAfter: how long the company may not answer before this laptop decides again; 0: for ever
	Announce  func(api.Event)
	Log       *slog.Logger
}

// Machine is the mode and its switch.
type Machine struct{ cfg Config }

// New reads the journal. A damaged one is an error that says what to do.
func New(cfg Config) (*Machine, error) { return &Machine{cfg}, nil }

// Run finishes what was begun, and keeps the mode until ctx ends.
func (m *Machine) Run(ctx context.Context) error { return errors.ErrUnsupported }

// Company is the cluster ID of the company that has, or is about to have, all of this laptop; "" while it is autonomous. joins reports
// whether a contract may be signed with it now: the switch is as far as that.
func (m *Machine) Company() (id string, joins bool) { return "", false }

// Status is the mode for people.
func (m *Machine) Status() (api.Mode, *api.Tether) { return api.Autonomous, nil }

// Check says what a tether to the peer would mean, and what is in the way.
func (m *Machine) Check(ctx context.Context, peer *v1alpha1.Peer) (api.TetherCheck, error) {
	return api.TetherCheck{}, errors.ErrUnsupported
}

// Tether switches to Tethered; it returns when that is done or was taken back. When ctx ends the switch goes on.
func (m *Machine) Tether(ctx context.Context, peer *v1alpha1.Peer, options api.TetherOptions, report func(api.Progress)) error {
	return errors.ErrUnsupported
}

// Untether switches back; it returns when that is done. When ctx ends the switch goes on.
func (m *Machine) Untether(ctx context.Context, options api.UntetherOptions, report func(api.Progress)) error {
	return errors.ErrUnsupported
}
