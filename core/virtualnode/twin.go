package virtualnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/offloading"
)

// twinAnnotation, with the home namespace's name appended, stands on the virtual node for every namespace
// that has a twin. It is written before the first pod goes there: whatever happens at home meanwhile, the
// next start knows where pods may have been left abroad.
const twinAnnotation = "twin.kith.dev/"

// twin is a namespace abroad and what is watched in it.
type twin struct {
	home, name string
	offloaded  *watched[*v1alpha1.OffloadedPod]
	pods       *watched[*corev1.Pod]
	events     *watched[*corev1.Event]
	close      context.CancelFunc

	mu   sync.Mutex
	last map[string]corev1.PodStatus // of home pods whose guest is gone, translated
}

func (t *twin) isFresh() bool { return t.offloaded.isFresh() && t.pods.isFresh() }

// isDenied says whether the peer no longer lets us look into the twin: it took the namespace away.
func (t *twin) isDenied() bool { return t.offloaded.isDenied() || t.pods.isDenied() }

func (t *twin) refresh() {
	t.offloaded.refresh()
	t.pods.refresh()
	t.events.refresh()
}

// lastStatus is the last that was seen of the home pod's guest; the home pod's own status when nothing was.
func (t *twin) lastStatus(home *corev1.Pod) corev1.PodStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.last[home.Name]; ok {
		return s
	}
	return home.Status
}

func (n *Node) twin(home string) *twin {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.twins[home]
}

// GuestNode names the peer's node that the guest of a home pod runs on; empty when that is not known.
func (n *Node) GuestNode(namespace, pod string) string {
	t := n.twin(namespace)
	if t == nil {
		return ""
	}
	guest := t.pods.get(key{t.name, pod})
	if guest == nil {
		return ""
	}
	return guest.Spec.NodeName
}

func (n *Node) allTwins() []*twin {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*twin, 0, len(n.twins))
	for _, t := range n.twins {
		all = append(all, t)
	}
	return all
}

// unopened are the home namespaces noted on the node whose twins are not watched yet.
func (n *Node) unopened() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var homes []string
	for home := range n.state.twins {
		if n.twins[home] == nil {
			homes = append(homes, home)
		}
	}
	return homes
}

// Open makes sure that the home namespace has a twin, before a pod of it goes there. The error is that of Config.Twins.
func (n *Node) Open(ctx context.Context, home string) error { return n.open(ctx, home) }

// open makes sure the home namespace has a twin and watches it. Called for one that is watched, it asks
// again and follows when the twin has another name by now.
func (n *Node) open(ctx context.Context, home string) error {
	_, err, _ := n.opening.Do(home, func() (any, error) {
		permit, why, err := n.cfg.Permit(ctx, home)
		if err == nil && (permit == offloading.Withdrawn || permit != offloading.Granted && !n.remembers(home)) {
			err = errors.New(why)
		}
		if err != nil {
			return nil, err
		}
		name, err := n.cfg.Twins.Ensure(ctx, home)
		if err != nil {
			return nil, fmt.Errorf("twin of namespace %s at %s: %w", home, n.cfg.PeerName, err)
		}
		old := n.twin(home)
		if old != nil && old.name == name {
			if old.isDenied() { // it is there again
				old.refresh()
			}
			return nil, nil
		}
		if err := n.remember(ctx, home, name); err != nil {
			return nil, err
		}
		if old != nil {
			n.forgetTwin(old)
		}
		n.watchTwin(home, name)
		return nil, nil
	})
	return err
}

func (n *Node) watchTwin(home, name string) {
	ctx, cancel := context.WithCancel(context.Background()) // ended by closeTwins, before Run returns
	t := &twin{home: home, name: name, close: cancel, last: map[string]corev1.PodStatus{}}
	t.offloaded = newWatched(func(was, is *v1alpha1.OffloadedPod) { n.queue.Add(key{home, either(was, is).Name}) })
	t.pods = newWatched(func(was, is *corev1.Pod) {
		n.keepLast(t, was, is)
		n.queue.Add(key{home, either(was, is).Name})
	})
	t.events = newWatched(func(was, is *corev1.Event) { n.events.changed(t, was, is) })
	// A pod may have been asked for while the lists were on their way.
	t.offloaded.listed, t.pods.listed = func() { n.enqueueAll(home) }, func() { n.enqueueAll(home) }

	log := n.log.With("namespace", home, "twin", name)
	n.mu.Lock()
	n.twins[home] = t
	n.mu.Unlock()
	log.Info("namespace has a twin")
	n.watching.Go(func() { t.offloaded.run(ctx, n.abroad.offloaded.listWatch(name), &v1alpha1.OffloadedPod{}, log) })
	n.watching.Go(func() { t.pods.run(ctx, n.guestPods(name), &corev1.Pod{}, log) })
	n.watching.Go(func() { t.events.run(ctx, n.guestEvents(name), &corev1.Event{}, log) })
}

// keepLast remembers how a guest ended until its home pod is gone too, or it is made again.
func (n *Node) keepLast(t *twin, was, is *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is != nil {
		delete(t.last, is.Name)
		return
	}
	if home := n.pods.get(key{t.home, was.Name}); home != nil {
		v := view{home: home, nodeIP: n.cfg.NodeIP, translate: n.cfg.Translate, peer: n.cfg.PeerName}
		t.last[was.Name] = v.copyOf(&was.Status)
	}
}

func (n *Node) homePodChanged(was, is *corev1.Pod) {
	if is == nil {
		n.mu.Lock()
		delete(n.finished, keyOf(was))
		n.mu.Unlock()
		if t := n.twin(was.Namespace); t != nil {
			t.mu.Lock()
			delete(t.last, was.Name)
			t.mu.Unlock()
		}
	}
	n.enqueue(either(was, is))
}

// enqueueAbroad queues every pod that is abroad, whether it is still at home or not.
func (n *Node) enqueueAbroad() {
	for _, t := range n.allTwins() {
		for _, o := range t.offloaded.list() {
			n.queue.Add(key{t.home, o.Name})
		}
	}
}

// Readdress has all pods abroad reported again: Config.Translate gives other addresses than before.
func (n *Node) Readdress() { n.enqueueAbroad() }

func (n *Node) enqueueAll(home string) {
	for _, pod := range n.pods.list() {
		if pod.Namespace == home {
			n.enqueue(pod)
		}
	}
}

func (n *Node) guestPods(namespace string) cache.ListerWatcher {
	ours := labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}.String()
	pods := n.abroad.core.Pods(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = ours
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = ours
			return pods.Watch(ctx, o)
		},
	}
}

// remember writes the twin on the node.
func (n *Node) remember(ctx context.Context, home, twin string) error {
	return n.annotate(ctx, home, &twin)
}

func (n *Node) annotate(ctx context.Context, home string, twin *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]*string{twinAnnotation + home: twin},
	}})
	if err != nil {
		return err
	}
	_, err = n.cfg.Home.CoreV1().Nodes().Patch(ctx, n.cfg.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("note the twin of namespace %s on node %s: %w", home, n.cfg.NodeName, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if twin == nil {
		delete(n.state.twins, home)
	} else {
		n.state.twins[home] = true
	}
	return nil
}

// remembers says whether pods of that namespace may be abroad.
func (n *Node) remembers(home string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state.twins[home]
}

// rememberedTwins reads the home namespaces with a twin from the node.
func rememberedTwins(node *corev1.Node) []string {
	var homes []string
	for k := range node.Annotations {
		if home, ok := strings.CutPrefix(k, twinAnnotation); ok {
			homes = append(homes, home)
		}
	}
	return homes
}

func (n *Node) forgetTwin(t *twin) {
	t.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.twins[t.home] == t {
		delete(n.twins, t.home)
	}
}

func (n *Node) closeTwins() {
	for _, t := range n.allTwins() {
		n.forgetTwin(t)
	}
	n.watching.Wait()
}

const reviewEvery = time.Minute

// reviewTwins gives up the twins of namespaces that are gone at home, or home again, should that not have been
// possible at once. A twin without pods is kept otherwise: the next pod of its namespace starts faster, and other
// objects may be reflected there.
func (n *Node) reviewTwins(ctx context.Context) error {
	ticker := time.NewTicker(reviewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, t := range n.allTwins() {
			if err := n.review(ctx, t); err != nil && ctx.Err() == nil {
				n.log.Warn("cannot give up a twin namespace, will be tried again", "namespace", t.home, "twin", t.name, "err", err)
			}
		}
	}
}

func (n *Node) review(ctx context.Context, t *twin) error {
	if permit, why, err := n.cfg.Permit(ctx, t.home); err != nil || permit == offloading.Withdrawn {
		return errors.Join(err, n.withdraw(ctx, key{namespace: t.home}, why))
	}
	if !n.pods.isFresh() || !t.isFresh() && !t.isDenied() || t.isFresh() && len(t.offloaded.list()) > 0 {
		return nil
	}
	for _, pod := range n.pods.list() {
		if pod.Namespace == t.home {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ns, err := n.cfg.Home.CoreV1().Namespaces().Get(ctx, t.home, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) || err == nil && ns.Labels[v1alpha1.LabelOffload] != "" {
		return err
	}
	return n.Release(ctx, t.home)
}

// Release gives the twin of a home namespace up, with all in it. After an error it is tried again from time to time,
// unless pods of the namespace go abroad meanwhile.
func (n *Node) Release(ctx context.Context, home string) error {
	if err := n.cfg.Twins.Release(ctx, home); err != nil {
		return err
	}
	if t := n.twin(home); t != nil {
		n.forgetTwin(t)
	}
	if err := n.annotate(ctx, home, nil); err != nil {
		return err
	}
	n.enqueueAll(home) // a pod that is still on the node has nowhere to be
	return nil
}
