package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"kith.dev/core/agree/presence"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/queue"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/remote"
)

// Twins makes the namespaces abroad. All methods may be called again for the same namespace.
type Twins interface {
	// Ensure makes sure that the home namespace has a twin at the peer and returns the twin's name.
	Ensure(ctx context.Context, home string) (twin string, err error)
	// Release asks the peer to clear the twin away, with everything in it; the view shows how that goes.
	Release(ctx context.Context, home string) error
	// Found tells that the home namespace, which is offloaded, has a twin; settled: from an earlier run, else it is so new that
	// what belongs into it may be on its way.
	Found(home, twin string, settled bool)
	// Gone tells that it has none any more.
	Gone(home string)
}

// Companions brings the other objects that pods need to where they run.
type Companions interface {
	// Prepare copies everything that the pod refers to into the twin, before the pod goes there. After an error it is called again.
	Prepare(ctx context.Context, home *corev1.Pod) error
	// Adapt replaces, in a copy of the home pod's spec, what refers to the home cluster. It must be deterministic: its result is compared with
	// what was sent before.
	Adapt(home *corev1.Pod, twin string, spec *corev1.PodSpec)
}

// Config is what a Node needs. Home, Abroad, View, Twins, Permit, PeerName, NodeName, NodeIP, KubeletPort, Recorder and Log must be set.
type Config struct {
	// Home is the client of the home cluster; it should not limit its own rate.
	Home kubernetes.Interface
	// Abroad is the peer's API server.
	Abroad *remote.API
	// View shows the twins and what is in them. The Node runs it.
	View *remote.View
	// Twins makes the namespaces abroad.
	Twins Twins
	// Companions brings what pods need besides themselves; nil when nobody does.
	Companions Companions
	// Permit says what pods of a home namespace may do at the peer, whatever they tolerate, and why when it is not Granted.
	Permit func(ctx context.Context, namespace string) (permit offloading.Permit, why string, err error)
	// Moves reports whether pods of a home namespace leave the peer when it goes to sleep; nil: none do.
	Moves func(ctx context.Context, namespace string) (bool, error)

	// Reflects lists the home namespaces that may have a twin without any pods (offloading.Reflected); nil: there are none.
	Reflects func() []string

	// Avoid makes new pods of a controller in a home namespace avoid this node, and returns since when they do; after a conflict it is called
	// again. nil: not possible, and pods that the peer refuses stay pending.
	Avoid func(ctx context.Context, namespace string, controller types.UID) (since time.Time, err error)

	// Taking reports whether the peer takes an image from this cluster at this moment.
	Taking func(image string) bool

	// Machine asks the peer for its machine; the zero one when it does not know the question. nil when nobody can ask.
	Machine func(ctx context.Context) (remote.Machine, error)

	// PeerName is how the peer is called here, PeerID its cluster ID.
	PeerName, PeerID string
	// NodeName is the name of the virtual node, usually v1alpha1.VirtualNodePrefix + PeerName.
	NodeName string
	// NodeIP and KubeletPort are where the home API server finds the node's endpoint (core/consume/kubelet).
	NodeIP      netip.Addr
	KubeletPort int32
	// NoTunnel leaves the InternalIP out of the node's status: the home API server (K3s) would try to reach it through a tunnel.
	NoTunnel bool

	// NoNetwork: there is no network between the clusters. The node has a taint that says so, which pods must tolerate.
	NoNetwork bool

	// Resources is what the contract grants.
	Resources corev1.ResourceList
	// Endpoint serves the API of the node of a provider behind the peer, whose pods these are, until stop; nil: such nodes are not made.
	Endpoint func(node string, pods HomePods) (port int32, stop func(), err error)
	// Keep is called with each pod of such a node before its eviction when that node goes; while it fails the pod stays. nil: nothing is to be kept.
	Keep func(ctx context.Context, pod *corev1.Pod) error

	// Labels are added to the node's; kubernetes.io/arch is the one of this machine unless given here.
	Labels map[string]string

	// Guests gives the ranges of addresses that were agreed on for pods at the peer, which no other pod has; the zero value when none
	// was of that family. nil: there are none.
	Guests func() (ipv4, ipv6 netip.Prefix)
	// Onward says for whom pods of a namespace are that is another cluster's; false for one of this cluster's own, and nil when there are no others.
	Onward func(namespace string) (remote.Onward, bool)

	Log *slog.Logger
	// Recorder writes events about home pods.
	Recorder record.EventRecorder
}

const (
	workers = 16
	// callTimeout bounds one request to either API server, so that a worker never hangs on a cut link.
	callTimeout = 15 * time.Second
)

// face is a Node object of the home cluster, and what it shows.
type face struct {
	cfg     Config
	log     *slog.Logger
	of      *Node            // the peer's own, for that of a provider behind it; else nil
	behind  string           // then: the ID of the provider
	changed notify.Broadcast // state
	leaving atomic.Bool      // it is about to be retired

	mu    sync.Mutex
	state state
}

// Node is a peer as a node of the home cluster, and as one for each provider behind it that it tells of.
type Node struct {
	face
	offloaded *offloadedPods // at the peer
	view      *remote.View

	pods   *informer[*corev1.Pod] // home pods bound to this node
	queue  workqueue.TypedRateLimitingInterface[key]
	events *mirror
	record record.EventRecorder

	divided notify.Broadcast // parts, or what of the peer's own is behind it

	// The lock of the face is for all that follows, too.
	granted  corev1.ResourceList // by the contract
	parts    partsNow            // written under the lock, and read without
	twins    map[string]*twin    // by home namespace
	finished map[key]types.UID   // home pods that were let go, until the watch shows them gone
	back     chan struct{}       // the peer can be reached again; holds one
	// opening makes one request of many for the same twin.
	opening singleflight.Group
}

// see fills in what all views of this node have.
func (n *Node) see(v view) view {
	v.peer, v.nodeIP = n.cfg.PeerName, n.cfg.NodeIP
	if n.cfg.Guests != nil {
		v.guests, v.guests6 = n.cfg.Guests()
	}
	if n.cfg.Onward != nil && v.home != nil {
		if onward, is := n.cfg.Onward(v.home.Namespace); is { // it has an address of its home's
			v.guests, v.guests6 = onward.Guests, netip.Prefix{}
		}
	}
	return v
}

// key names a pod at home; with an empty name it stands for the namespace's twin.
type key struct{ namespace, name string }

// New makes a Node without touching either cluster; Run does the work.
func New(cfg Config) (*Node, error) {
	switch {
	case cfg.Home == nil, cfg.Abroad == nil, cfg.View == nil, cfg.Twins == nil, cfg.Permit == nil, cfg.Log == nil:
		return nil, errors.New("virtual node: Home, Abroad, View, Twins, Permit and Log must be set")
	case cfg.NodeName == "", cfg.PeerName == "":
		return nil, errors.New("virtual node: NodeName and PeerName must be set")
	case !cfg.NodeIP.IsValid(), cfg.KubeletPort == 0:
		return nil, fmt.Errorf("virtual node %s: NodeIP and KubeletPort must be set, so that logs and exec work", cfg.NodeName)
	}
	offloaded, err := newOffloadedPods(cfg.Abroad)
	if err != nil {
		return nil, fmt.Errorf("virtual node %s: client for the peer: %w", cfg.NodeName, err)
	}
	n := &Node{
		face: face{cfg: cfg, log: cfg.Log.With("peer", cfg.PeerName),
			state: state{there: presence.Presence{State: presence.Reachable}, resources: countable(cfg.Resources), labels: cfg.Labels}},
		granted:   cfg.Resources,
		offloaded: offloaded,
		view:      cfg.View,
		record:    cfg.Recorder,
		twins:     map[string]*twin{},
		finished:  map[key]types.UID{},
		back:      make(chan struct{}, 1),
		queue:     queue.Of(workqueue.NewTypedItemExponentialFailureRateLimiter[key](50*time.Millisecond, 30*time.Second)),
	}
	n.pods = newInformer(n.homePodChanged)
	n.pods.listed = n.synced
	n.events = newMirror(n)
	n.view.While(func() bool { return n.now().there.Works() })
	n.view.OnTwin(n.twinChanged)
	n.view.OnSynced(n.synced)
	n.view.OnSynced(func() { n.queue.Add(ofNode) }) // an earlier run may have left another word
	n.view.OnClosed(func() { n.queue.Add(ofNode) })
	n.view.OnParts(n.divide)
	n.view.OffloadedPods.OnChange(n.offloadedChanged)
	n.view.Pods.OnChange(n.guestChanged)
	n.view.Events.OnChange(n.events.ofPods)
	n.view.OtherEvents.OnChange(n.events.ofOthers)
	return n, nil
}

// Name is the node's name.
func (n *face) Name() string { return n.cfg.NodeName }

// Run registers the node and serves its pods until ctx ends. It leaves the node and its pods where they are:
// the next Run goes on with them, and Retire takes them away.
func (n *Node) Run(ctx context.Context) error {
	version, err := n.serverVersion(ctx)
	if err != nil {
		return err
	}
	if err := n.adopt(ctx); err != nil {
		return err
	}
	if err := n.adoptParts(ctx); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.register(ctx, version) })
	group.Go(func() error { return n.watchOwnNode(ctx) })
	group.Go(func() error {
		_ = n.untilDone(ctx, "bring labels and taints of the virtual node up to date", func() error { return n.ensureLabelsAndTaints(ctx, n.node(version)) })
		return nil // it ends with ctx only
	})
	group.Go(func() error { return n.watchLink(ctx) })
	group.Go(func() error { n.keepParts(ctx, version); return nil })
	group.Go(func() error { return n.pods.run(ctx, n.homePods(), &corev1.Pod{}) })
	group.Go(func() error { n.events.run(ctx); return nil })
	group.Go(func() error { return n.learnMachine(ctx) })
	group.Go(func() error { return n.view.Run(ctx) })
	group.Go(func() error { n.work(ctx, workers); return nil })
	return group.Wait()
}

// Set changes what the node offers, and what is said of the machine, where that is otherwise by now.
func (n *Node) Set(resources corev1.ResourceList, labels map[string]string) {
	n.mu.Lock()
	changed, relabeled := !equality.Semantic.DeepEqual(n.granted, resources), !maps.Equal(n.state.labels, labels)
	n.granted, n.state.labels = resources, labels
	n.mu.Unlock()
	if changed || relabeled {
		n.divide()
	}
	if relabeled {
		n.queue.Add(ofNode)
	}
}

// SetPresence tells whether the peer is there and works. That shows at once in the condition PeerReachable, and in Ready after the grace. Until
// the first call it does.
func (n *Node) SetPresence(p presence.Presence) {
	n.mu.Lock()
	was := n.state.there
	if p.Heard = cmp.Or(p.Heard, time.Now()); !was.Works() { // as long as it does not work the grace counts from when that began
		p.Heard = was.Heard
	}
	if p.State == presence.Suspended { // no grace begins after that either, as when its daemon ends before it sleeps
		p.Heard = time.Time{}
	}
	n.state.there = p
	n.mu.Unlock()
	if was.State != p.State || was.Works() != p.Works() || was.Why != p.Why || was.Asleep != p.Asleep {
		n.show()
	}
	if p.State == presence.Suspended && was.State != p.State { // also where the node was not ready before: pods may be evicted now
		n.enqueue(n.Pods())
	}
	if was.Works() == p.Works() {
		return
	}
	n.view.Look()
	if p.Works() {
		n.enqueue(n.Pods()) // what waits for its next attempt; what is abroad the view tells afresh by itself
		select {
		case n.back <- struct{}{}:
		default:
		}
	}
}

// SetTunnel says, for people, why no packets pass between the pods here and at the peer; empty when they do. While none do the node has the
// condition NetworkUnavailable, so that no pod is bound to it, and its pods are not Ready, so that services send them no requests. The node
// stays Ready, so nothing is evicted: the pods keep running and can reach each other. It reports whether that is new.
func (n *Node) SetTunnel(why string) (changed bool) {
	n.mu.Lock()
	if changed = (n.state.tunnel == "") != (why == ""); changed {
		n.state.tunnel = why
	}
	n.mu.Unlock()
	if changed {
		n.log.Info("the tunnel to the peer", "node", n.cfg.NodeName, "up", why == "", "why", why)
		n.show()
		n.Recheck()
	}
	return changed
}

// TunnelDown is what SetTunnel said last.
func (n *Node) TunnelDown() string { return n.now().tunnel }

func (n *face) now() state {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *Node) work(ctx context.Context, workers int) {
	queue.Serve(ctx, n.log, n.queue, workers, func(ctx context.Context, k key) error {
		err := n.reconcile(ctx, k)
		if err != nil && ctx.Err() == nil {
			n.log.Debug("pod will be tried again", "namespace", k.namespace, "pod", k.name, "err", err)
		}
		return err
	})
}
