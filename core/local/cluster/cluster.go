// Package cluster is the local Kubernetes behind one interface (Engine): the built-in engine, run as a child process; a K3s, run likewise
// or found as a systemd service; or any cluster of a kubeconfig. The daemon makes one and runs it. Code above this package does not know
// which it is: what differs is in Facts.
//
// It must never end a pod: engines outlive the daemon, and a daemon that restarts adopts the engine that runs.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/client-go/rest"

	"kith.dev/core/net/netplan"
)

// Engine is a local cluster. Its methods may be called at any time, from anywhere.
type Engine interface {
	// Run keeps the cluster usable until ctx ends, and leaves it and its pods running then. It returns early only
	// when no amount of trying again can help. It runs once at a time.
	Run(ctx context.Context) error
	// WaitReady returns nil when the API server answers. If ctx ends first, the error says what it waits for.
	WaitReady(ctx context.Context) error
	// State is how the cluster is right now.
	State() State
	// Changed gives a channel that is closed at the next change of State. Call it before State.
	Changed() <-chan struct{}
	// RESTConfig is for the API server, with cluster-admin rights. Use it after WaitReady. It must not be changed: copy it.
	RESTConfig() *rest.Config
	// Kubeconfig is the same as a file that can be carried to another program on this machine.
	Kubeconfig() ([]byte, error)

	// Facts are complete from the start for a cluster that Kith runs (Facts.Ours). For others, what the configuration does not give is
	// known after WaitReady.
	Facts() Facts

	// Decide turns on or off, and returns when that is done, the scheduler and the controllers of workloads, disruptions, evictions and
	// volumes. Everything else goes on, and pods keep running. The setting is kept on the disk, so it also holds after a restart of the
	// engine or of this process. The error is ErrNotOurs for a cluster that Kith does not run.
	Decide(ctx context.Context, on bool) error
	// Decides is the last argument of Decide; true if it was never called.
	Decides() bool

	// Sleep ends the engine's programs and returns when they have ended; the cluster is Asleep from the call on. It must run no pod, and be
	// Ready. Requests that come now wait; used reports whether one came before, and then it goes on. An error says that it does, or, when
	// ctx ended, that it is still ending. ErrNotOurs for a cluster that cannot sleep.
	Sleep(ctx context.Context, used func() bool) error
	// Wake starts again what Sleep ended; by is who needs it, for the log. It returns at once, and does nothing for a cluster that does not
	// sleep. Requests that go through Patient call it, and whoever connects to its API server.
	Wake(by string)
}

// Facts is what is known of a cluster, and what can be asked of it.
type Facts struct {
	NodeName string // of the real node that this machine is
	NodeIP   netip.Addr
	Network  netplan.Cluster // its ranges
	API      netip.AddrPort  // where pods reach the API server on a node's address; zero when the API server does not run on nodes

	Kubeconfig string // the file of the administrator on this machine; "" when there is none of ours
	Log        string // the file of the engine's log, as Kubeconfig
	Program    string // the path of the engine's executable, which asks its own API server, too; "" where it is another's

	GuestNetworks string // directory of the files that say from which range guests get their addresses (guestnet.WriteNetwork); "" where another network plugin assigns them

	Runtime string // the unix socket of the node's container runtime; "" where it is not known
	Version string // of Kubernetes, where it can change while kithd runs; "" where it is not known, or the one that came with kithd

	Ours       bool // Kith runs it, and may label its node
	Switchable bool // what decides in it can be turned on and off (Engine.Decide)
	Sleeps     bool // it can be put to sleep (Engine.Sleep)
	NoTunnel   bool // its API server reaches kubelets at an InternalIP only through a tunnel (K3s), which virtual nodes do not have
	GuestLinks bool // guests have marked network links of their own (guestnet), and its NetworkPolicies cover pods at peers
	TenantDNS  bool // its DNS server answers by which consumer's pod asks (guestnet.Resolver)
	NodePorts  bool // it opens node ports by itself, and leaves LoadBalancer services to Kith
}

// ErrNotOurs is the error of Decide for a cluster that Kith does not run.
var ErrNotOurs = errors.New("this cluster is not run by Kith: its owner starts and stops it")

// Phase is a word for how a cluster is. They are the words of the local API.
type Phase string

// Phases. A cluster that does not answer is starting until it has been ready, and degraded afterwards.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Degraded Phase = "degraded"
	Stopped  Phase = "stopped"
	Asleep   Phase = "asleep" // nothing of it runs, and it starts when it is needed
	Failed   Phase = "failed" // starting failed several times; it is still tried again
)

// State is a phase and, unless it is ready, the reason in words for its owner.
type State struct {
	Phase Phase
	Why   string
}

func (s State) String() string {
	if s.Why == "" {
		return string(s.Phase)
	}
	return fmt.Sprintf("%s: %s", s.Phase, s.Why)
}
