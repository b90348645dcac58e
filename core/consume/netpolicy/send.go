package netpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/base/notify"
)

// eventReason of the event on a policy that does not hold at a peer.
const eventReason = "NotEnforcedAbroad"

// Home follows the policies and namespaces of this cluster for all peers.
type Home struct {
	reader  client.Reader
	plugin  bool
	changed notify.Broadcast
}

// NewHome makes a Home that follows what the manager's cache shows. With plugin policies are enforced here by a network plugin
// that may not know pods at peers.
func NewHome(mgr manager.Manager, plugin bool) (*Home, error) {
	h := &Home{reader: mgr.GetCache(), plugin: plugin}
	for _, o := range []client.Object{&networkingv1.NetworkPolicy{}, &corev1.Namespace{}} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), o, ctrlcache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { h.changed.Notify() }, DeleteFunc: func(any) { h.changed.Notify() },
				UpdateFunc: func(was, is any) {
					a, b := was.(client.Object), is.(client.Object)
					if _, ns := is.(*corev1.Namespace); !ns || !labels.Equals(a.GetLabels(), b.GetLabels()) {
						h.changed.Notify()
					}
				},
			})
		}
		if err != nil {
			return nil, fmt.Errorf("follow NetworkPolicies: %w", err)
		}
	}
	return h, nil
}

// Config is what a Peer needs; all of it.
type Config struct {
	Name     string // of the peer
	Put      func(context.Context, *Policies) (*Answer, error)
	Final    func(error) (why string, final bool) // of what Put gave: whether to try again is of no use, and why
	Recorder record.EventRecorder
	Log      *slog.Logger
}

// Peer keeps a provider informed. Its methods may be called from anywhere.
type Peer struct {
	home *Home
	cfg  Config
	wake notify.Broadcast

	twins struct {
		sync.Mutex
		abroad map[string]bool
		opened int // counts, so that all is sent again after it
	}
	mu   sync.Mutex // one message at a time
	sent *Policies  // that the peer has answered; nil: nobody knows what it holds
	till int        // how many twins had been opened by then
	told map[client.ObjectKey]string
}

// Peer makes one. Nothing is sent before a namespace is opened.
func (h *Home) Peer(cfg Config) *Peer {
	p := &Peer{home: h, cfg: cfg, told: map[client.ObjectKey]string{}}
	p.twins.abroad = map[string]bool{}
	return p
}

// pace is the shortest time between two messages, retry the time after which one that failed is sent again, at first and at most.
const (
	pace               = 200 * time.Millisecond
	retry, retryAtMost = time.Second, time.Minute
)

// Run sends what changes until ctx ends.
func (p *Peer) Run(ctx context.Context) {
	growing := wait.Backoff{Duration: retry, Factor: 2, Steps: 100, Cap: retryAtMost}
	for delay := growing; ; {
		changed, wake := p.home.changed.Wait(), p.wake.Wait()
		var again <-chan time.Time
		if err := p.send(ctx); err != nil && ctx.Err() == nil {
			after := delay.Step()
			p.cfg.Log.Debug("policies not sent, trying again", "peer", p.cfg.Name, "after", after, "err", err)
			again = time.After(after)
		} else {
			delay = growing
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// Wake checks whether the policies have changed, and sends them if so.
func (p *Peer) Wake() { p.wake.Notify() }

// Again sends all policies once more: the peer was away, and may run another version now.
func (p *Peer) Again() {
	p.twins.Lock()
	p.twins.opened++
	p.twins.Unlock()
	p.Wake()
}

// Open notes that a namespace of home has a twin at the peer, Close that it has none.
func (p *Peer) Open(home string) {
	p.twins.Lock()
	if !p.twins.abroad[home] {
		p.twins.opened++
	}
	p.twins.abroad[home] = true
	p.twins.Unlock()
	p.Wake()
}

// Close is told of the end of a twin, which takes its policies along.
func (p *Peer) Close(home string) {
	p.twins.Lock()
	delete(p.twins.abroad, home)
	p.twins.Unlock()
	p.Wake()
}

// Prepare makes sure that the peer has the current policies before a pod goes there.
func (p *Peer) Prepare(ctx context.Context) error {
	if err := p.send(ctx); err != nil {
		return fmt.Errorf("tell %s which NetworkPolicies hold: %w", p.cfg.Name, err)
	}
	return nil
}

// send brings the peer up to date, if it is not.
func (p *Peer) send(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	opened, m, err := p.message(ctx)
	if err != nil || m == nil {
		return err
	}
	if p.sent != nil && reflect.DeepEqual(p.sent, m) && (opened == p.till || len(m.Policies) == 0) {
		return nil
	}
	p.sent = nil
	answer, err := &Answer{}, m.Validate()
	why, final := "", true
	if err != nil {
		why = err.Error()
	} else if answer, err = p.cfg.Put(ctx, m); err != nil {
		why, final = p.cfg.Final(err)
		answer = &Answer{}
	}
	if !final {
		return err
	}
	p.sent, p.till = m, opened
	p.tell(ctx, m, answer.Refused, why)
	return nil
}

// message is what the peer should hold; nil while it has no twin.
func (p *Peer) message(ctx context.Context) (opened int, m *Policies, err error) {
	h := home{namespaces: map[string]labels.Set{}, abroad: map[string]bool{}}
	p.twins.Lock()
	for name := range p.twins.abroad {
		h.abroad[name] = true
	}
	opened = p.twins.opened
	p.twins.Unlock()
	if len(h.abroad) == 0 {
		return opened, nil, nil
	}
	var policies networkingv1.NetworkPolicyList
	var namespaces corev1.NamespaceList
	if err := errors.Join(p.home.reader.List(ctx, &policies), p.home.reader.List(ctx, &namespaces)); err != nil {
		return opened, nil, fmt.Errorf("read NetworkPolicies: %w", err)
	}
	h.policies = policies.Items
	for i := range namespaces.Items {
		h.namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	return opened, h.message(), nil
}

// tell writes events on the policies that are not enforced at the peer, or, with a cause for all, on every policy. Each cause is reported once.
func (p *Peer) tell(ctx context.Context, m *Policies, refused []Refused, all string) {
	causes, now := map[client.ObjectKey]string{}, map[client.ObjectKey]string{}
	for _, one := range refused {
		causes[client.ObjectKey{Namespace: one.Namespace, Name: one.Name}] = one.Why
	}
	for i := range m.Policies {
		one := client.ObjectKey{Namespace: m.Policies[i].Namespace, Name: m.Policies[i].Name}
		why := cmp.Or(causes[one], all)
		switch {
		case why != "":
			why = fmt.Sprintf("pods at %s are not held to this policy in what they send each other there, and to the internet: %.600s", p.cfg.Name, why)
		case p.home.plugin:
			why = fmt.Sprintf("between pods at %s and those here it is for this cluster's network plugin to enforce this policy, and it may not know pods at peers", p.cfg.Name)
		default:
			continue
		}
		now[one] = why
		if p.told[one] == why {
			continue
		}
		p.cfg.Log.Warn("a NetworkPolicy does not hold at a peer as it is written", "peer", p.cfg.Name, "namespace", one.Namespace, "name", one.Name, "why", why)
		var policy networkingv1.NetworkPolicy
		if p.home.reader.Get(ctx, one, &policy) == nil {
			p.cfg.Recorder.Event(&policy, corev1.EventTypeWarning, eventReason, why)
		}
	}
	p.told = now
}
