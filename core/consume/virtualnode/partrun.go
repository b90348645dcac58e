package virtualnode

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
