package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/consume/custom"
	"kith.dev/core/consume/kubelet"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/reflection"
	"kith.dev/core/consume/remote"
	"kith.dev/core/consume/virtualnode"
)

const (
	// retireGently bounds how long pods may take to come home from a peer that answers.
	retireGently = 90 * time.Second
	// retireForced bounds it when the peer does not: there is nobody to wait for.
	retireForced = 3 * time.Second
	// openWithin bounds how long peers may take to make twins that are asked for before a pod needs them.
	openWithin = 15 * time.Second
)

// Config is what a Fleet needs; all but Pods and APIServer must be set.
type Config struct {
	// Client reads this cluster from a cache; Fresh and Home do not.
	Client client.Client
	Fresh  client.Reader
	Home   kubernetes.Interface
	// NodeIP is the address of this machine's node, which virtual nodes have too.
	NodeIP netip.Addr
	// NoTunnel has virtual nodes show no InternalIP (cluster.Facts).
	NoTunnel bool
	// Pods are the ranges of the pods at home, one or one of each family.
	Pods []netip.Prefix
	// APIServer is the ClusterIP of the API server at home; the zero value when pods at peers cannot reach its endpoints.
	APIServer netip.Addr

	Kubelet   *kubelet.Kubelet
	Directory link.Directory
	Reflected *reflection.Home
	Policies  *netpolicy.Home
	Custom    *custom.Home
	Services  *clusterset.Set
	Permits   *offloading.Permits
	// Place gives the labels that say where a peer is.
	Place func(*v1alpha1.Peer) map[string]string
	// Onward says for whom a namespace is that is another cluster's and goes on to the provider with that ID; nil: there are none. Load reads which these
	// are, unless that was done: before a member runs, for it would take them for this cluster's own.
	Onward func(namespace, provider string) (remote.Onward, bool)
	Load   func(context.Context) error
	// DNS is the service address of this cluster's DNS, which guests here that go on are not to ask there.
	DNS netip.Addr
	// Taking reports whether a peer takes an image from this cluster at this moment; nil: never.
	Taking func(peer, image string) bool
	// Older is called when the peer's version of Kith lacks a call that this one needs; since is when the connection to it began.
	Older func(peer *v1alpha1.Peer, since time.Time)
	// Keep runs something for as long as ctx lasts, again when it fails.
	Keep func(ctx context.Context, name string, run func(context.Context) error)
	Log  *slog.Logger
}

// Fleet runs the members. Make it with New; all methods may be called by many at once.
type Fleet struct {
	Config
	events record.EventBroadcaster // of all members: its queues are larger than anything else a node has
	ctx    context.Context

	mu      sync.Mutex
	members map[string]*member             // by Peer name
	space   atomic.Pointer[[]netip.Prefix] // the ranges of the members' guests; read without the lock, which stopping a member holds
	// running is done when all members have stopped.
	running sync.WaitGroup
}

var _ asking.Fleet = (*Fleet)(nil)

// New makes a Fleet whose members run until ctx ends.
func New(ctx context.Context, cfg Config) *Fleet {
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: cfg.Home.CoreV1().Events("")})
	context.AfterFunc(ctx, events.Shutdown)
	return &Fleet{Config: cfg, events: events, ctx: ctx, members: map[string]*member{}}
}

// Ensure starts the member of the contract, or updates it.
func (f *Fleet) Ensure(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[peer.Name]
	if m != nil && m.contract == ctr.Spec.ID {
		if m.readdress(peer) {
			m.node.Recheck()
			m.services.Renew()
			f.respace()
		}
		labels, err := f.labels(ctx, peer, ctr)
		if err != nil {
			return err
		}
		m.node.Set(ctr.Grants(time.Now()), labels)
		return nil
	}
	if m != nil {
		m.stop()
	}
	m, err := f.start(ctx, peer, ctr)
	if err != nil {
		return fmt.Errorf("run the node of %s: %w", peer.Name, err)
	}
	f.members[peer.Name] = m
	f.respace()
	return nil
}

// onward is Onward, as far as there is one.
func (f *Fleet) onward(namespace, provider string) (of remote.Onward, is bool) {
	if f.Onward == nil {
		return of, false
	}
	return f.Onward(namespace, provider)
}

// respace gives all members the address ranges of this cluster's pods at all peers. Callers hold mu.
func (f *Fleet) respace() {
	var space []netip.Prefix
	for _, m := range f.members {
		space = append(space, m.guests.Load()[:]...)
	}
	f.space.Store(&space)
	for _, m := range f.members {
		m.reflector.Replan()
		m.policies.Wake()
	}
}

// reaches reports whether an address is that of a pod of this cluster, here or at a peer: by those, guests reach each other and home.
func (f *Fleet) reaches(a netip.Addr) bool {
	space, contains := f.space.Load(), func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(f.Pods, contains) || space != nil && slices.ContainsFunc(*space, contains)
}

// SetPresence tells the member of a peer whether the peer is there and works.
func (f *Fleet) SetPresence(peer string, there presence.Presence) {
	if m := f.member(peer); m != nil {
		m.node.SetPresence(there)
		m.custom.SetWorks(there.Works())
		m.services.SetWorks(there.Works())
		if there.Works() {
			m.policies.Again()
		}
	}
}

// SetTunnel tells the member of a peer why no packet passes between the pods here and there.
func (f *Fleet) SetTunnel(peer, why string) {
	if m := f.member(peer); m != nil && m.node.SetTunnel(why) {
		m.reflector.Replan()
	}
}

// member is that of a peer; nil when there is none.
func (f *Fleet) member(peer string) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[peer]
}

// Retire evicts the pods of a virtual node and deletes the node. The member runs until its pods have left: it is what ends them at the peer.
func (f *Fleet) Retire(ctx context.Context, peer string, reachable bool, left <-chan struct{}) error {
	patience := retireForced
	if reachable {
		patience = retireGently
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	go func() {
		select {
		case <-left:
			cancel()
		case <-bounded.Done():
		}
	}()
	if m := f.member(peer); m != nil {
		m.node.Leave()
	}
	nodes, err := f.nodesOf(ctx, peer)
	if err != nil {
		return err
	}
	var retiring errgroup.Group
	for _, node := range nodes {
		retiring.Go(func() error {
			return virtualnode.Retire(context.WithoutCancel(ctx), bounded, f.Home, node, f.keep, f.Log)
		})
	}
	err = retiring.Wait()
	if !f.drop(peer) || err != nil {
		return err
	}
	// One that had only begun to run, after a restart for example, may have made its node after that was deleted.
	if nodes, err = f.nodesOf(ctx, peer); err != nil {
		return err
	}
	for _, node := range nodes {
		err = errors.Join(err, virtualnode.Remove(ctx, f.Home, node))
	}
	return err
}

// nodesOf are the node of a peer, and those of providers behind it.
func (f *Fleet) nodesOf(ctx context.Context, peer string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openWithin)
	defer cancel()
	list, err := f.Home.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelBroker: peer}.String()})
	if err != nil {
		return nil, fmt.Errorf("see which nodes stand for %s: %w", peer, err)
	}
	nodes := []string{v1alpha1.VirtualNode(peer)}
	for i := range list.Items {
		if name := list.Items[i].Name; name != nodes[0] && v1alpha1.AtPeer(name, peer) {
			nodes = append(nodes, name)
		}
	}
	return nodes, nil
}

func (f *Fleet) keep(ctx context.Context, pod *corev1.Pod) error {
	return offloading.Keep(ctx, f.Client, pod)
}

// drop stops the member of a peer, and reports whether there was one.
func (f *Fleet) drop(peer string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[peer]
	if m == nil {
		return false
	}
	m.stop()
	delete(f.members, peer)
	f.respace()
	return true
}

// Open asks the reachable peers, or those of them in peers, to create the twin of a home namespace now. A peer's refusal is shown in the
// NamespaceOffloading.
func (f *Fleet) Open(ctx context.Context, namespace string, peers []string) {
	f.mu.Lock()
	all := map[string]*member{}
	for name, m := range f.members {
		if len(peers) == 0 || slices.Contains(peers, name) {
			all[name] = m
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	var asking sync.WaitGroup
	for name, m := range all {
		asking.Go(func() {
			if err := m.node.Open(ctx, namespace); err != nil {
				f.Log.Info("the namespace has no twin yet", "namespace", namespace, "peer", name, "err", err)
			}
		})
	}
	asking.Wait()
}

// reflects lists the namespaces of home whose pods stay here, and whose services are at peers.
func (f *Fleet) reflects() (namespaces []string) {
	var all v1alpha1.NamespaceOffloadingList
	if err := f.Client.List(f.ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		f.Log.Warn("which namespaces are at peers without their pods is not known", "err", err)
		return nil
	}
	for i := range all.Items {
		if all.Items[i].Spec.Strategy == v1alpha1.StrategyLocal {
			namespaces = append(namespaces, all.Items[i].Namespace)
		}
	}
	return namespaces
}

// Review makes all members check whether the twin of a home namespace is needed, and make or release it; or whether there are custom resources for one.
func (f *Fleet) Review(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.node.Review(namespace)
		m.custom.Opened(namespace)
	}
}

// Left lists what a peer still has of namespaces that are gone, or stay, at home.
func (f *Fleet) Left(peer string) []virtualnode.Left {
	if m := f.member(peer); m != nil {
		return m.node.Left()
	}
	return nil
}

// PodsAt are those of this cluster that are bound to the peer's node, whole; none without a contract.
func (f *Fleet) PodsAt(peer string) []*corev1.Pod {
	if m := f.member(peer); m != nil {
		return m.node.Pods()
	}
	return nil
}

// Note writes an event on a pod that is bound to the peer's node.
func (f *Fleet) Note(peer string, pod *corev1.Pod, kind, reason, message string) {
	if m := f.member(peer); m != nil {
		m.events.Event(pod, kind, reason, message)
	}
}

// Offloaded is what a peer has of a pod of this cluster; nil when it has nothing, or did not say.
func (f *Fleet) Offloaded(peer, namespace, pod string) *v1alpha1.OffloadedPod {
	if m := f.member(peer); m != nil {
		return m.node.Offloaded(namespace, pod)
	}
	return nil
}

// Uses is what each pod of this cluster at a peer uses, as the peer says; none without a contract.
func (f *Fleet) Uses(ctx context.Context, peer string) (map[types.NamespacedName]corev1.ResourceList, error) {
	if m := f.member(peer); m != nil {
		return m.all.Uses(ctx)
	}
	return nil, nil
}

// Twins lists the twin namespaces at a peer that were used since the start.
func (f *Fleet) Twins(peer string) []remote.Twin {
	if m := f.member(peer); m != nil {
		return m.node.Twins()
	}
	return nil
}

// Wait returns when all members stopped, after the context of New ended.
func (f *Fleet) Wait() { f.running.Wait() }
