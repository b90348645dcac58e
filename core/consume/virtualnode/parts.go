package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/identity"
)

// partRetires bounds how long pods may take to leave the node of a provider that the peer tells of no more; then they are deleted, as from a peer.
const partRetires = 90 * time.Second

const (
	// partBlinks is how long the peer may tell nothing of a provider before its node retires. Until then the node is not ready, which keeps new pods off
	// and ends none, and ready again as soon as it is told of.
	partBlinks = time.Minute
	// partEvery is how often a provider becomes a node beyond the first remote.MaxParts: the peer may tell of others at each moment.
	partEvery = time.Minute
)

// part is a provider behind the peer, which is a broker that tells of each of its own, as a node. What goes on there goes by way of the peer, in the same
// twins: a part has a Node object and the watch of the pods bound to it, and everything else of its pods is the Node's.
type part struct {
	face
	name string // the provider's, in the name of the node
	pods *informer[*corev1.Pod]

	cancel context.CancelFunc
	done   chan struct{}

	// retired: an earlier run began to retire the node.
	retired bool

	// Under the lock of the Node.
	gone   time.Time // since when the peer tells nothing of it; zero when it does
	ending bool      // the node goes
}

// HomePods are the pods of home that are bound to a node.
type HomePods interface {
	Get(namespace, name string) *corev1.Pod
	All() []*corev1.Pod
}

// partsNow are the parts that have a node, by the ID of the provider; the map is never changed.
type partsNow struct {
	atomic.Pointer[map[string]*part]
}

func (n *Node) allParts() map[string]*part {
	if now := n.parts.Load(); now != nil {
		return *now
	}
	return nil
}

// setPart puts a part in, or takes it out. Callers hold the lock.
func (n *Node) setPart(id string, p *part) {
	next := maps.Clone(n.allParts())
	if next == nil {
		next = map[string]*part{}
	}
	if next[id] = p; p == nil {
		delete(next, id)
	}
	n.parts.Store(&next)
}

// show has the nodes show what changed of the peer.
func (n *Node) show() {
	n.changed.Notify()
	for _, p := range n.allParts() {
		p.changed.Notify()
	}
}

// learn takes over what is true of all nodes of the peer.
func (f *face) learn() {
	if f.of == nil {
		return
	}
	is := f.of.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.there, f.state.tunnel, f.state.machine = is.there, is.tunnel, is.machine
}

// hostname is the node's name as a label, of which those are shorter.
func (f *face) hostname() string {
	if id, err := identity.ParseID(f.behind); err == nil && len(f.cfg.NodeName) > validation.LabelValueMaxLength {
		return "behind-" + id.Compact()
	}
	return f.cfg.NodeName
}

// OwnPods are those bound to the peer's own node, and not to that of a provider behind it.
func (n *Node) OwnPods() HomePods { return n.pods }

// home are the pods bound to the peer's nodes.
func (n *Node) home() homePods {
	stores := homePods{n.pods}
	for _, p := range n.allParts() {
		stores = append(stores, p.pods)
	}
	return stores
}

// homePods are those of several nodes. One of two pods of a name was deleted, and that is not seen yet: the later is meant.
type homePods []*informer[*corev1.Pod]

func (h homePods) Get(namespace, name string) (is *corev1.Pod) {
	for _, i := range h {
		if pod := i.Get(namespace, name); pod != nil && (is == nil || later(pod, is)) {
			is = pod
		}
	}
	return is
}

func later(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

func (h homePods) All() (all []*corev1.Pod) {
	for _, i := range h {
		all = append(all, i.All()...)
	}
	return all
}

func (h homePods) In(namespace string) (all []*corev1.Pod) {
	for _, i := range h {
		all = append(all, i.In(namespace)...)
	}
	return all
}

// seesPods reports whether the pods of all nodes were listed.
func (n *Node) seesPods() bool {
	return !slices.ContainsFunc(n.home(), func(i *informer[*corev1.Pod]) bool { return !i.hasSynced.Load() })
}

// via is who is to run a home pod, by the node that it is bound to; "" where the peer tells of nobody. One of a claim is run by the peer itself, wherever it is
// bound: a volume from before there were nodes of those behind a peer has no rule that keeps its pods off them, and can be given none.
func (n *Node) via(home *corev1.Pod) (string, error) {
	told := n.view.Parts()
	of := func(id string) bool {
		return slices.ContainsFunc(told, func(is remote.Part) bool { return is.ID == id })
	}
	own := ""
	if of(n.cfg.PeerID) {
		own = n.cfg.PeerID
	}
	for id, p := range n.allParts() {
		switch {
		case p.cfg.NodeName != home.Spec.NodeName:
			continue
		case !of(id):
			return "", fmt.Errorf("%s offers nothing of %s any more", n.cfg.PeerName, p.name)
		case slices.ContainsFunc(home.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }):
			return own, nil
		}
		return id, nil
	}
	if home.Spec.NodeName != "" && home.Spec.NodeName != n.cfg.NodeName {
		return "", fmt.Errorf("whose node %s is is not known", home.Spec.NodeName)
	}
	return own, nil
}

// divide brings what the nodes show in step with the contract, and with how the peer divides it. No part has more of anything than the contract grants.
// Until that is known those of an earlier run are as they were: the peer's own would have the whole beside what the others have.
func (n *Node) divide() {
	if !n.knows() && len(n.allParts()) > 0 {
		return
	}
	told := n.view.Parts()
	n.mu.Lock()
	granted, common := n.granted, n.state.labels
	own := granted
	for _, is := range told {
		if is.ID == n.cfg.PeerID {
			own = within(is, granted)
		}
	}
	own = countable(own)
	changed := !equality.Semantic.DeepEqual(n.state.resources, own)
	n.state.resources = own
	n.mu.Unlock()
	if changed {
		n.changed.Notify()
	}
	for id, p := range n.allParts() {
		i := slices.IndexFunc(told, func(is remote.Part) bool { return is.ID == id })
		p.set(n.cfg.PeerName, common, granted, told, i)
	}
	n.divided.Notify()
	n.queue.Add(ofNode)
}

// set is what the node shows of a part: the i-th of those told, or, below 0, that there is none any more.
func (p *part) set(peer string, common map[string]string, granted corev1.ResourceList, told []remote.Part, i int) {
	p.mu.Lock()
	was := p.state
	if i < 0 {
		p.state.away = peer + " offers nothing of " + p.name + " any more"
	} else {
		is := told[i]
		p.state.away, p.state.resources, p.state.labels = "", countable(within(is, granted)), maps.Clone(common)
		if is.Why != "" {
			p.state.away = peer + " says: " + is.Why
		}
		if p.state.labels == nil {
			p.state.labels = map[string]string{}
		}
		// A domain of failure of its own, in that of the peer; no other zone is called so, as no name of a Peer has a dot.
		zone := strings.TrimPrefix(p.cfg.NodeName, v1alpha1.VirtualNodePrefix)
		maps.Copy(p.state.labels, map[string]string{
			v1alpha1.LabelBroker: peer, v1alpha1.LabelBehind: p.name, corev1.LabelTopologyZone: strings.TrimRight(zone[:min(len(zone), validation.LabelValueMaxLength)], "-."),
		})
		if is.Arch != "" {
			p.state.labels[corev1.LabelArchStable] = is.Arch
		}
	}
	changed := was.away != p.state.away || !equality.Semantic.DeepEqual(was.resources, p.state.resources)
	p.mu.Unlock()
	if changed {
		p.changed.Notify()
	}
}

// within are the amounts of a part, none more than is granted.
func within(is remote.Part, granted corev1.ResourceList) corev1.ResourceList {
	amounts, err := record.Quantities(is.Resources)
	if err != nil { // it was checked
		return nil
	}
	for name, q := range amounts {
		if most, granted := granted[name]; !granted {
			delete(amounts, name)
		} else if most.Cmp(q) < 0 {
			amounts[name] = most
		}
	}
	return amounts
}

// relabelAll is relabel, for all nodes.
func (n *Node) relabelAll(ctx context.Context) error {
	err := n.relabel(ctx)
	for _, p := range n.allParts() {
		err = errors.Join(err, p.relabel(ctx))
	}
	return err
}

// newPart makes a part of a provider that was not known, or whose node is of an earlier run. Callers hold no lock.
func (n *Node) newPart(id, name string) *part {
	cfg := n.cfg
	cfg.NodeName = v1alpha1.VirtualNodeBehind(n.cfg.PeerName, name)
	p := &part{face: face{cfg: cfg, log: n.log, of: n, behind: id}, name: name, pods: newInformer(n.homePodChanged), done: make(chan struct{})}
	p.pods.listed = n.synced
	return p
}

// adoptParts finds the nodes of providers that an earlier run left.
func (n *Node) adoptParts(ctx context.Context) error {
	if n.cfg.Endpoint == nil {
		return nil
	}
	var list *corev1.NodeList
	err := n.untilDone(ctx, "read the virtual nodes of those behind the peer", func() (err error) {
		list, err = n.cfg.Home.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelBroker: n.cfg.PeerName}.String()})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		node := &list.Items[i]
		name, is := strings.CutPrefix(node.Name, v1alpha1.VirtualNodeBehind(n.cfg.PeerName, ""))
		id, err := identity.ParseID(node.Annotations[v1alpha1.AnnotationBehind])
		if !is || err != nil || n.allParts()[id.String()] != nil {
			continue
		}
		p := n.newPart(id.String(), name)
		p.state.resources, p.state.labels = node.Status.Allocatable, node.Labels
		_, p.retired = node.Annotations[annotationRetiring]
		n.mu.Lock()
		n.setPart(p.behind, p)
		n.mu.Unlock()
	}
	if n.knows() || len(n.allParts()) == 0 {
		return nil
	}
	return n.untilDone(ctx, "read what the virtual node had", func() error {
		own, err := n.cfg.Home.CoreV1().Nodes().Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
		if err == nil {
			n.mu.Lock()
			n.state.resources = own.Status.Allocatable
			n.mu.Unlock()
		} else if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// keepParts gives each provider behind the peer a node as long as the peer tells of it, until ctx ends.
func (n *Node) keepParts(ctx context.Context, version string) {
	if n.cfg.Endpoint == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, p := range n.allParts() {
		n.startPart(ctx, &running, version, p)
	}
	select {
	case <-n.view.Known():
		n.divide()
	case <-ctx.Done():
		return
	}
	starts := rate.NewLimiter(rate.Every(partEvery), remote.MaxParts)
	for {
		changed := n.divided.Wait()
		var later <-chan time.Time
		if again := n.settleParts(ctx, &running, version, starts); again > 0 {
			later = time.After(again)
		}
		select {
		case <-changed:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}

// settleParts starts the parts that there are to be, no more at once than starts allows, and ends the others. again is after what time there is more to do;
// zero when there is not.
func (n *Node) settleParts(ctx context.Context, running *sync.WaitGroup, version string, starts *rate.Limiter) (again time.Duration) {
	told := n.view.Parts()
	for _, is := range told {
		if is.ID == n.cfg.PeerID || n.allParts()[is.ID] != nil || n.leaving.Load() {
			continue
		}
		id, err := identity.ParseID(is.ID)
		if err != nil || len(n.allParts()) >= remote.MaxParts { // one that ends brings us back
			continue
		}
		if !starts.Allow() {
			again = partEvery
			continue
		}
		p := n.newPart(is.ID, record.NameFor(id, cmp.Or(is.Name, id.Short()), func(name string) bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(n.allParts())), func(other *part) bool { return other.name == name })
		}))
		n.mu.Lock()
		n.setPart(is.ID, p)
		n.mu.Unlock()
		n.startPart(ctx, running, version, p)
		n.log.Info("a provider behind the peer is a node", "node", p.cfg.NodeName, "provider", is.ID)
	}
	for id, p := range n.allParts() {
		i := slices.IndexFunc(told, func(is remote.Part) bool { return is.ID == id })
		n.mu.Lock()
		granted, common := n.granted, n.state.labels
		switch {
		case i >= 0:
			p.gone = time.Time{}
		case p.gone.IsZero():
			p.gone = time.Now()
		}
		left := partBlinks - time.Since(p.gone)
		waits := i < 0 && !p.ending && left > 0
		ends := i < 0 && !p.ending && !waits
		p.ending = p.ending || ends
		n.mu.Unlock()
		if waits && (again == 0 || left < again) {
			again = left
		}
		p.set(n.cfg.PeerName, common, granted, told, i)
		if i >= 0 && p.retired {
			p.retired = false
			running.Go(func() {
				_ = p.untilDone(ctx, "take back the retirement of a virtual node", func() error {
					if p.leaving.Load() {
						return nil
					}
					return p.uncordon(ctx)
				})
			})
		}
		if ends {
			running.Go(func() { n.endPart(ctx, p) })
		}
	}
	return again
}

// startPart runs a part until its cancel is called, or ctx ends.
func (n *Node) startPart(ctx context.Context, running *sync.WaitGroup, version string, p *part) {
	ctx, p.cancel = context.WithCancel(ctx)
	i := slices.IndexFunc(n.view.Parts(), func(is remote.Part) bool { return is.ID == p.behind })
	if i >= 0 {
		n.mu.Lock()
		granted, common := n.granted, n.state.labels
		n.mu.Unlock()
		p.set(n.cfg.PeerName, common, granted, n.view.Parts(), i)
	}
	running.Go(func() {
		defer close(p.done)
		var both sync.WaitGroup
		// No pod of the peer goes on before the pods of all its nodes are listed, so that waits for nothing else.
		both.Go(func() { _ = p.pods.run(ctx, p.homePods(), &corev1.Pod{}) })
		both.Go(func() { p.serve(ctx, version) })
		both.Wait()
	})
}

// serve has the node of a part, and its endpoint, until ctx ends.
func (p *part) serve(ctx context.Context, version string) {
	var stop func()
	err := p.untilDone(ctx, "serve the endpoint of a virtual node", func() (err error) {
		p.cfg.KubeletPort, stop, err = p.cfg.Endpoint(p.cfg.NodeName, p.pods)
		return err
	})
	if err != nil {
		return
	}
	defer stop()
	if p.adopt(ctx) != nil {
		return
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.register(ctx, version) })
	group.Go(func() error { return p.watchOwnNode(ctx) })
	group.Go(func() error {
		_ = p.untilDone(ctx, "bring labels and taints of the virtual node up to date", func() error { return p.ensureLabelsAndTaints(ctx, p.node(version)) })
		return nil
	})
	_ = group.Wait() // it ends with ctx only
}

// endPart has the pods leave the node of a provider that the peer tells of no more, and deletes it. What is there of it when ctx ends is found by the next run.
func (n *Node) endPart(ctx context.Context, p *part) {
	p.leaving.Store(true)
	keep := n.cfg.Keep
	if keep == nil {
		keep = func(context.Context, *corev1.Pod) error { return nil }
	}
	err := p.untilDone(ctx, "retire the virtual node", func() error {
		bounded, cancel := context.WithTimeout(ctx, partRetires)
		defer cancel()
		return Retire(ctx, bounded, n.cfg.Home, p.cfg.NodeName, keep, n.log)
	})
	if err != nil {
		return
	}
	p.cancel()
	<-p.done
	_ = wait.PollUntilContextCancel(ctx, retryEvery, true, func(ctx context.Context) (bool, error) { // it may have been made once more
		return Remove(ctx, n.cfg.Home, p.cfg.NodeName) == nil, nil
	})
	n.mu.Lock()
	n.setPart(p.behind, nil)
	n.mu.Unlock()
	n.log.Info("a provider behind the peer is no node any more", "node", p.cfg.NodeName, "provider", p.behind)
	n.divided.Notify() // it may be back
}
