package grants

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
)

// Contracts holds in memory who may do what here: the terms of every contract in which this cluster provides, and the twin namespaces.
// Each reconciliation of a pod and each request at the door asks it, so it answers without a round trip. mu guards everything below it
// and is not held during calls to others.
type Contracts struct {
	live      client.Reader
	agreed    *ledger.Ledger
	log       *slog.Logger
	refreshes *rate.Limiter // of fresh looks at what a consumer says there is; refreshing is held for one

	refreshing sync.Mutex

	reading sync.Mutex // one refresh at a time; taken before mu

	Changed queues.Inbox // contracts whose terms changed, by ID

	FromHome bool // the engine asks guests' homes for images; set before all else

	Pods netip.Prefix // from which guests here get their addresses, where that is not for Kith to say; set before all else

	mu     sync.Mutex
	loaded bool
	terms  map[string]*Terms
	twins  map[string]Twin
	ended  map[string]bool // contracts for which EndContract was called, which stay out of force
	shut   []func(consumerID string)
}

func NewContracts(live client.Reader, agreed *ledger.Ledger, log *slog.Logger) *Contracts {
	return &Contracts{
		live: live, agreed: agreed, log: log, refreshes: rate.NewLimiter(1, 10),
		terms: map[string]*Terms{}, twins: map[string]Twin{}, ended: map[string]bool{},
	}
}

// Refresh reads everything again and says when the next contract runs out, or is lowered. Those that stopped being in
// force have their consumer shut out before it returns; all that changed come into Changed. It asks the API
// server for the newest namespaces and not a cache: there are few and they change seldom. Nor is "not older than what I saw"
// asked for, which the API server answers from its watch cache of the kind: that learns of a version by which another kind was
// changed when it is told of progress, which some datastores do once a minute, and says "Too large resource version" until then.
func (c *Contracts) Refresh(ctx context.Context) (next time.Time, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	fresh, twins, err := c.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	c.update(func() {
		for id := range c.ended {
			if t := fresh[id]; t != nil {
				t.Why = "it is ending"
			} else {
				delete(c.ended, id)
			}
		}
		all := maps.Clone(c.terms)
		maps.Copy(all, fresh)
		for id := range all {
			if !equality.Semantic.DeepEqual(c.terms[id], fresh[id]) {
				c.Changed.Add(types.NamespacedName{Name: id})
			}
		}
		c.terms, c.twins, c.loaded = fresh, twins, true
		for _, t := range fresh {
			if t.Why != "" {
				continue
			}
			if end := t.NotAfter; end != nil && (next.IsZero() || end.Time.Before(next)) {
				next = end.Time
			}
			if less := t.Changes; less != nil && (next.IsZero() || less.Time.Before(next)) {
				next = less.Time
			}
		}
	})
	return next, nil
}

// Load reads contracts and twin namespaces, unless that was done already. Call it when the ledger's informers have read, and before the Door or PutNamespace serve anybody: until then
// every caller would hear that no contract is in force.
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

func (c *Contracts) read(ctx context.Context) (map[string]*Terms, map[string]Twin, error) {
	agreed := c.agreed.Now()
	var namespaces corev1.NamespaceList
	if err := c.live.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return nil, nil, fmt.Errorf("reading namespaces: %w", err)
	}
	userns, err := c.userNamespaces(ctx)
	if err != nil {
		return nil, nil, err
	}
	fresh, each := map[string]*Terms{}, []divided(nil)
	for _, contract := range agreed.Contracts {
		peer := agreed.PeerNamed(contract.Spec.Peer)
		if contract.Spec.Role != v1alpha1.RoleProvider || peer == nil {
			continue
		}
		t, err := termsOf(contract, peer, agreed.Policies, c.Pods, time.Now())
		if err != nil {
			c.log.Warn("contract left out", "peer", contract.Spec.Peer, "contract", contract.Spec.ID, "err", err)
			continue
		}
		t.UserNamespaces = userns
		t.Images.Home = t.Images.Home && c.FromHome
		t.onward(peer, agreed.Peers)
		policy := sharing.Select(agreed.Policies, peer)
		on := sharing.Reoffered(policy, peer, agreed.Peers, agreed.Contracts, time.Now())
		t.withdraw(on)
		if sharing.EachProvider(policy) && t.Provider != "" {
			each = append(each, divided{t, contract, on})
		}
		if fresh[t.Contract] == nil || t.Why == "" {
			fresh[t.Contract] = t
		}
	}
	if err := c.divide(ctx, each); err != nil {
		return nil, nil, err
	}
	twins := map[string]Twin{}
	for i := range namespaces.Items {
		if tw, ok := TwinOf(&namespaces.Items[i]); ok {
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

// ReadTermsIn gives the terms that hold in a namespace. What it has not heard of it reads from the API
// server: a pod can be here before the news of its namespace is. Nil: not a twin namespace.
func (c *Contracts) ReadTermsIn(ctx context.Context, namespace string) (*Terms, error) {
	if t := c.TermsIn(namespace); t != nil {
		return t, nil
	}
	if _, err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c.TermsIn(namespace), nil
}

func (c *Contracts) TermsIn(namespace string) *Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	tw, ok := c.twins[namespace]
	if t := c.terms[tw.Contract]; ok && t != nil && t.Consumer.Compact == tw.Consumer {
		return t.in(tw)
	}
	return nil
}

// Of gives the terms of a contract, nil when there are none.
func (c *Contracts) Of(contractID string) *Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms[contractID]
}

// TermsOf gives the terms of the contract with that ID. It is CodeForbidden both when there is none and when it is another consumer's. A
// contract signed a moment ago may not be in this view yet: if the ledger has it, the view is read again. An ID that the ledger does not
// have for this consumer costs no read, since a caller can invent as many as it likes.
func (c *Contracts) TermsOf(ctx context.Context, id, consumerID string) (*Terms, error) {
	t := c.Of(id)
	if t == nil && c.signed(id, consumerID) {
		c.refreshing.Lock() // one refresh serves all callers that wait for it
		defer c.refreshing.Unlock()
		if t = c.Of(id); t == nil && c.refreshes.Allow() {
			if _, err := c.Refresh(ctx); err != nil {
				return nil, err
			}
			t = c.Of(id)
		}
	}
	if t == nil || t.Consumer.ID != consumerID {
		return nil, &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %.40q", id), Reason: "there is none of that ID with this consumer"}
	}
	return t, nil
}

// signed reports whether there is a contract with that ID in which this cluster is the provider of the consumer.
func (c *Contracts) signed(contractID, consumerID string) bool {
	agreed := c.agreed.Now()
	peer := agreed.Peer(consumerID)
	return peer != nil && slices.ContainsFunc(agreed.With(peer.Name, v1alpha1.RoleProvider), func(ctr *v1alpha1.Contract) bool { return ctr.Spec.ID == contractID })
}

// End takes a contract out of force at once and for good.
func (c *Contracts) End(contractID string) {
	c.update(func() {
		c.ended[contractID] = true
		if t := c.terms[contractID]; t != nil {
			now := *t // terms are shared: never changed in place
			now.Why = "it is ending"
			c.terms[contractID] = &now
		}
	})
}

// Admitted reports whether a contract with the consumer (identity.ID.String) is in force.
func (c *Contracts) Admitted(consumerID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, t := range c.terms {
		if t.Consumer.ID == consumerID && t.InForce(now) {
			return true
		}
	}
	return false
}

// ImageRate is how many bytes per second images of a consumer's guests (identity.ID.Compact) may come from it in; 0: no bound. allowed: a
// contract is in force by which they may at all.
func (c *Contracts) ImageRate(compact string) (most int64, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, t := range c.terms {
		if t.Consumer.Compact == compact && t.InForce(now) && t.Images.Home {
			most, allowed = max(most, t.Images.Rate), true
		}
	}
	return most, allowed
}

// HandsImages reports whether other peers of a consumer (identity.ID.Compact) may have its images from here.
func (c *Contracts) HandsImages(compact string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, t := range c.terms {
		if t.Consumer.Compact == compact && t.InForce(now) && t.Images.Home && t.Images.Hands {
			return true
		}
	}
	return false
}

// update changes the terms, and then shuts out the consumers none of whose contracts is in force any more. One that has run out
// counts as in force until then: running out is a change.
func (c *Contracts) update(change func()) {
	admitted := func() map[string]bool {
		ids := map[string]bool{}
		for _, t := range c.terms {
			if t.Why == "" {
				ids[t.Consumer.ID] = true
			}
		}
		return ids
	}
	c.mu.Lock()
	before := admitted()
	change()
	after, onShut := admitted(), slices.Clone(c.shut)
	c.mu.Unlock()
	for id := range before {
		if !after[id] {
			c.log.Info("no contract in force any more, door shut", "id", id)
			for _, f := range onShut {
				f(id)
			}
		}
	}
}

// Recent are the options for polls: the API server answers from its watch cache, which may be behind.
func Recent() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

// OnShut calls f, which should be Door.Shut, when the last contract in force with a consumer has ended.
func (c *Contracts) OnShut(f func(consumerID string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = append(c.shut, f)
}

// Held is TermsOf for a contract that must be in force.
func (c *Contracts) Held(ctx context.Context, id, consumerID string) (*Terms, error) {
	t, err := c.TermsOf(ctx, id, consumerID)
	if err == nil && !t.InForce(time.Now()) {
		err = &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("contract %s", t.Contract), Reason: "it is not in force"}
	}
	return t, err
}
