package custom

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

const (
	// lookAgain is when policies are looked at again of which home has not all kinds.
	lookAgain = 30 * time.Second
	// showEach is how often refusals are shown at most.
	showEach = time.Second
	// maxShown refusals stand in a status.
	maxShown = 64
)

// refused is a no, of home or of a peer.
type refused struct {
	policy, peer, kind string
	reason             Reason
	why                string
	objects            int
}

// Home is this cluster: its policies, and the objects that they name.
type Home struct {
	client  client.Client
	dynamic dynamic.Interface
	log     *slog.Logger
	shows   queue.Inbox
	showing atomic.Bool // soon

	mu      sync.Mutex
	rules   []*rule
	own     []refused // of home
	watched map[Kind]*watched
	peers   map[*Peer]bool
	holders map[object]map[string]bool // which peers have an object
}

// object is one at home.
type object struct{ kind, namespace, name string }

// watched is a kind whose objects are known.
type watched struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
}

// NewHome watches the policies, and the objects that they name, while mgr runs.
func NewHome(mgr manager.Manager, log *slog.Logger) (*Home, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	objects, err := dynamic.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for custom resources: %w", err)
	}
	h := newHome(mgr.GetClient(), objects, log)
	anew := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err = ctrl.NewControllerManagedBy(mgr).Named("reflection-policies").
		WatchesRawSource(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.ReflectionPolicy{}), anew, predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(reconcile.Func(h.reconcile))
	if err != nil {
		return nil, fmt.Errorf("reflection policies: %w", err)
	}
	return h, ctrl.NewControllerManagedBy(mgr).Named("reflection-refusals").WatchesRawSource(&h.shows).
		WithOptions(controller.Options{NewQueue: queue.New}).Complete(reconcile.Func(h.show))
}

func newHome(c client.Client, objects dynamic.Interface, log *slog.Logger) *Home {
	return &Home{
		client: c, dynamic: objects, log: log, watched: map[Kind]*watched{}, peers: map[*Peer]bool{}, holders: map[object]map[string]bool{},
	}
}

// reconcile reads the policies, and watches what they name.
func (h *Home) reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var policies v1alpha1.ReflectionPolicyList
	if err := h.client.List(ctx, &policies); err != nil {
		return ctrl.Result{}, err
	}
	list, no, err := rules(ctx, h.dynamic, policies.Items)
	if err != nil {
		return ctrl.Result{}, err
	}
	h.set(list, no)
	if len(no) > 0 {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return ctrl.Result{}, nil
}

// set has the rules be these.
func (h *Home) set(list []*rule, no []refused) {
	h.mu.Lock()
	changed := !slices.EqualFunc(h.rules, list, (*rule).same)
	h.own = no
	if changed {
		h.rules = list
		wanted := map[Kind]bool{}
		for _, r := range list {
			wanted[r.Kind] = true
			if h.watched[r.Kind] == nil {
				h.watched[r.Kind] = h.watch(r.Kind)
			}
		}
		for k, w := range h.watched {
			if !wanted[k] {
				w.stop()
				delete(h.watched, k)
			}
		}
	}
	peers := slices.Collect(maps.Keys(h.peers))
	h.mu.Unlock()
	if changed {
		for _, p := range peers {
			p.renew()
		}
	}
	h.showSoon()
}

// watch begins to know the objects of a kind.
func (h *Home) watch(k Kind) *watched {
	w := &watched{informer: dynamicinformer.NewFilteredDynamicInformer(h.dynamic, k.GVR(), metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()}
	_ = w.informer.SetTransform(func(o any) (any, error) {
		if object, err := meta.Accessor(o); err == nil {
			object.SetManagedFields(nil)
		}
		return o, nil
	})
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go w.informer.RunWithContext(ctx)
	return w
}

// forPeer gives the rules that are meant for a peer, with what is known of their objects.
func (h *Home) forPeer(name string) (list []*rule, objects []cache.SharedIndexInformer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rules {
		if r.goesTo(name) {
			list, objects = append(list, r), append(objects, h.watched[r.Kind].informer)
		}
	}
	return list, objects
}

// hold notes whether a peer has an object, and reports whether its status is the one that counts: that of the first, by name, which has it.
func (h *Home) hold(o object, peer string, has bool) (counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.holders[o]
	if has {
		if all == nil {
			all = map[string]bool{}
			h.holders[o] = all
		}
		all[peer] = true
	} else if delete(all, peer); len(all) == 0 {
		delete(h.holders, o)
	}
	return has && slices.Min(slices.Collect(maps.Keys(all))) == peer
}

// writeStatus writes what a peer says of an object's status, at its pace.
func (h *Home) writeStatus(ctx context.Context, r *rule, o *unstructured.Unstructured, s State, pace *rate.Limiter) error {
	is, err := status(s.Status, s.Generation, o.GetGeneration())
	if err != nil {
		return fmt.Errorf("the status that came of %s %s/%s: %w", r.Name(), o.GetNamespace(), o.GetName(), err)
	}
	if was, _ := o.Object["status"].(map[string]any); is == nil || equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	if err := pace.Wait(ctx); err != nil {
		return err
	}
	next := o.DeepCopy()
	next.Object["status"] = is
	objects := h.dynamic.Resource(r.GVR()).Namespace(o.GetNamespace())
	if r.subresource {
		_, err = objects.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: fieldOwner})
	} else {
		_, err = objects.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldOwner})
	}
	return client.IgnoreNotFound(err)
}

const fieldOwner = "kith-custom"

// showSoon has refusals shown, all that come within a moment at once.
func (h *Home) showSoon() {
	if h.showing.CompareAndSwap(false, true) {
		time.AfterFunc(showEach, func() {
			h.showing.Store(false)
			h.shows.Add(client.ObjectKey{})
		})
	}
}

// show writes refusals into the policies.
func (h *Home) show(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	h.mu.Lock()
	all := slices.Clone(h.own)
	for p := range h.peers {
		all = append(all, p.refusals()...)
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b refused) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.peer, b.peer), cmp.Compare(a.objects, b.objects), strings.Compare(string(a.reason), string(b.reason)))
	})
	var policies v1alpha1.ReflectionPolicyList
	if err := h.client.List(ctx, &policies); err != nil {
		return ctrl.Result{}, err
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		before := p.DeepCopy()
		p.Status.Refusals = nil
		for _, r := range all {
			if r.policy == p.Name && len(p.Status.Refusals) < maxShown {
				p.Status.Refusals = append(p.Status.Refusals, v1alpha1.ReflectionRefusal{Peer: r.peer, Kind: r.kind, Reason: string(r.reason), Message: r.why, Objects: int32(r.objects)})
			}
		}
		if equality.Semantic.DeepEqual(before.Status, p.Status) {
			continue
		}
		if err := client.IgnoreNotFound(h.client.Status().Patch(ctx, p, client.MergeFrom(before))); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// letGo forgets what a peer has.
func (h *Home) letGo(peer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o, all := range h.holders {
		if delete(all, peer); len(all) == 0 {
			delete(h.holders, o)
		}
	}
}
