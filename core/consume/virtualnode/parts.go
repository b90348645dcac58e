package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/identity"
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
