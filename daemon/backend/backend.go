// Package backend answers the local API (localapi.Backend), of which the command line, the tray and curl are clients. It reads the
// cluster's cache and what the rooms know, and changes things by writing custom resources: what the CLI can do, kubectl can. The daemon
// makes it; the metrics show what it knows.
//
// It must never decide what core/ decides: whatever it is asked to change, a controller there carries out.
package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"runtime"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/receipts"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/waking"
	"kith.dev/core/agree/relay"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/version"
	"kith.dev/core/consume/consumer"
	given "kith.dev/core/consume/images"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/find/directory"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/local/cluster"
	"kith.dev/core/local/frontdoor"
	"kith.dev/core/local/images"
	"kith.dev/core/local/laptop"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/portmap"
	"kith.dev/core/provide/fenced"
	"kith.dev/core/provide/hosting"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend/location"
	"kith.dev/daemon/choose"
	"kith.dev/daemon/config"
	"kith.dev/daemon/localapi"
)

// Backend answers the local API. All of its fields must be set before it is asked anything, but those that say otherwise.
type Backend struct {
	Settings  config.Config
	Choice    choose.Choice // why the engine is the one it is
	Me        *identity.Identity
	Started   time.Time
	Directory *directory.Directory
	Names     Names // nil: nobody looks names up
	Contacts  *peering.Contacts
	Relay     *relay.Relay     // nil with relay: none
	Engine    cluster.Engine   // nil with engine "none"
	Uses      *cluster.Uses    // of the engine
	Stored    *images.Store    // the images of the engine's container runtime
	Book      *receipts.Book   // what is used under contracts; nil: nobody counts
	Laptop    *laptop.Laptop   // whether it sleeps and is used, as the system bus says
	Giver     *given.Giver     // what peers take of them
	Gateway   *gateway.Gateway // nil with engine "none"
	Ports     *portmap.Mapper  // nil where no router is asked for any
	Front     FrontDoor        // nil without one
	Mode      Mode             // nil with engine "none"
	Cluster   func() *Cluster  // gives nil while the controllers of Kith do not run
	Failing   func() []api.Problem
	Listening func() []api.Listener
	Exposed   func() *api.Exposed
	Publish   func(api.Event)
	News      *notify.Broadcast // notifies when something changed that a desktop shows
	Log       *slog.Logger
	Metrics   func(io.Writer) error // writes those of the daemon; nil: there are none

	fixing  sync.Mutex // one mends at a time
	giving  giving
	suspend suspend
	changes changes
}

var _ localapi.Backend = (*Backend)(nil)

// Names looks up where names in the DNS lead; *dns.Finder does.
type Names interface {
	location.Names
	Troubles() []dns.Trouble
}

// Cluster is what needs an API server.
type Cluster struct {
	Client     *ledger.Ledger
	Fresh      client.Reader                         // past the cache
	Snapshots  func() ([]volumes.HeldSnapshot, bool) // this cluster's at peers, as last read
	Host       *hosting.Host
	Fleet      *consumer.Fleet
	Provider   *provider.Provider
	Offloading *offloading.Reconciler
	Moves      *volumes.Mover
	Fenced     *fenced.Keeper
	Waking     *waking.Waking
	NotRenewed func(peer string) bool // its owner does not renew the contract as it is
	Version    string
	Changed    notify.Broadcast // notifies when a Peer, a Contract or a NamespaceOffloading changed
}

// Version tells what runs.
func (b *Backend) Version(context.Context) (api.Version, error) {
	return api.Version{Version: version.Version, Commit: version.Commit, Go: runtime.Version(), Kubernetes: b.kubernetes()}, nil
}

// Status is all that a user wants to know at one glance.
func (b *Backend) Status(ctx context.Context) (api.Status, error) {
	s := api.Status{
		Name: b.Settings.Name, ID: b.Me.ID().String(), ShortID: b.Me.ID().Short(), Version: version.Version,
		Started: b.Started, Engine: b.engineStatus(), Listen: b.Listening(), Exposed: b.Exposed(),
	}
	s.Mode, s.Tether = b.mode()
	s.Awake = b.awakeNow()
	all := b.Directory.All()
	s.Counts.Peers = len(all)
	for _, k := range all {
		if k.Peer != nil && tetherOf(k.Peer.Status.Tether) != nil && k.Peer.Status.Tether.Role == v1alpha1.TetherCompany {
			s.Counts.Laptops++
		}
		if k.Peer != nil && (k.Peer.Status.Outgoing.State == v1alpha1.StateConnected || k.Peer.Status.Incoming.State == v1alpha1.StateConnected) {
			s.Counts.Connected++
		}
	}
	if s.Engine.State == api.EngineReady {
		if why := b.degraded(ctx); why != "" {
			s.Engine.State, s.Engine.Why = api.EngineDegraded, why
		}
	}
	s.Problems = b.problems(ctx, s.Engine, all)
	c := b.Cluster()
	if c == nil {
		return s, nil
	}
	s.Waiting = c.waiting(ctx, all)
	for _, t := range b.Giver.Transfers() {
		s.Transfers = append(s.Transfers, api.ImageTransfer(t))
	}
	return s, b.count(ctx, c, &s)
}

// count fills in what only the cluster knows.
func (b *Backend) count(ctx context.Context, c *Cluster, s *api.Status) error {
	f, err := b.gather(ctx)
	if err != nil {
		return err
	}
	for _, r := range f.agreed.Requests {
		if provider.Pending(r) {
			s.Counts.Requests++
		}
	}
	used := corev1.ResourceList{}
	for _, ctr := range f.agreed.Contracts {
		if ctr.DeletionTimestamp != nil {
			continue
		}
		s.Counts.Contracts++
		if ctr.Spec.Role == v1alpha1.RoleProvider {
			add(used, ctr.Spec.Resources)
		}
	}
	for _, n := range f.guests {
		s.Counts.Guests += n
	}
	for _, n := range f.abroad {
		s.Counts.PodsAbroad += n
	}
	return c.sharing(ctx, s, used)
}

func (c *Cluster) sharing(ctx context.Context, s *api.Status, used corev1.ResourceList) error {
	policy, err := c.policy(ctx, api.DefaultPolicy)
	if apierrors.IsNotFound(err) {
		s.Sharing = api.Sharing{Why: "there is no policy named " + api.DefaultPolicy}
		return nil
	}
	if err != nil {
		return internal(err)
	}
	there, err := c.Provider.Supply(ctx)
	if err != nil {
		return internal(err)
	}
	s.Sharing = api.Sharing{
		Policy: policy.Name, Share: policyView(policy).Amounts.Share(), Amounts: quantities(sharing.Offered(policy, there)),
		Used: quantities(used), AutoAccept: policy.Spec.AutoAccept, Paused: policy.Spec.Paused,
	}
	if open := sharing.Hours(policy, time.Now()); !open.Now && !open.Changes.IsZero() {
		s.Sharing.Why = "outside of its hours, which begin " + sharing.Clock(open.Changes) + ": contracts in force stay until they run out"
	}
	if policy.Spec.Paused {
		s.Sharing.Why = "paused by the owner: contracts in force stay, nothing new is accepted"
	}
	return nil
}

// FrontDoor is where users of this laptop reach Kubernetes. *frontdoor.Door is one.
type FrontDoor interface {
	Kubeconfig(frontdoor.User) ([]byte, error)
}

// Kubeconfig is one of a user, which leads to the front door if there is one.
func (b *Backend) Kubeconfig(ctx context.Context, uid int) ([]byte, error) {
	if b.Front == nil {
		return b.DirectKubeconfig(ctx)
	}
	who, err := user.LookupId(strconv.Itoa(uid))
	if err == nil {
		var text []byte
		if text, err = b.Front.Kubeconfig(frontdoor.User{Name: who.Username, UID: uid}); err == nil {
			return text, nil
		}
	}
	return nil, &api.Error{
		Code: api.CodeForbidden, Message: "there is no certificate of the front door for you", Reason: err.Error(),
		Do: "ask an administrator to list you in the group " + b.Settings.SocketGroup + ", or use `kith kubeconfig --direct`",
	}
}

// DirectKubeconfig is the administrator's kubeconfig of the local cluster.
func (b *Backend) DirectKubeconfig(context.Context) ([]byte, error) {
	if b.Engine == nil {
		return nil, noEngine()
	}
	text, err := b.Engine.Kubeconfig()
	if err != nil {
		return nil, &api.Error{Code: api.CodeNotReady, Message: "there is no kubeconfig yet", Reason: err.Error(), Do: "`kith status` shows how far the engine is"}
	}
	return text, nil
}

// atStart is how long a call waits for controllers that are starting on a Kubernetes that is ready: a matter of seconds.
const atStart = 10 * time.Second

// wakePatience is how long a call waits for an engine that it wakes.
const wakePatience = 30 * time.Second

// awake wakes an engine that sleeps, and waits until it is ready. Calls need it that ask no API server, which would do so by itself.
func (b *Backend) awake(ctx context.Context, who string) error {
	if b.Engine.State().Phase != cluster.Asleep {
		return nil
	}
	b.Engine.Wake(who)
	ctx, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	return b.Engine.WaitReady(ctx)
}

// cluster is the part that needs an API server.
func (b *Backend) cluster(ctx context.Context) (*Cluster, error) {
	if b.Engine == nil {
		return nil, noEngine()
	}
	ctx, cancel := context.WithTimeout(ctx, atStart)
	defer cancel()
	for ctx.Err() == nil {
		changed := b.News.Wait()
		if c := b.Cluster(); c != nil {
			return c, nil
		}
		if b.Engine.State().Phase != cluster.Ready {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	e := b.engineStatus()
	return nil, &api.Error{Code: api.CodeNotReady, Message: "the local Kubernetes is " + string(e.State), Reason: e.Why, Do: "`kith status` shows how far it is"}
}

func noEngine() *api.Error {
	return &api.Error{Code: api.CodeUnsupported, Message: "this kithd runs without a Kubernetes (engine: none)", Reason: "it only finds other clusters", Do: "set engine to builtin or kubeconfig and restart kithd"}
}

func internal(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.CodeInternal, Message: err.Error(), Do: "the log of kithd has more"}
}

// ago tells a duration for people.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

func (b *Backend) kubernetes() string {
	c := b.Cluster()
	if c == nil {
		return ""
	}
	if b.Engine != nil {
		return cmp.Or(b.Engine.Facts().Version, c.Version) // it may have been upgraded
	}
	return c.Version
}

func (b *Backend) engineStatus() api.Engine {
	e := api.Engine{Kind: api.EngineKind(b.Settings.Engine), State: api.EngineStopped, Version: b.kubernetes(), Chosen: b.Choice.Why, Others: b.Choice.Others}
	if b.Engine == nil {
		e.Why = "this kithd runs without a Kubernetes"
		return e
	}
	state := b.Engine.State()
	e.State, e.Why = api.EngineState(state.Phase), state.Why
	if e.State == api.EngineReady && b.Cluster() == nil {
		e.State, e.Why = api.EngineStarting, "the controllers of Kith are starting"
	}
	facts := b.Engine.Facts()
	e.Node, e.Kubeconfig = facts.NodeName, facts.Kubeconfig
	if facts.NodeIP.IsValid() {
		e.NodeIP = facts.NodeIP.String()
	}
	return e
}

// follow calls check now and after every change of a Peer, a Contract or a NamespaceOffloading, until it is done.
func (c *Cluster) follow(ctx context.Context, check func() (done bool, err error)) error {
	for {
		rung := c.Changed.Wait()
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A control plane that ends on the way is back within seconds, and asked for each half second of these.
const (
	restartPause    = 500 * time.Millisecond
	restartPatience = 20 * time.Second
)

// throughRestart does what must be safe to do twice, again while this laptop's API server hangs up or does not listen: what its owner
// wants is not lost because it was being started anew. The last error is what it gives.
func throughRestart(ctx context.Context, do func() error) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, restartPause, restartPatience, true, func(context.Context) (bool, error) {
		err = do()
		return !hungUp(err), nil
	})
	return err
}

// hungUp reports whether nobody answered: the request may have been served, or not.
func hungUp(err error) bool {
	return err != nil && (utilnet.IsProbableEOF(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err))
}
