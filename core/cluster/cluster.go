// Package cluster is the local Kubernetes behind one small interface: the built-in engine, which it keeps running
// as a child process, a K3s, which it runs likewise or finds as a service, or any cluster that a kubeconfig leads to. The daemon makes one and runs it; nothing above
// this package knows which: what differs is in Facts.
//
// It must never end a pod: engines outlive the daemon, and a daemon that comes back adopts what runs.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/client-go/rest"

	"kith.dev/core/netplan"
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
	// Changed gives a channel that is closed when State is another one than now. Take it before State.
	Changed() <-chan struct{}
	// RESTConfig leads to the API server with every right there. Use it after WaitReady; it must not be changed, copy it.
	RESTConfig() *rest.Config
	// Kubeconfig is the same as a file that can be carried to another program on this machine.
	Kubeconfig() ([]byte, error)

	// Facts are all there from the beginning for a cluster that Kith runs (Facts.Ours); for others what was not given is there
	// after WaitReady.
	Facts() Facts

	// Decide turns what decides in the cluster on or off, and returns when that is done: the scheduler, and the controllers of workloads,
	// disruptions, evictions and volumes. Everything else goes on, and pods run on. What was said last holds until it is said otherwise,
	// also for an engine that starts anew, and for the next process. It returns ErrNotOurs for a cluster that Kith does not run.
	Decide(ctx context.Context, on bool) error
	// Decides reports what Decide was told last: true when it never was.
	Decides() bool
}

// Facts is what is known of a cluster, and what can be asked of it.
type Facts struct {
	NodeName string // of the real node that this machine is
	NodeIP   netip.Addr
	Network  netplan.Cluster // its ranges
	API      netip.AddrPort  // where pods reach the API server, on the node's address; the zero value where nodes do not run it

	Kubeconfig string // the file of the administrator on this machine; "" when there is none of ours
	Log        string // the file of the engine's log, as Kubeconfig

	GuestNetworks string // the folder that says out of which range guests get their addresses (guestnet.WriteNetwork); "" where Kith does not give them

	Runtime string // the unix socket of the node's container runtime; "" where it is not known
	Version string // of Kubernetes, where it can change while kithd runs; "" where it is not known, or the one that came with kithd

	Ours       bool // Kith runs it, and may label its node
	Switchable bool // what decides in it can be turned on and off (Engine.Decide)
	NoTunnel   bool // its API server reaches an InternalIP of a node at the kubelet's port through a tunnel alone, which virtual nodes do not have (K3s)
	GuestLinks bool // guests have links of their own, which are marked (guestnet), and its policies know pods at peers
	TenantDNS  bool // its DNS knows whose pod asks (guestnet.Resolver)
	NodePorts  bool // it opens node ports by itself, and leaves LoadBalancer services to Kith
}

// ErrNotOurs says that a cluster belongs to somebody else, who alone starts and stops it.
var ErrNotOurs = errors.New("this cluster is not run by Kith: its owner starts and stops it")

// Phase is a word for how a cluster is. They are the words of the local API.
type Phase string

// Phases. A cluster that does not answer is starting until it has been ready, and degraded afterwards.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Degraded Phase = "degraded"
	Stopped  Phase = "stopped"
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
