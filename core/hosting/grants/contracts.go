package grants

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

// Twin is a namespace here that stands for one at a consumer.
type Twin struct {
	Name     string // here
	Home     string
	Contract string
	Consumer string // compact ID
	UID      types.UID
	Leaving  bool      // being deleted
	Since    time.Time // when that began; zero when it is not
}

// Annotations on a twin namespace, which its consumer cannot write: what the admission policy compares the addresses in
// the consumer's EndpointSlices with. Both are comma-separated.
const (
	AnnotationAliases = "kith.dev/alias-ranges"    // the consumer's ranges as they are seen here
	AnnotationGuests  = "kith.dev/guest-addresses" // of its pods in this namespace
)

// Contracts is the view, in memory, of who may do what here: the terms of every contract in which this
// cluster provides, and the twin namespaces. Reconciling a pod and opening the door both ask it, so it
// answers without a round trip. mu guards everything below it and is never held while calling out.
type Contracts struct {
	live   client.Reader
	cached client.Reader // is asked before live is, where consumers could make it much
	Now    func() time.Time
	log    *slog.Logger
	again  *rate.Limiter // of fresh looks at what a consumer says there is; looking is held for one

	looking sync.Mutex

	reading sync.Mutex // one refresh at a time; taken before mu

	mu      sync.Mutex
	loaded  bool
	terms   map[string]*Terms
	twins   map[string]Twin
	changed map[string]bool
	ended   map[string]bool // EndContract was called: nothing brings them back
	shut    []func(consumerID string)
}

func NewContracts(live, cached client.Reader, log *slog.Logger) *Contracts {
	return &Contracts{
		live: live, cached: cached, Now: time.Now, log: log, again: rate.NewLimiter(1, 10),
		terms: map[string]*Terms{}, twins: map[string]Twin{}, changed: map[string]bool{}, ended: map[string]bool{},
	}
}

// Refresh reads everything again and says when the next contract runs out. Those that stopped being in
// force have their consumer shut out before it returns; takeChanged gives all that changed. It asks the API
// server for the newest and not a cache: there are few of these objects and they change seldom. Nor is "not older than what I saw"
// asked for, which the API server answers from its watch cache of the kind: that learns of a version by which another kind was
// changed when it is told of progress, which some datastores do once a minute, and says "Too large resource version" until then.
func (c *Contracts) Refresh(ctx context.Context) (next time.Time, err error) {
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
			t.Why = "it is ending"
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
		if t.Why == "" && !t.notAfter.IsZero() && (next.IsZero() || t.notAfter.Before(next)) {
			next = t.notAfter
		}
	}
	c.mu.Unlock()
	c.shutOut(before)
	return next, nil
}

// Load reads contracts and twin namespaces, for the first time if nothing was read yet. Call it before anybody is sent to the Door
// or to PutNamespace: until then everybody would be told that no contract is in force.
func (c *Contracts) Load(ctx context.Context) error {
	c.mu.Lock()
	loaded := c.loaded
	c.mu.Unlock()
	if loaded {
		return nil
	}
	_, err := c.Refresh(ctx)
	return err
}

// TakeChanged gives the contracts whose terms changed since it was last called.
func (c *Contracts) TakeChanged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Sorted(maps.Keys(c.changed))
	clear(c.changed)
	return out
}

func union(a, b map[string]*Terms) map[string]*Terms {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func (c *Contracts) read(ctx context.Context) (map[string]*Terms, map[string]Twin, error) {
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
	fresh := map[string]*Terms{}
	for i := range list.Items {
		contract := &list.Items[i]
		peer := byName[contract.Spec.Peer]
		if contract.Spec.Role != v1alpha1.RoleProvider || peer == nil {
			continue
		}
		t, err := termsOf(contract, peer, policies.Items, c.Now())
		if err != nil {
			c.log.Warn("contract left out", "peer", contract.Spec.Peer, "contract", contract.Spec.ID, "err", err)
			continue
		}
		t.UserNamespaces = userns
		if fresh[t.Contract] == nil || t.Why == "" {
			fresh[t.Contract] = t
		}
	}
	twins := map[string]Twin{}
	for i := range namespaces.Items {
		if tw, ok := TwinOf(&namespaces.Items[i]); ok && Genuine(&namespaces.Items[i], tw) {
			twins[tw.Name] = tw
		}
	}
	return fresh, twins, nil
}

// userNamespaces says whether every node that runs guests can give them user namespaces of their own.
func (c *Contracts) userNamespaces(ctx context.Context) (bool, error) {
	nodes := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := c.live.List(ctx, nodes, Recent()); err != nil {
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

// TwinOf reads the labels of a namespace, which consumers cannot write; false when they do not fit its name.
func TwinOf(ns *corev1.Namespace) (Twin, bool) {
	l := ns.Labels
	tw := Twin{
		Name: ns.Name, Home: l[v1alpha1.LabelHomeNamespace], Contract: l[v1alpha1.LabelContract],
		Consumer: l[v1alpha1.LabelConsumer], UID: ns.UID, Leaving: !ns.DeletionTimestamp.IsZero(),
	}
	if tw.Leaving {
		tw.Since = ns.DeletionTimestamp.Time
	}
	return tw, l[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && tw.Home != "" && tw.Contract != "" && tw.Consumer != "" &&
		isTwinName(tw.Name, tw.Home, tw.Consumer)
}

// OfNamespace gives the terms that hold in a namespace. What it has not heard of it reads from the API
// server: a pod can be here before the news of its namespace is. Nil: not a twin namespace.
func (c *Contracts) OfNamespace(ctx context.Context, namespace string) (*Terms, error) {
	if t := c.Look(namespace); t != nil {
		return t, nil
	}
	if _, err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c.Look(namespace), nil
}

func (c *Contracts) Look(namespace string) *Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	tw, ok := c.twins[namespace]
	if t := c.terms[tw.Contract]; ok && t != nil && t.Consumer.Compact == tw.Consumer {
		return t
	}
	return nil
}

// Of gives the terms of a contract, nil when there are none.
func (c *Contracts) Of(contractID string) *Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms[contractID]
}

// Find gives the terms of a contract of this consumer, nil when there is none. One that was signed a moment ago may not be
// in this view yet; then the cache knows that it is there, and everything is read again. What the cache does not know of, or
// has for another, costs no read: IDs are free for the making.
func (c *Contracts) Find(ctx context.Context, contractID, consumerID string) (*Terms, error) {
	t := c.Of(contractID)
	if t == nil {
		there, err := c.signed(ctx, contractID, consumerID)
		if err != nil || !there {
			return nil, err
		}
		c.looking.Lock() // one look serves all who wait for it
		defer c.looking.Unlock()
		if t = c.Of(contractID); t == nil && c.again.Allow() {
			if _, err := c.Refresh(ctx); err != nil {
				return nil, err
			}
			t = c.Of(contractID)
		}
	}
	if t == nil || t.Consumer.ID != consumerID {
		return nil, nil
	}
	return t, nil
}

// signed reports whether the cache has a contract of that ID in which this cluster provides to the consumer.
func (c *Contracts) signed(ctx context.Context, contractID, consumerID string) (bool, error) {
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

// TwinsOf lists the twin namespaces under a contract, by name.
func (c *Contracts) TwinsOf(contractID string) []Twin {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Twin
	for _, tw := range c.twins {
		if tw.Contract == contractID {
			out = append(out, tw)
		}
	}
	slices.SortFunc(out, func(a, b Twin) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// MarkChanged has takeChanged give the contract once more.
func (c *Contracts) MarkChanged(contractID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[contractID] = true
}

// Learn takes in a twin that was just made or changed, ahead of the news of it. A refresh that
// is under way must not put its older word over that, so it is waited for.
func (c *Contracts) Learn(tw Twin) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.twins[tw.Name] = tw
}

// NamespaceChanged takes in what the watch tells of a namespace, and gives the twin that it is, or was until now.
func (c *Contracts) NamespaceChanged(ns *corev1.Namespace, gone bool) (tw Twin, known, is bool) {
	c.reading.Lock() // as learn does
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.twins[ns.Name]
	tw, is = TwinOf(ns)
	if is = is && !gone && Genuine(ns, tw); is {
		c.twins[ns.Name] = tw
		return tw, known, true
	}
	if known && (was.UID == ns.UID || !gone) { // else another of its name was made meanwhile
		delete(c.twins, ns.Name)
		return was, true, false
	}
	return was, false, false
}

// TwinsOfConsumer lists the twin namespaces of a consumer, by name.
func (c *Contracts) TwinsOfConsumer(consumerID string) (all []Twin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if t := c.terms[tw.Contract]; t != nil && t.Consumer.Compact == tw.Consumer && t.Consumer.ID == consumerID {
			all = append(all, tw)
		}
	}
	slices.SortFunc(all, func(a, b Twin) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// TwinFor finds the twin of a consumer's home namespace; of several, always the same.
func (c *Contracts) TwinFor(consumer Consumer, home string) (found Twin, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if tw.Consumer == consumer.Compact && tw.Home == home && (!ok || tw.Name < found.Name) {
			found, ok = tw, true
		}
	}
	return found, ok
}

// HomeOf names the namespace at home that a twin stands for; empty when it is none.
func (c *Contracts) HomeOf(namespace string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace].Home
}

// Consumers lists those that have a contract here, in force or not.
func (c *Contracts) Consumers() []Consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Consumer
	for _, t := range c.terms {
		all = append(all, t.Consumer)
	}
	return all
}

// End takes a contract out of force at once and for good.
func (c *Contracts) End(contractID string) {
	before := c.admitted()
	c.mu.Lock()
	c.ended[contractID] = true
	if t := c.terms[contractID]; t != nil {
		now := *t // terms are shared: never changed in place
		now.Why = "it is ending"
		c.terms[contractID] = &now
	}
	c.mu.Unlock()
	c.shutOut(before)
}

// Admitted implements Access.
func (c *Contracts) Admitted(consumerID string) (namespaces int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	for _, t := range c.terms {
		if t.Consumer.ID == consumerID && t.InForce(now) {
			ok = true
			for _, tw := range c.twins {
				if tw.Contract == t.Contract {
					namespaces++
				}
			}
		}
	}
	return namespaces, ok
}

// GrantedTo gives the twin namespaces of a consumer under its contracts in force, and what those grant together.
func (c *Contracts) GrantedTo(consumerID string) (namespaces []string, limit corev1.ResourceList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	limit = corev1.ResourceList{}
	for _, t := range c.terms {
		if t.Consumer.ID != consumerID || !t.InForce(now) {
			continue
		}
		sum := limit[corev1.ResourcePods]
		sum.Add(t.Limit[corev1.ResourcePods])
		limit[corev1.ResourcePods] = sum
		for _, tw := range c.twins {
			if tw.Contract == t.Contract {
				namespaces = append(namespaces, tw.Name)
			}
		}
	}
	slices.Sort(namespaces)
	return namespaces, limit
}

// admitted lists the consumers whose terms say they are in force, run out or not: running out is a change.
func (c *Contracts) admitted() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for _, t := range c.terms {
		if t.Why == "" {
			out[t.Consumer.ID] = true
		}
	}
	return out
}

func (c *Contracts) shutOut(before map[string]bool) {
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

// IsLeaving reports whether a namespace is a twin that is being deleted.
func (c *Contracts) IsLeaving(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace].Leaving
}

// Leaving is a twin namespace that is being cleared away.
type Leaving struct {
	Namespace, Consumer string // the name of the Peer
	Since               time.Time
}

// Leaving lists the twin namespaces that are being cleared away, the oldest first.
func (c *Contracts) Leaving() (all []Leaving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tw := range c.twins {
		if !tw.Leaving || tw.Since.IsZero() {
			continue
		}
		one := Leaving{Namespace: tw.Name, Since: tw.Since}
		if t := c.terms[tw.Contract]; t != nil {
			one.Consumer = t.Consumer.Name
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Leaving) int { return a.Since.Compare(b.Since) })
	return all
}

// Recent is for questions that are asked again and again until the answer is no: whatever the watch cache has.
func Recent() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

// OnShut has f called whenever the last contract with a consumer stopped being in force: give it Door.Shut.
func (c *Contracts) OnShut(f func(consumerID string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = append(c.shut, f)
}

// Held gives the terms of the contract of that ID, if it is the caller's, and in force. To anybody else's the answer is the same as
// to none.
func (c *Contracts) Held(ctx context.Context, id, consumerID string) (*Terms, error) {
	t, err := c.TermsOf(ctx, id, consumerID)
	if err == nil && !t.InForce(c.Now()) {
		err = &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %s", t.Contract), Reason: "it is not in force"}
	}
	return t, err
}

// TermsOf is held for a contract that may have ended.
func (c *Contracts) TermsOf(ctx context.Context, id, consumerID string) (*Terms, error) {
	t, err := c.Find(ctx, id, consumerID)
	if err == nil && t == nil {
		err = NoneOfThatID(id)
	}
	return t, err
}

func NoneOfThatID(id string) error {
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %.40q", id), Reason: "there is none of that ID with this consumer"}
}

// AbroadOf lists a consumer's twins, and the ranges in which its own pods are seen here.
func (c *Contracts) AbroadOf(compact string) (twins map[string]bool, ranges []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	twins = map[string]bool{}
	for _, tw := range c.twins {
		if tw.Consumer == compact && !tw.Leaving {
			twins[tw.Name] = true
		}
	}
	for _, t := range c.terms {
		if t.Consumer.Compact != compact {
			continue
		}
		for text := range strings.SplitSeq(t.Aliases, ",") {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, p)
			}
		}
	}
	return twins, ranges
}
