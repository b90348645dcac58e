// Package company is the side of a tether that runs other people's laptops: which laptops may be run (TetherPolicy), what their users get
// in this cluster, and the door by which these ask its API server. Any kithd can be one; the objects are the memory: Peer.spec.tethered
// says that the laptop is run, and who removes it gives the laptop back.
//
// The daemon makes one for the cluster and passes on what laptops ask of the peer API; relations asks it what becomes of a laptop's wish.
//
// It must never grant more than a TetherPolicy says, nor touch an object that it did not make. What a user of a laptop may do is for
// RBAC to decide: it says who asks, and no more.
package company

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
	"kith.dev/core/peering"
)

// Config is what a Company needs.
type Config struct {
	Client   client.Client
	Fresh    client.Reader // past the cache
	REST     *rest.Config  // to the API server, with every right there
	Audit    *audit.Log    // of refusals
	Announce func(api.Event)
	Log      *slog.Logger
}

// Company runs laptops.
type Company struct{ cfg Config }

// New makes a Company.
func New(cfg Config) (*Company, error) { return &Company{cfg}, nil }

// SetupWithManager registers what reacts to Peers and TetherPolicies.
func (c *Company) SetupWithManager(mgr ctrl.Manager) error { return nil }

// Weigh says how the wish of a laptop to be run would be taken, and by which TetherPolicy; why is for a no. Strangers' Peers are what
// they would become.
func (c *Company) Weigh(ctx context.Context, peer *v1alpha1.Peer) (answer peering.TetherAnswer, policy, why string, err error) {
	return peering.TetherNo, "", "", errors.ErrUnsupported
}

// Grant is what the users of a laptop get here.
func (c *Company) Grant(ctx context.Context, peer *v1alpha1.Peer) (peering.TetherGrant, error) {
	return peering.TetherGrant{}, errors.ErrUnsupported
}

// Tether answers as peering.Handler does.
func (c *Company) Tether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	return peering.Tether{}, errors.ErrUnsupported
}

// BeginTether answers as peering.Handler does.
func (c *Company) BeginTether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	return peering.Tether{}, errors.ErrUnsupported
}

// EndTether answers as peering.Handler does.
func (c *Company) EndTether(ctx context.Context, caller peering.Caller) error {
	return errors.ErrUnsupported
}

// Path is where laptops ask for the API server in the peer API; what follows is the path there.
const Path = "/company/"

// Serve answers what a user of a laptop asks of the API server.
func (c *Company) Serve(w http.ResponseWriter, r *http.Request, id string) {
	http.Error(w, "", http.StatusNotImplemented)
}
