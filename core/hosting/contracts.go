package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// twin is a namespace here that stands for one at a consumer.
type twin struct {
	name     string // here
	home     string
	contract string
	consumer string // compact ID
	uid      types.UID
	leaving  bool      // being deleted
	since    time.Time // when that began; zero when it is not
}

// Annotations on a twin namespace, which its consumer cannot write: what the admission policy compares the addresses in
// the consumer's EndpointSlices with. Both are comma-separated.
const (
	annotationAliases = "kith.dev/alias-ranges"    // the consumer's ranges as they are seen here
	annotationGuests  = "kith.dev/guest-addresses" // of its pods in this namespace
)

// contracts is the view, in memory, of who may do what here: the terms of every contract in which this
// cluster provides, and the twin namespaces. Reconciling a pod and opening the door both ask it, so it
// answers without a round trip. mu guards everything below it and is never held while calling out.
type contracts struct {
	live   client.Reader
	cached client.Reader // is asked before live is, where consumers could make it much
	now    func() time.Time
	log    *slog.Logger
	again  *rate.Limiter // of fresh looks at what a consumer says there is; looking is held for one

	looking sync.Mutex

	reading sync.Mutex // one refresh at a time; taken before mu

	mu      sync.Mutex
	loaded  bool
	terms   map[string]*terms
	twins   map[string]twin
	changed map[string]bool
	ended   map[string]bool // EndContract was called: nothing brings them back
	shut    []func(consumerID string)
}

func newContracts(live, cached client.Reader, log *slog.Logger) *contracts {
	return &contracts{
		live: live, cached: cached, now: time.Now, log: log, again: rate.NewLimiter(1, 10),
		terms: map[string]*terms{}, twins: map[string]twin{}, changed: map[string]bool{}, ended: map[string]bool{},
	}
}

// refresh reads everything again and says when the next contract runs out. Those that stopped being in
// force have their consumer shut out before it returns; takeChanged gives all that changed. It asks the API
// server for the newest and not a cache: there are few of these objects and they change seldom. Nor is "not older than what I saw"
// asked for, which the API server answers from its watch cache of the kind: that learns of a version by which another kind was
// changed when it is told of progress, which some datastores do once a minute, and says "Too large resource version" until then.
func (c *contracts) refresh(ctx context.Context) (next time.Time, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	fresh, twins, err := c.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	before := c.admitted()
	c.mu.Lock()
	for id := range c.ended {
		if t := fresh[id]; t != nil {
			t.why = "it is ending"
		} else {
			delete(c.ended, id)
		}
	}
	for id := range union(c.terms, fresh) {
		if !c.terms[id].equal(fresh[id]) {
			c.changed[id] = true
		}
	}
	c.terms, c.twins, c.loaded = fresh, twins, true
	for _, t := range fresh {
		if t.why == "" && !t.notAfter.IsZero() && (next.IsZero() || t.notAfter.Before(next)) {
			next = t.notAfter
		}
	}
	c.mu.Unlock()
	c.shutOut(before)
	return next, nil
}

// Load reads contracts and twin namespaces, for the first time if nothing was read yet. Call it before anybody is sent to the Door
// or to PutNamespace: until then everybody would be told that no contract is in force.
func (c *contracts) Load(ctx context.Context) error {
	c.mu.Lock()
	loaded := c.loaded
	c.mu.Unlock()
	if loaded {
		return nil
	}
	_, err := c.refresh(ctx)
	return err
}

// takeChanged gives the contracts whose terms changed since it was last called.
func (c *contracts) takeChanged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Sorted(maps.Keys(c.changed))
	clear(c.changed)
	return out
}

func union(a, b map[string]*terms) map[string]*terms {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func (c *contracts) read(ctx context.Context) (map[string]*terms, map[string]twin, error) {
	var list v1alpha1.ContractList
	var peers v1alpha1.PeerList
	var policies v1alpha1.SharingPolicyList
	var namespaces corev1.NamespaceList
	managed := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	for _, one := range []struct {
		list client.ObjectList
		opts []client.ListOption
	}{
		{&list, nil}, {&peers, nil}, {&policies, nil}, {&namespaces, []client.ListOption{managed}},
	} {
		if err := c.live.List(ctx, one.list, one.opts...); err != nil {
			return nil, nil, fmt.Errorf("reading contracts: %w", err)
		}
	}
	byName := map[string]*v1alpha1.Peer{}
	for i := range peers.Items {
		byName[peers.Items[i].Name] = &peers.Items[i]
	}
	userns, err := c.userNamespaces(ctx)
	if err != nil {
		return nil, nil, err
	}
	fresh := map[string]*terms{}
	for i := range list.Items {
		contract := &list.Items[i]
		peer := byName[contract.Spec.Peer]
		if contract.Spec.Role != v1alpha1.RoleProvider || peer == nil {
			continue
		}
		t, err := termsOf(contract, peer, policies.Items, c.now())
		if err != nil {
			c.log.Warn("contract left out", "peer", contract.Spec.Peer, "contract", contract.Spec.ID, "err", err)
			continue
		}
		t.userns = userns
		if fresh[t.contract] == nil || t.why == "" {
			fresh[t.contract] = t
		}
	}
	twins := map[string]twin{}
	for i := range namespaces.Items {
		if tw, ok := twinOf(&namespaces.Items[i]); ok && genuine(&namespaces.Items[i], tw) {
			twins[tw.name] = tw
		}
	}
	return fresh, twins, nil
}

// userNamespaces says whether every node that runs guests can give them user namespaces of their own.
func (c *contracts) userNamespaces(ctx context.Context) (bool, error) {
	nodes := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := c.live.List(ctx, nodes, recent()); err != nil {
		return false, fmt.Errorf("reading nodes: %w", err)
	}
	real := 0
	for i := range nodes.Items {
		if _, virtual := nodes.Items[i].Labels[v1alpha1.LabelPeer]; virtual {
			continue
		}
		real++
		if nodes.Items[i].Annotations[v1alpha1.AnnotationUserNamespaces] != "yes" {
			return false, nil
		}
	}
	return real > 0, nil
}

// twinOf reads the labels of a namespace, which consumers cannot write; false when they do not fit its name.
func twinOf(ns *corev1.Namespace) (twin, bool) {
	l := ns.Labels
	tw := twin{
		name: ns.Name, home: l[v1alpha1.LabelHomeNamespace], contract: l[v1alpha1.LabelContract],
		consumer: l[v1alpha1.LabelConsumer], uid: ns.UID, leaving: !ns.DeletionTimestamp.IsZero(),
	}
	if tw.leaving {
		tw.since = ns.DeletionTimestamp.Time
	}
	return tw, l[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && tw.home != "" && tw.contract != "" && tw.consumer != "" &&
		isTwinName(tw.name, tw.home, tw.consumer)
}

// ofNamespace gives the terms that hold in a namespace. What it has not heard of it reads from the API
// server: a pod can be here before the news of its namespace is. Nil: not a twin namespace.
func (c *contracts) ofNamespace(ctx context.Context, namespace string) (*terms, error) {
	if t := c.look(namespace); t != nil {
		return t, nil
	}
	if _, err := c.refresh(ctx); err != nil {
		return nil, err
	}
	return c.look(namespace), nil
}

func (c *contracts) look(namespace string) *terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	tw, ok := c.twins[namespace]
	if t := c.terms[tw.contract]; ok && t != nil && t.consumer.Compact == tw.consumer {
		return t
	}
	return nil
}

// of gives the terms of a contract, nil when there are none.
func (c *contracts) of(contractID string) *terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms[contractID]
}

// find gives the terms of a contract of this consumer, nil when there is none. One that was signed a moment ago may not be
// in this view yet; then the cache knows that it is there, and everything is read again. What the cache does not know of, or
// has for another, costs no read: IDs are free for the making.
func (c *contracts) find(ctx context.Context, contractID, consumerID string) (*terms, error) {
	t := c.of(contractID)
	if t == nil {
		there, err := c.signed(ctx, contractID, consumerID)
		if err != nil || !there {
			return nil, err
		}
		c.looking.Lock() // one look serves all who wait for it
		defer c.looking.Unlock()
		if t = c.of(contractID); t == nil && c.again.Allow() {
			if _, err := c.refresh(ctx); err != nil {
				return nil, err
			}
			t = c.of(contractID)
		}
	}
	if t == nil || t.consumer.ID != consumerID {
		return nil, nil
	}
	return t, nil
}

// signed reports whether the cache has a contract of that ID in which this cluster provides to the consumer.
func (c *contracts) signed(ctx context.Context, contractID, consumerID string) (bool, error) {
	var list v1alpha1.ContractList
	if err := c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking for the contract: %w", err)
	}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.ID != contractID || spec.Role != v1alpha1.RoleProvider {
			continue
		}
		var peer v1alpha1.Peer
		if err := c.cached.Get(ctx, client.ObjectKey{Name: spec.Peer}, &peer); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("looking for the peer %s: %w", spec.Peer, err)
		}
		if peer.Spec.ID == consumerID {
			return true, nil
		}
	}
	return false, nil
}

// twinsOf lists the twin namespaces under a contract, by name.
func (c *contracts) twinsOf(contractID string) []twin {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []twin
	for _, tw := range c.twins {
		if tw.contract == contractID {
			out = append(out, tw)
		}
	}
	slices.SortFunc(out, func(a, b twin) int { return strings.Compare(a.name, b.name) })
	return out
}

// markChanged has takeChanged give the contract once more.
func (c *contracts) markChanged(contractID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[contractID] = true
}

// learn takes in a twin that was just made or changed, ahead of the news of it. A refresh that
// is under way must not put its older word over that, so it is waited for.
func (c *contracts) learn(tw twin) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.twins[tw.name] = tw
}

// namespaceChanged takes in what the watch tells of a namespace, and gives the twin that it is, or was until now.
func (c *contracts) namespaceChanged(ns *corev1.Namespace, gone bool) (tw twin, known, is bool) {
	c.reading.Lock() // as learn does
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.twins[ns.Name]
	tw, is = twinOf(ns)
	if is = is && !gone && genuine(ns, tw); is {
		c.twins[ns.Name] = tw
		return tw, known, true
	}
	if known && (was.uid == ns.UID || !gone) { // else another of its name was made meanwhile
		delete(c.twins, ns.Name)
		return was, true, false
	}
	return was, false, false
}

// twinsOfConsumer lists the twin namespaces of a consumer, by name.
func (c *contracts) twinsOfConsumer(consumerID string) (all []twin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if t := c.terms[tw.contract]; t != nil && t.consumer.Compact == tw.consumer && t.consumer.ID == consumerID {
			all = append(all, tw)
		}
	}
	slices.SortFunc(all, func(a, b twin) int { return strings.Compare(a.name, b.name) })
	return all
}

// twinFor finds the twin of a consumer's home namespace; of several, always the same.
func (c *contracts) twinFor(consumer Consumer, home string) (found twin, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if tw.consumer == consumer.Compact && tw.home == home && (!ok || tw.name < found.name) {
			found, ok = tw, true
		}
	}
	return found, ok
}

// homeOf names the namespace at home that a twin stands for; empty when it is none.
func (c *contracts) homeOf(namespace string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace].home
}

// consumers lists those that have a contract here, in force or not.
func (c *contracts) consumers() []Consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Consumer
	for _, t := range c.terms {
		all = append(all, t.consumer)
	}
	return all
}

// end takes a contract out of force at once and for good.
func (c *contracts) end(contractID string) {
	before := c.admitted()
	c.mu.Lock()
	c.ended[contractID] = true
	if t := c.terms[contractID]; t != nil {
		now := *t // terms are shared: never changed in place
		now.why = "it is ending"
		c.terms[contractID] = &now
	}
	c.mu.Unlock()
	c.shutOut(before)
}

// Admitted implements Access.
func (c *contracts) Admitted(consumerID string) (namespaces int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for _, t := range c.terms {
		if t.consumer.ID == consumerID && t.inForce(now) {
			ok = true
			for _, tw := range c.twins {
				if tw.contract == t.contract {
					namespaces++
				}
			}
		}
	}
	return namespaces, ok
}

// grantedTo gives the twin namespaces of a consumer under its contracts in force, and what those grant together.
func (c *contracts) grantedTo(consumerID string) (namespaces []string, limit corev1.ResourceList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	limit = corev1.ResourceList{}
	for _, t := range c.terms {
		if t.consumer.ID != consumerID || !t.inForce(now) {
			continue
		}
		sum := limit[corev1.ResourcePods]
		sum.Add(t.limit[corev1.ResourcePods])
		limit[corev1.ResourcePods] = sum
		for _, tw := range c.twins {
			if tw.contract == t.contract {
				namespaces = append(namespaces, tw.name)
			}
		}
	}
	slices.Sort(namespaces)
	return namespaces, limit
}

// admitted lists the consumers whose terms say they are in force, run out or not: running out is a change.
func (c *contracts) admitted() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for _, t := range c.terms {
		if t.why == "" {
			out[t.consumer.ID] = true
		}
	}
	return out
}

func (c *contracts) shutOut(before map[string]bool) {
	after := c.admitted()
	c.mu.Lock()
	tell := slices.Clone(c.shut)
	c.mu.Unlock()
	for id := range before {
		if !after[id] {
			c.log.Info("no contract in force any more, door shut", "id", id)
			for _, f := range tell {
				f(id)
			}
		}
	}
}

// isLeaving reports whether a namespace is a twin that is being deleted.
func (c *contracts) isLeaving(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace].leaving
}

// Leaving is a twin namespace that is being cleared away.
type Leaving struct {
	Namespace, Consumer string // the name of the Peer
	Since               time.Time
}

// Leaving lists the twin namespaces that are being cleared away, the oldest first.
func (c *contracts) Leaving() (all []Leaving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if !tw.leaving || tw.since.IsZero() {
			continue
		}
		one := Leaving{Namespace: tw.name, Since: tw.since}
		if t := c.terms[tw.contract]; t != nil {
			one.Consumer = t.consumer.Name
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Leaving) int { return a.Since.Compare(b.Since) })
	return all
}

// recent is for questions that are asked again and again until the answer is no: whatever the watch cache has.
func recent() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

// OnShut has f called whenever the last contract with a consumer stopped being in force: give it Door.Shut.
func (c *contracts) OnShut(f func(consumerID string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = append(c.shut, f)
}

// held gives the terms of the contract of that ID, if it is the caller's, and in force. To anybody else's the answer is the same as
// to none.
func (c *contracts) held(ctx context.Context, id, consumerID string) (*terms, error) {
	t, err := c.termsOf(ctx, id, consumerID)
	if err == nil && !t.inForce(c.now()) {
		err = &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %s", t.contract), Reason: "it is not in force"}
	}
	return t, err
}

// termsOf is held for a contract that may have ended.
func (c *contracts) termsOf(ctx context.Context, id, consumerID string) (*terms, error) {
	t, err := c.find(ctx, id, consumerID)
	if err == nil && t == nil {
		err = noneOfThatID(id)
	}
	return t, err
}

func noneOfThatID(id string) error {
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %.40q", id), Reason: "there is none of that ID with this consumer"}
}

// abroadOf lists a consumer's twins, and the ranges in which its own pods are seen here.
func (c *contracts) abroadOf(compact string) (twins map[string]bool, ranges []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	twins = map[string]bool{}
	for _, tw := range c.twins {
		if tw.consumer == compact && !tw.leaving {
			twins[tw.name] = true
		}
	}
	for _, t := range c.terms {
		if t.consumer.Compact != compact {
			continue
		}
		for text := range strings.SplitSeq(t.aliases, ",") {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, p)
			}
		}
	}
	return twins, ranges
}
