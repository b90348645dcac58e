package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/offloading"
	"kith.dev/core/consume/remote"
)

// twin is a namespace abroad, and what is remembered of it; the lock of the Node is for what changes. What is in it, and whether it is
// being cleared away, the view has.
type twin struct {
	home, name string
	settled    bool // from an earlier run

	adopted bool                        // Twins knows of it
	asked   time.Time                   // when this process asked for it last, or saw it come
	last    map[string]corev1.PodStatus // of home pods whose guest is gone, as it looks from home
	left    time.Time                   // since when it should be gone; zero when it should not
	why     string                      // why it could not be given up
}

// lastStatus is the last that was seen of the home pod's guest; the home pod's own status when nothing was.
func (n *Node) lastStatus(t *twin, home *corev1.Pod) corev1.PodStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := t.last[home.Name]; ok {
		return s
	}
	return home.Status
}

// terminating reports whether the peer clears the twin away.
func (n *Node) terminating(t *twin) bool {
	shown := n.view.Twins.Get("", t.name)
	return shown != nil && shown.Leaving
}

func (n *Node) twin(home string) *twin {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.twins[home]
}

// Twin names the namespace at the peer that stands for one at home; empty when there is none yet.
func (n *Node) Twin(home string) string {
	if t := n.twin(home); t != nil {
		return t.name
	}
	return ""
}

// Pod gives the home pod on this node; nil when it is not there. Nobody may change it.
func (n *Node) Pod(namespace, name string) *corev1.Pod { return n.home().Get(namespace, name) }

// Pods gives all home pods on the node, in no order.
func (n *Node) Pods() []*corev1.Pod { return n.home().All() }

// GuestNode names the peer's node that the guest of a home pod runs on; empty when that is not known.
func (n *Node) GuestNode(namespace, pod string) string {
	if guest := n.guest(namespace, pod); guest != nil {
		return guest.Spec.NodeName
	}
	return ""
}

// GuestReady reports whether the guest of a home pod is ready where it runs, whatever home makes of it.
func (n *Node) GuestReady(namespace, pod string) bool {
	guest := n.guest(namespace, pod)
	if guest == nil || guest.DeletionTimestamp != nil {
		return false
	}
	ready := condition(guest.Status.Conditions, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func (n *Node) guest(namespace, pod string) *corev1.Pod {
	if t := n.twin(namespace); t != nil {
		return n.view.Pods.Get(t.name, pod)
	}
	return nil
}

// Offloaded is what the peer has of a home pod; nil when it has nothing, or did not say. Nobody may change it.
func (n *Node) Offloaded(namespace, pod string) *v1alpha1.OffloadedPod {
	if t := n.twin(namespace); t != nil {
		return n.view.OffloadedPods.Get(t.name, pod)
	}
	return nil
}

// Twins lists the twins that are in use: of namespaces whose pods may be there.
func (n *Node) Twins() (used []remote.Twin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.twins {
		if t.adopted {
			used = append(used, remote.Twin{Name: t.name, Home: t.home, Leaving: n.terminating(t)})
		}
	}
	return used
}

func (n *Node) allTwins() []*twin {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.twins))
}

// Open makes sure that the home namespace has a twin. Called for one that has, it asks again and follows when the twin has another
// name by now.
func (n *Node) Open(ctx context.Context, home string) error {
	_, err, _ := n.opening.Do(home, func() (any, error) {
		permit, why, err := n.cfg.Permit(ctx, home)
		if err == nil && (permit == offloading.Withdrawn || permit != offloading.Granted && permit != offloading.Reflected && n.twin(home) == nil) {
			err = errors.New(why)
		}
		if err != nil {
			return nil, err
		}
		name, err := n.cfg.Twins.Ensure(ctx, home)
		if err != nil {
			return nil, fmt.Errorf("twin of namespace %s at %s: %w", home, n.cfg.PeerName, err)
		}
		t, news := n.know(remote.Twin{Name: name, Home: home})
		n.settle(t)
		n.mu.Lock()
		t.asked = time.Now()
		n.mu.Unlock()
		if news {
			n.enqueue(n.home().In(home))
		}
		return nil, nil
	})
	return err
}

// know takes a twin in, and tells whether that is news. Of several for one namespace, which a peer may have for a moment, the one
// that stays counts.
func (n *Node) know(is remote.Twin) (t *twin, news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t = n.twins[is.Home]; t != nil && (t.name == is.Name || is.Leaving) {
		return t, false
	}
	t = &twin{home: is.Home, name: is.Name, settled: !n.knows(), last: map[string]corev1.PodStatus{}}
	if !t.settled { // whoever asked for it is still being answered
		t.asked = time.Now()
	}
	n.twins[is.Home] = t
	n.log.Info("namespace has a twin", "namespace", is.Home, "twin", is.Name)
	return t, true
}

// twinChanged is called for each twin that the view shows, and each that it shows no more.
func (n *Node) twinChanged(was, is *remote.Twin) {
	if is != nil {
		if _, news := n.know(*is); news {
			n.enqueue(n.home().In(is.Home))
		}
		for _, o := range n.view.OffloadedPods.In(is.Name) { // which may have come first
			n.queue.Add(key{is.Home, o.Name})
		}
		n.queue.Add(key{namespace: is.Home})
		return
	}
	n.mu.Lock()
	t := n.twins[was.Home]
	gone := t != nil && t.name == was.Name
	if gone {
		delete(n.twins, was.Home)
	}
	n.mu.Unlock()
	if gone {
		n.log.Info("namespace has no twin any more", "namespace", was.Home, "twin", was.Name)
		n.cfg.Twins.Gone(was.Home)
		n.enqueue(n.home().In(was.Home)) // what waits for the end of this twin gets the next
		n.Review(was.Home)
	}
}

// synced is called when the view has told of everything: pods may have gone at home while nobody watched, and twins be left of
// namespaces that home has no more.
func (n *Node) synced() {
	for _, t := range n.allTwins() {
		n.Review(t.home)
	}
	if n.cfg.Reflects != nil {
		for _, home := range n.cfg.Reflects() {
			n.Review(home)
		}
	}
	n.enqueue(n.Pods())
	n.Recheck()
}

func (n *Node) offloadedChanged(was, is *v1alpha1.OffloadedPod) {
	o := cmp.Or(is, was)
	home := n.view.HomeOf(o.Namespace)
	if home == "" {
		return // it is asked for when that is known
	}
	n.queue.Add(key{home, o.Name})
	if is == nil {
		n.queue.Add(key{namespace: home}) // it may have been the last one
	}
}

func (n *Node) guestChanged(was, is *corev1.Pod) {
	guest := cmp.Or(is, was)
	home := n.view.HomeOf(guest.Namespace)
	if t := n.twin(home); t != nil && t.name == guest.Namespace {
		n.keepLast(t, was, is)
		n.queue.Add(key{home, guest.Name})
	}
}

// keepLast remembers how a guest ended until its home pod is gone too, or it is made again.
func (n *Node) keepLast(t *twin, was, is *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if is != nil {
		delete(t.last, is.Name)
		return
	}
	if home := n.home().Get(t.home, was.Name); home != nil {
		t.last[was.Name] = n.see(view{home: home}).copyOf(&was.Status)
	}
}

func (n *Node) homePodChanged(was, is *corev1.Pod) {
	if is == nil {
		n.mu.Lock()
		delete(n.finished, keyOf(was))
		if t := n.twins[was.Namespace]; t != nil {
			delete(t.last, was.Name)
		}
		n.mu.Unlock()
		n.queue.Add(key{namespace: was.Namespace}) // it may have been the last one
	}
	n.queue.Add(keyOf(cmp.Or(is, was)))
}

// Recheck has every pod that is abroad looked at again, whether it is still at home or not: Config.Guests is another range, say.
func (n *Node) Recheck() {
	for _, t := range n.allTwins() {
		for _, o := range n.view.OffloadedPods.In(t.name) {
			n.queue.Add(key{t.home, o.Name})
		}
	}
}

// enqueue has pods tried at once, whatever failed before.
func (n *Node) enqueue(pods []*corev1.Pod) {
	for _, pod := range pods {
		n.queue.Forget(keyOf(pod))
		n.queue.Add(keyOf(pod))
	}
}

// Review has the twin of a home namespace given up if the namespace is gone, or stays at home: at once, if its peer can be
// reached and its pods have ended, else then. One that is to be there without pods is made.
func (n *Node) Review(home string) {
	n.queue.Forget(key{namespace: home})
	n.queue.Add(key{namespace: home})
}

// newFor is how long a twin that was asked for is kept, whatever is seen at home: what it was asked for may not be seen yet.
const newFor = 2 * time.Second

// review gives up a twin that nobody needs: of a namespace that is gone at home, or going, or stays at home again. What is there
// at the peer is compared with what is wanted here, so nothing has to be remembered for it, by either side. A twin without pods is
// kept otherwise: the next pod of its namespace starts faster, and other objects may be reflected there. One that is wanted without pods is made.
func (n *Node) review(ctx context.Context, home string, permit offloading.Permit) error {
	t := n.twin(home)
	if t == nil && permit == offloading.Reflected && n.view.HasSynced() {
		return n.Open(ctx, home)
	}
	if t == nil || n.terminating(t) || !n.view.HasSynced() || !n.seesPods() {
		return nil // what changes that brings us back
	}
	n.mu.Lock()
	adopted, asked := t.adopted, t.asked
	n.mu.Unlock()
	used := n.view.OffloadedPods.Has(t.name) || len(n.home().In(home)) > 0
	if used && adopted {
		return nil // each pod that ends brings us back
	}
	ns, err := n.cfg.Home.CoreV1().Namespaces().Get(ctx, home, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look at namespace %s: %w", home, err)
	}
	if err == nil && ns.DeletionTimestamp == nil && ns.Labels[v1alpha1.LabelOffload] == "true" && permit != offloading.Refused {
		n.settle(t)
		if !adopted {
			n.cfg.Twins.Found(home, t.name, t.settled)
		}
		return nil
	}
	if used {
		return nil
	}
	if soon := newFor - time.Since(asked); soon > 0 {
		n.queue.AddAfter(key{namespace: home}, soon)
		return nil
	}
	return n.giveUp(ctx, t)
}

// giveUp has the peer clear a twin away, with all in it.
func (n *Node) giveUp(ctx context.Context, t *twin) error {
	n.blame(t, nil)
	if err := n.cfg.Twins.Release(ctx, t.home); err != nil {
		n.blame(t, err)
		return fmt.Errorf("give up the twin of namespace %s: %w", t.home, err)
	}
	return nil
}

// settle notes that the twin is wanted.
func (n *Node) settle(t *twin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.adopted, t.left, t.why = true, time.Time{}, ""
}

// blame notes that the twin should be gone, and why it could not be given up.
func (n *Node) blame(t *twin, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.left.IsZero() {
		t.left = time.Now()
	}
	t.adopted = false
	if err != nil {
		t.why = why(err)
	}
}

// Left is a namespace at the peer that nothing here needs any more.
type Left struct {
	Home, Name string
	Since      time.Time
	Leaving    bool   // the peer clears it away
	Why        string // why it could not be given up, when that was tried last
}

// Left lists what the peer still has of namespaces that are gone, or stay, at home.
func (n *Node) Left() (all []Left) {
	n.mu.Lock()
	for _, t := range n.twins {
		if !t.left.IsZero() {
			all = append(all, Left{t.home, t.name, t.left, n.terminating(t), t.why})
		}
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b Left) int { return strings.Compare(a.Home, b.Home) })
	return all
}
