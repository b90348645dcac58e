package guests

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/audit"
)

// Reconciler turns OffloadedPods into Pods and keeps those alive: it observes, has the rules decide, and applies. A Pod has its
// OffloadedPod's name, so one key names both.
type Reconciler struct {
	*rules
	client      client.Client // writes, and reads of Pods from the cache
	cached      client.Reader // reads of OffloadedPods from the cache
	live        client.Reader
	contracts   *grants.Contracts
	allocations *grants.Allocations
	events      events.EventRecorder
	audits      *audit.Log
	log         *slog.Logger
	now         func() time.Time
	PodEvents   func() []any // events of guests, as far as they are followed; nil: they are not
	inbox       queues.Inbox

	mu          sync.Mutex
	started     bool
	records     map[types.NamespacedName]record
	evicted     map[types.NamespacedName]*corev1.Pod // guests that something here evicts, as they were last
	eventLimits map[string]*rate.Limiter             // by namespace: what is said in events
	seeking     map[types.NamespacedName]struct{}    // guests that no node had room for

	making   sync.Mutex           // room, for one guest at a time
	reserved map[types.UID]string // guests that room was made for, on which node, and of which the cache does not know that yet
	yielded  map[types.UID]bool   // guests that made room, the same
}

// guests are the Pods that hosting made.
var Selector = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// record is what the reconciler remembers of a pod; losing it costs a comparison or a live read, no more.
type record struct {
	synced  int64     // generation that the Pod is known to be in step with
	uid     types.UID // of that Pod
	written string    // resource version of the OffloadedPod after our last write
	made    time.Time // when a Pod was last made
	remakes int       // since it last held out
	refused time.Time // by the API server, for a cause that may pass, first
	sought  time.Time // when it was last looked who could make room for it

	podVersion string // resource version of the Pod after our last change of it
}

func New(mgr manager.Manager, contracts *grants.Contracts, allocations *grants.Allocations, audits *audit.Log, log *slog.Logger) (*Reconciler, error) {
	rules, err := newRules()
	return &Reconciler{
		client: mgr.GetClient(), cached: mgr.GetCache(), live: mgr.GetAPIReader(),
		contracts: contracts, allocations: allocations, rules: rules,
		events: mgr.GetEventRecorder("kith-hosting"), audits: audits, log: log, now: time.Now,
		records: map[types.NamespacedName]record{}, evicted: map[types.NamespacedName]*corev1.Pod{}, eventLimits: map[string]*rate.Limiter{},
		seeking: map[types.NamespacedName]struct{}{}, reserved: map[types.UID]string{}, yielded: map[types.UID]bool{},
	}, err
}

// Reconcile implements reconcile.Reconciler. That somebody wrote the object meanwhile is no error: it is looked at again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	if err := r.start(ctx); err != nil {
		return ctrl.Result{}, err
	}
	o, err := r.observe(ctx, req.NamespacedName)
	if err == nil {
		r.seeks(o)
		result, err = r.apply(ctx, o, r.decide(o))
		r.remember(o.key, o.record)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return result, err
}

// observe gathers what decides about a guest.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (o *observed, err error) {
	o = &observed{key: key, now: r.now(), record: r.recordOf(key), opod: &v1alpha1.OffloadedPod{}, terms: r.contracts.TermsIn(key.Namespace)}
	if o.pod, err = guestIn(ctx, r.client, key); err != nil {
		return nil, err
	}
	raw := NewOffloaded()
	if err := r.cached.Get(ctx, key, raw); client.IgnoreNotFound(err) != nil {
		return nil, err
	} else if err == nil {
		o.raw = raw
		if o.behind = Older(raw.GetResourceVersion(), o.record.written); o.behind {
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
		if o.terms, err = r.contracts.ReadTermsIn(ctx, key.Namespace); err != nil {
			return nil, err
		}
	}
	o.beyond = o.pod != nil && o.terms.InForce(o.now) && o.terms.Evicts && r.allocations.Exceeds(o.terms.Contract, o.terms.Limit)
	o.twin = r.contracts.Twin(key.Namespace)
	o.home, o.last = cmp.Or(o.twin.OriginHome, o.twin.Home), r.lastEvicted(o)
	if o.pod != nil && unsaid(o.pod) {
		o.ended = r.whyEvicted(o.pod)
	}
	return o, r.lookAtNodes(ctx, o)
}

// lookAtNodes tells whether a Pod has a place here, and whether the one that is there has one where it should.
func (r *Reconciler) lookAtNodes(ctx context.Context, o *observed) error {
	switch {
	case leavesNodesOut(o):
		return nil
	case o.pod == nil:
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes, client.MatchingLabels{v1alpha1.LabelFenced: "true"}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("see which nodes take guests: %w", err)
		}
		o.fenced = slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return v1alpha1.Fenced(&n) })
	default:
		var node corev1.Node
		err := r.client.Get(ctx, types.NamespacedName{Name: o.pod.Spec.NodeName}, &node)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("see whether guests may run on node %s: %w", o.pod.Spec.NodeName, err)
		}
		o.beside = !v1alpha1.Fenced(&node) && !o.wentOn(&node) // as good as one that is gone
	}
	return nil
}

// wentOn reports whether a node is that of a provider to which the guest may go on, and not of somebody behind it.
func (o *observed) wentOn(node *corev1.Node) bool {
	peer := node.Labels[v1alpha1.LabelPeer]
	return peer != "" && node.Labels[v1alpha1.LabelBroker] == "" && o.terms != nil && slices.ContainsFunc(o.terms.MayGoOn(), func(to grants.OnwardTo) bool { return to.Peer == peer })
}

// leavesNodesOut: they do not matter to what is not to be made, has no node yet or has started.
func leavesNodesOut(o *observed) bool {
	if o.pod == nil {
		return o.raw == nil || !o.opod.DeletionTimestamp.IsZero() || o.opod.Status.Final != nil
	}
	return o.pod.Spec.NodeName == "" || !unstarted(o.pod)
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
func (r *Reconciler) justMade(ctx context.Context, o *observed) (*corev1.Pod, error) {
	if o.pod != nil || o.now.Sub(o.record.made) >= cacheLag {
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
		t := r.contracts.TermsIn(pod.Namespace)
		if t != nil && (!over(pod) || !final(pod)) {
			r.allocations.Enter(client.ObjectKeyFromObject(pod), t.Contract, pod.Annotations[v1alpha1.AnnotationVia], requestsOf(pod))
		}
	}
	accepted := &unstructured.UnstructuredList{}
	accepted.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPodList"))
	if err := r.cached.List(ctx, accepted); err != nil {
		return fmt.Errorf("counting guests: %w", err)
	}
	for i := range accepted.Items {
		opod, malformed := typed(&accepted.Items[i])
		t := r.contracts.TermsIn(opod.Namespace)
		if t != nil && malformed == nil && opod.Status.Phase == v1alpha1.OffloadedPodAccepted && opod.DeletionTimestamp.IsZero() {
			r.allocations.Enter(client.ObjectKeyFromObject(opod), t.Contract, via(opod), requestsOf(podFor(opod, t)))
		}
	}
	r.started = true
	return nil
}

// over: none of its containers runs any more, or will.
func over(pod *corev1.Pod) bool {
	return v1alpha1.Ended(pod.Status.Phase)
}

func (r *Reconciler) recordOf(key types.NamespacedName) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[key]
}

func (r *Reconciler) remember(key types.NamespacedName, m record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[key] = m; m == (record{}) {
		delete(r.records, key)
	}
}

// Wake queues these guests for another reconciliation.
func (r *Reconciler) Wake(keys []types.NamespacedName) { r.inbox.Add(keys...) }

// ResolveBy makes resolver the DNS server of guests. Call it before the manager starts.
func (r *Reconciler) ResolveBy(resolver guestnet.Resolver) { r.resolver = resolver }

type guestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// evictions queues a guest when its Pod changes. First it keeps the last state of a Pod that is evicted here: once the Pod is gone,
// nothing else distinguishes it from a lost Pod, which is recreated.
func (r *Reconciler) evictions() handler.Funcs {
	look := func(o client.Object, gone bool, queue guestQueue) {
		r.noteEviction(o, gone)
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{ // Create is also for what was there before this process
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue guestQueue) { look(e.Object, false, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue guestQueue) { look(e.ObjectNew, false, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue guestQueue) { look(e.Object, true, queue) },
	}
}

// noteEviction keeps an evicted Pod, if o is one, for lastEvicted. The DisruptionTarget condition alone does not count, since an
// eviction may still be refused: the Pod must be in deletion. gone: it is deleted, which without a grace period comes first.
func (r *Reconciler) noteEviction(o client.Object, gone bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp == nil && !gone || evictionOf(pod) == nil {
		return
	}
	key := client.ObjectKeyFromObject(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evicted[key] = pod
}

// lastEvicted is the last Pod of this OffloadedPod if it was evicted, else nil.
func (r *Reconciler) lastEvicted(o *observed) *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.evicted[o.key]; last != nil && metav1.IsControlledBy(last, o.opod) {
		return last
	}
	return nil
}

// whyEvicted is the reason from the Pod's condition, else from the kubelet's event, else a general one.
func (r *Reconciler) whyEvicted(pod *corev1.Pod) string {
	if c := disruption(pod); c != nil && c.Message != "" {
		return c.Message
	}
	why := "the kubelet ended the pod, for what it used or what its node lacks"
	if r.PodEvents == nil {
		return why
	}
	for _, o := range r.PodEvents() {
		if e, ok := o.(*corev1.Event); ok && e.Reason == reasonEvicted && e.InvolvedObject.UID == pod.UID {
			return e.Message
		}
	}
	return why
}

func (r *Reconciler) forgetEvicted(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.evicted, key)
}
