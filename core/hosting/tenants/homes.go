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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
	queues "kith.dev/core/queue"
)

// Homes takes the endpoints that are at a consumer's home out of its services here while home is away, so that guests' requests
// go to those that answer, and gives them back when it is there again.
//
// EndpointSlices in twins are home's: it writes them whole. So there is no rule that is held up against it, but one write when
// home goes and one when it comes back, each only onto the version that is known here. What home writes in between, or has
// written by then, is its word and stays. What was changed is kept in memory: after a restart of this daemon home gives
// everything back itself, since it writes anew what it finds in another version than its own.
type Homes struct {
	client    client.Client
	live      client.Reader
	contracts *grants.Contracts
	// reach reports whether a consumer's pods can be reached, by an error when not; nil: nobody knows, and they cannot.
	reach func(ctx context.Context, consumerID string) error
	log   *slog.Logger

	mu     sync.Mutex
	queue  workqueue.TypedRateLimitingInterface[ctrl.Request] // nil before the manager runs
	told   map[string]home                                    // by compact ID
	marked map[string]map[types.NamespacedName]mark           // by compact ID
}

func NewHomes(mgr manager.Manager, contracts *grants.Contracts, log *slog.Logger) *Homes {
	return &Homes{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), contracts: contracts, log: log,
		told: map[string]home{}, marked: map[string]map[types.NamespacedName]mark{},
	}
}

// home is what was told of a consumer last.
type home struct {
	id    string // identity.ID.String
	away  bool
	since time.Time
	out   bool // its endpoints were taken out
}

// mark is what was changed in a slice: the version that was written, and the conditions before, by the endpoint's place.
type mark struct {
	version string
	was     map[int]discoveryv1.EndpointConditions
}

const (
	// awayAfter is how long a consumer must be away until its endpoints are touched: at the start nobody was asked yet.
	awayAfter = 3 * time.Second
	// reachAgain is how often a home is looked for whose daemon cannot be reached while its pods can; backAgain, while they
	// cannot either.
	reachAgain = 15 * time.Second
	backAgain  = time.Minute
)

// SetHome tells whether the consumer's daemon answers. It may be called as often as one likes.
func (s *Homes) SetHome(peer *v1alpha1.Peer, reachable bool) {
	if consumer, err := grants.ConsumerOf(peer); err == nil {
		s.set(consumer, !reachable)
	}
}

// ReachBy says how to find out whether a consumer's pods can be reached while its daemon cannot: where no connection to
// it can be made, the tunnel may be up. Call it before the manager starts.
func (s *Homes) ReachBy(reach func(ctx context.Context, consumerID string) error) { s.reach = reach }

func (s *Homes) set(consumer grants.Consumer, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, known := s.told[consumer.Compact]; known && was.away == away {
		return
	}
	s.told[consumer.Compact] = home{id: consumer.ID, away: away, since: time.Now()}
	if s.queue != nil {
		s.queue.Add(keyOfHome(consumer.Compact))
	}
}

func keyOfHome(compact string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: compact}}
}

func (s *Homes) Watch(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-homes").
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.queue = queue
			for compact := range s.told {
				queue.Add(keyOfHome(compact))
			}
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4, NewQueue: queues.New,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(reconcile.Func(s.reconcile))
}

func (s *Homes) look(compact string) home {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[compact]
}

func (s *Homes) reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	now := s.look(r.Name)
	if !now.away {
		return ctrl.Result{}, s.giveBack(ctx, r.Name)
	}
	if left := awayAfter - time.Since(now.since); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if s.reach != nil && s.reach(ctx, now.id) == nil {
		s.isOut(r.Name, false)
		return ctrl.Result{RequeueAfter: reachAgain}, s.giveBack(ctx, r.Name)
	}
	switch now = s.look(r.Name); {
	case !now.away: // it came back while it was looked for
		return ctrl.Result{}, s.giveBack(ctx, r.Name)
	case now.out:
		return ctrl.Result{RequeueAfter: backAgain}, nil
	}
	if err := s.takeOut(ctx, r.Name); err != nil {
		return ctrl.Result{}, err
	}
	s.isOut(r.Name, true)
	return ctrl.Result{RequeueAfter: backAgain}, nil
}

func (s *Homes) isOut(compact string, out bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, known := s.told[compact]; known && now.away {
		now.out = out
		s.told[compact] = now
	}
}

// takeOut has no endpoint at home ready, in any twin. After an error it goes on where it was.
func (s *Homes) takeOut(ctx context.Context, compact string) error {
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
		if !twins[slice.Namespace] || s.seen(compact, slice) {
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
		s.note(compact, client.ObjectKeyFromObject(slice), mark{slice.ResourceVersion, was})
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
		if !atHome || same(e.Conditions.Ready, now.Ready) && same(e.Conditions.Serving, now.Serving) {
			continue
		}
		was[i], e.Conditions = e.Conditions, now
	}
	return was
}

func same(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

// seen reports whether a slice is as it was left here.
func (s *Homes) seen(compact string, slice *discoveryv1.EndpointSlice) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marked[compact][client.ObjectKeyFromObject(slice)].version == slice.ResourceVersion
}

func (s *Homes) note(compact string, slice types.NamespacedName, m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marked[compact] == nil {
		s.marked[compact] = map[types.NamespacedName]mark{}
	}
	s.marked[compact][slice] = m
}

// giveBack puts the conditions back that takeOut changed, where home has not written since.
func (s *Homes) giveBack(ctx context.Context, compact string) error {
	s.mu.Lock()
	marked := s.marked[compact]
	delete(s.marked, compact)
	s.mu.Unlock()
	var errs []error
	for key, m := range marked {
		if err := s.giveOneBack(ctx, key, m); err != nil {
			errs = append(errs, err)
			s.note(compact, key, m)
		}
	}
	return errors.Join(errs...)
}

func (s *Homes) giveOneBack(ctx context.Context, key types.NamespacedName, m mark) error {
	var slice discoveryv1.EndpointSlice
	if err := s.live.Get(ctx, key, &slice); err != nil {
		return client.IgnoreNotFound(err)
	}
	if slice.ResourceVersion != m.version {
		return nil
	}
	for i, was := range m.was {
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
