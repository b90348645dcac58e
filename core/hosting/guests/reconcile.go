package guests

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
	"kith.dev/core/guestnet"
	"kith.dev/core/hosting/grants"
)

// Reconciler turns OffloadedPods into Pods and keeps those alive: it observes, has the rules decide, and applies. A Pod has its
// OffloadedPod's name, so one key names both.
type Reconciler struct {
	rules
	client    client.Client // writes, and reads of Pods from the cache
	cached    client.Reader // reads of OffloadedPods from the cache
	live      client.Reader
	contracts *grants.Contracts
	book      *grants.Book
	events    events.EventRecorder
	audits    *audit.Log
	log       *slog.Logger
	now       func() time.Time
	Heard     func() []any // events of guests, as far as they are followed; nil: they are not

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request] // nil until the controller runs
	started bool
	memos   map[types.NamespacedName]memo
	evicted map[types.NamespacedName]*corev1.Pod // guests that something here evicts, as they were last; made when the first is
	told    map[string]*rate.Limiter             // by namespace: what is said in events
}

// guests are the Pods that hosting made.
var Selector = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// memo is what the reconciler remembers of a pod; losing it costs a comparison or a live read, no more.
type memo struct {
	synced  int64     // generation that the Pod is known to be in step with
	uid     types.UID // of that Pod
	written string    // resource version of the OffloadedPod after our last write
	made    time.Time // when a Pod was last made
	remakes int       // since it last held out
	refused time.Time // by the API server, for a cause that may pass, first

	podVersion string // resource version of the Pod after our last change of it
}

func New(mgr manager.Manager, contracts *grants.Contracts, book *grants.Book, audits *audit.Log, log *slog.Logger) (*Reconciler, error) {
	checker, err := newChecker()
	return &Reconciler{
		client: mgr.GetClient(), cached: mgr.GetCache(), live: mgr.GetAPIReader(),
		contracts: contracts, book: book, rules: rules{checker: checker},
		events: mgr.GetEventRecorder("kith-hosting"), audits: audits, log: log, now: time.Now,
		memos: map[types.NamespacedName]memo{}, told: map[string]*rate.Limiter{},
	}, err
}

// Reconcile implements reconcile.Reconciler. That somebody wrote the object meanwhile is no error: it is looked at again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	if err := r.start(ctx); err != nil {
		return ctrl.Result{}, err
	}
	o, err := r.observe(ctx, req.NamespacedName)
	if err == nil {
		result, err = r.apply(ctx, o, r.decide(o))
		r.remember(o.key, o.memo)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return result, err
}

// observe gathers what decides about a guest.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (o *seen, err error) {
	o = &seen{key: key, now: r.now(), memo: r.memo(key), opod: &v1alpha1.OffloadedPod{}, terms: r.contracts.Look(key.Namespace)}
	if o.pod, err = guestIn(ctx, r.client, key); err != nil {
		return nil, err
	}
	raw := NewOffloaded()
	if err := r.cached.Get(ctx, key, raw); client.IgnoreNotFound(err) != nil {
		return nil, err
	} else if err == nil {
		o.raw = raw
		if o.behind = Older(raw.GetResourceVersion(), o.memo.written); o.behind {
			return o, nil
		}
		o.opod, o.malformed = typed(raw)
	}
	leaving := o.raw == nil || !o.opod.DeletionTimestamp.IsZero()
	if leaving {
		if o.pod, err = r.justMade(ctx, o); err != nil {
			return nil, err
		}
	}
	if o.terms == nil && o.raw != nil && o.opod.Status.Final == nil && !(leaving && o.pod == nil) { // else they do not matter
		if o.terms, err = r.contracts.OfNamespace(ctx, key.Namespace); err != nil {
			return nil, err
		}
	}
	o.home, o.last = r.contracts.Twin(key.Namespace).Home, r.lastEvicted(o)
	if o.pod != nil && unsaid(o.pod) {
		o.told = r.whyEvicted(o.pod)
	}
	return o, nil
}

// guestIn reads a Pod; one that Kith did not make is as good as not there.
func guestIn(ctx context.Context, from client.Reader, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := from.Get(ctx, key, pod); err != nil || pod.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// cacheLag is for how long after making a Pod its absence from the cache proves nothing.
const cacheLag = 10 * time.Second

// justMade looks for a Pod that was made a moment ago where it must be by now; the cache may not have it yet.
func (r *Reconciler) justMade(ctx context.Context, o *seen) (*corev1.Pod, error) {
	if o.pod != nil || o.now.Sub(o.memo.made) >= cacheLag {
		return o.pod, nil
	}
	return guestIn(ctx, r.live, o.key)
}

// start counts the guests there are before the first is admitted: else a new one could take the place of
// one that was not looked at yet. One that was lost while no daemon ran keeps its place too.
func (r *Reconciler) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return nil
	}
	if err := r.contracts.Load(ctx); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, Selector); err != nil {
		return fmt.Errorf("counting guests: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		t := r.contracts.Look(pod.Namespace)
		if t != nil && (!over(pod) || !final(pod)) {
			r.book.Enter(client.ObjectKeyFromObject(pod), t.Contract, requestsOf(pod))
		}
	}
	accepted := &unstructured.UnstructuredList{}
	accepted.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPodList"))
	if err := r.cached.List(ctx, accepted); err != nil {
		return fmt.Errorf("counting guests: %w", err)
	}
	for i := range accepted.Items {
		opod, malformed := typed(&accepted.Items[i])
		t := r.contracts.Look(opod.Namespace)
		if t != nil && malformed == nil && opod.Status.Phase == v1alpha1.OffloadedPodAccepted && opod.DeletionTimestamp.IsZero() {
			r.book.Enter(client.ObjectKeyFromObject(opod), t.Contract, requestsOf(podFor(opod, t)))
		}
	}
	r.started = true
	return nil
}

// over: none of its containers runs any more, or will.
func over(pod *corev1.Pod) bool {
	return v1alpha1.Ended(pod.Status.Phase)
}

func (r *Reconciler) memo(key types.NamespacedName) memo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memos[key]
}

func (r *Reconciler) remember(key types.NamespacedName, m memo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memos[key] = m; m == (memo{}) {
		delete(r.memos, key)
	}
}

// Wake has these looked at again soon.
func (r *Reconciler) Wake(keys []types.NamespacedName) {
	r.mu.Lock()
	queue := r.queue
	r.mu.Unlock()
	if queue == nil {
		return // all of them will be looked at when it starts
	}
	for _, key := range keys {
		queue.Add(ctrl.Request{NamespacedName: key})
	}
}

// ResolveBy has guests ask the resolver for names. Call it before the manager starts.
func (r *Reconciler) ResolveBy(resolver guestnet.Resolver) { r.resolver = resolver }
