package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/provide/hosting/grants"
)

// Homes sets the endpoints at a consumer's home cluster, or behind it at other providers, to not ready in its services here while home cannot be
// reached, so that guests use endpoints that answer, and restores them when home is back.
//
// EndpointSlices in twins belong to home, which writes them whole. So this side does not enforce a state, but writes once when home goes away and
// once when it is back, each time only onto the resource version known here. Anything that home writes meanwhile stays. The changes are
// remembered in memory only: after a restart of this daemon home restores everything itself, since it rewrites objects whose resource version
// is not its own.
type Homes struct {
	client    client.Client
	live      client.Reader
	contracts *grants.Contracts
	// reach returns nil if a consumer's pods can be reached. If reach itself is nil they count as not reachable.
	reach func(ctx context.Context, consumerID string) error
	log   *slog.Logger
	inbox queues.Inbox

	mu        sync.Mutex
	consumers map[string]*home // by compact ID
}

func NewHomes(mgr manager.Manager, contracts *grants.Contracts, log *slog.Logger) *Homes {
	return &Homes{client: mgr.GetClient(), live: mgr.GetAPIReader(), contracts: contracts, log: log, consumers: map[string]*home{}}
}

// home is what is known of a consumer's cluster. Fields of the reconciler need no lock: one runs at a time for each consumer.
type home struct {
	id    string            // identity.ID.String
	there presence.Presence // under the lock of Homes

	out     time.Time // the reconciler's: since when home was away for which the endpoints were set to not ready; zero: they were not
	changed map[types.NamespacedName]change
}

// change is an EndpointSlice that was changed: the resource version written, and the conditions before, by the endpoint's index.
type change struct {
	version string
	was     map[int]discoveryv1.EndpointConditions
}

const (
	// reachAgain is how often a consumer is checked whose daemon cannot be reached but whose pods can; backAgain, one whose pods
	// cannot be reached either.
	reachAgain = 15 * time.Second
	backAgain  = time.Minute
)

// SetHome records whether the consumer's daemon answers. Repeating the same is cheap.
func (s *Homes) SetHome(peer *v1alpha1.Peer, there presence.Presence) {
	consumer, err := grants.ConsumerOf(peer)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.consumers[consumer.Compact]
	if h == nil {
		h = &home{id: consumer.ID, changed: map[types.NamespacedName]change{}}
		s.consumers[consumer.Compact] = h
	} else if h.there.Reachable() == there.Reachable() {
		return
	}
	if h.there = there; there.Since.IsZero() { // it is not looked for yet
		h.there.Since = time.Now()
	}
	s.inbox.Add(types.NamespacedName{Name: consumer.Compact})
}

// ReachBy says how to find out whether a consumer's pods can be reached while its daemon cannot: where no connection to
// it can be made, the tunnel may be up. Call it before the manager starts.
func (s *Homes) ReachBy(reach func(ctx context.Context, consumerID string) error) { s.reach = reach }

func (s *Homes) Watch(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-homes").
		WatchesRawSource(&s.inbox).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4, NewQueue: queues.New,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(reconcile.Func(s.reconcile))
}

// home gives the consumer's home, and whether it is there.
func (s *Homes) home(compact string) (*home, presence.Presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.consumers[compact]
	return h, h.there
}

func (s *Homes) reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	h, there := s.home(r.Name)
	left, isAway := presence.Home.Left(there, time.Now())
	if !isAway {
		return ctrl.Result{}, s.giveBack(ctx, h)
	}
	if left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if s.reach != nil && s.reach(ctx, h.id) == nil {
		h.out = time.Time{}
		return ctrl.Result{RequeueAfter: reachAgain}, s.giveBack(ctx, h)
	}
	switch _, there = s.home(r.Name); {
	case there.Reachable(): // it came back while it was looked for
		return ctrl.Result{}, s.giveBack(ctx, h)
	case h.out.Equal(there.Since):
		return ctrl.Result{RequeueAfter: backAgain}, nil
	}
	if err := s.takeOut(ctx, r.Name, h); err != nil {
		return ctrl.Result{}, err
	}
	h.out = there.Since
	return ctrl.Result{RequeueAfter: backAgain}, nil
}

// takeOut sets the endpoints that are at the consumer's home to not ready, in all its twins. After an error it goes on where it was.
func (s *Homes) takeOut(ctx context.Context, compact string, h *home) error {
	twins, ranges := s.contracts.AbroadOf(compact)
	if len(twins) == 0 {
		return nil
	}
	ours := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	var slicesHere discoveryv1.EndpointSliceList
	if err := s.live.List(ctx, &slicesHere, ours); err != nil {
		return fmt.Errorf("look for endpoints of a home that is away: %w", err)
	}
	var services corev1.ServiceList
	if err := s.live.List(ctx, &services, ours); err != nil {
		return fmt.Errorf("look for services of a home that is away: %w", err)
	}
	unready := map[types.NamespacedName]bool{}
	for i := range services.Items {
		unready[client.ObjectKeyFromObject(&services.Items[i])] = services.Items[i].Spec.PublishNotReadyAddresses
	}
	var errs []error
	out := 0
	for i := range slicesHere.Items {
		slice := &slicesHere.Items[i]
		key := client.ObjectKeyFromObject(slice)
		if !twins[slice.Namespace] || h.changed[key].version == slice.ResourceVersion { // it is as it was left here
			continue
		}
		service := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		was := away(slice, ranges, unready[service])
		if len(was) == 0 {
			continue
		}
		if err := s.client.Update(ctx, slice, client.FieldOwner(homesOwner)); err != nil {
			errs = append(errs, goneOrChanged(err))
			continue
		}
		out += len(was)
		h.changed[key] = change{slice.ResourceVersion, was}
	}
	if out > 0 {
		s.log.Info("the endpoints of a consumer that is away are not ready here", "id", compact, "endpoints", out)
	}
	return errors.Join(errs...)
}

// homesOwner has the endpoints as long as home does not write them.
const homesOwner = "kith-homes"

// away changes the conditions of the endpoints within the consumer's ranges to those of pods that nobody reaches, and gives
// what they were. A service whose addresses are published ready or not keeps them: who asked for that wants to know them.
func away(slice *discoveryv1.EndpointSlice, ranges []netip.Prefix, unready bool) map[int]discoveryv1.EndpointConditions {
	was := map[int]discoveryv1.EndpointConditions{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		atHome := slices.ContainsFunc(e.Addresses, func(a string) bool {
			addr, err := netip.ParseAddr(a)
			return err == nil && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
		})
		now := e.Conditions
		if now.Serving = new(bool); !unready {
			now.Ready = new(bool)
		}
		if !atHome || ptr.Equal(e.Conditions.Ready, now.Ready) && ptr.Equal(e.Conditions.Serving, now.Serving) {
			continue
		}
		was[i], e.Conditions = e.Conditions, now
	}
	return was
}

// giveBack puts the conditions back that takeOut changed, where home has not written since.
func (s *Homes) giveBack(ctx context.Context, h *home) error {
	var errs []error
	for key, c := range h.changed {
		if err := s.giveOneBack(ctx, key, c); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(h.changed, key)
	}
	return errors.Join(errs...)
}

func (s *Homes) giveOneBack(ctx context.Context, key types.NamespacedName, c change) error {
	var slice discoveryv1.EndpointSlice
	if err := s.live.Get(ctx, key, &slice); err != nil {
		return client.IgnoreNotFound(err)
	}
	if slice.ResourceVersion != c.version {
		return nil
	}
	for i, was := range c.was {
		slice.Endpoints[i].Conditions = was
	}
	return goneOrChanged(s.client.Update(ctx, &slice, client.FieldOwner(homesOwner)))
}

// goneOrChanged: home wrote it, or took it away, at this moment.
func goneOrChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
