package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
)

// reconciler turns OffloadedPods into Pods and keeps those alive. A Pod has its OffloadedPod's name, so one
// key names both.
type reconciler struct {
	client    client.Client // writes, and reads of Pods from the cache
	cached    client.Reader // reads of OffloadedPods from the cache
	live      client.Reader
	contracts *contracts
	book      *book
	checker   *checker
	resolver  Resolver // set before the first pod
	events    events.EventRecorder
	audits    *audit.Log
	log       *slog.Logger
	now       func() time.Time
	class     string // RuntimeClass of guests, "" for none
	heard     shelf  // events of guests, as far as they are followed; nil: they are not

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request] // nil until the controller runs
	started bool
	memos   map[types.NamespacedName]memo
	evicted map[types.NamespacedName]*corev1.Pod // guests that something here evicts, as they were last; made when the first is
	told    map[string]*rate.Limiter             // by namespace: what is said in events
}

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

// one is an OffloadedPod in the hands of one Reconcile.
type one struct {
	raw  *unstructured.Unstructured // as read, or as the API server answered last
	opod *v1alpha1.OffloadedPod
	key  types.NamespacedName
	pod  *corev1.Pod // nil when there is none
}

// Reconcile implements reconcile.Reconciler. That somebody wrote the object meanwhile is no error: it is looked at again.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return result, err
}

func (r *reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.start(ctx); err != nil {
		return ctrl.Result{}, err
	}
	pod, err := r.guest(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.count(pod)
	raw := newOffloaded()
	if err := r.cached.Get(ctx, req.NamespacedName, raw); apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.orphan(ctx, req.NamespacedName, pod)
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if r.behind(req.NamespacedName, raw) {
		return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil
	}
	opod, malformed := typed(raw)
	o := &one{raw: raw, opod: opod, key: req.NamespacedName, pod: pod}

	switch how := standingOf(opod, pod); {
	case !opod.DeletionTimestamp.IsZero():
		return r.leave(ctx, o, how)
	case opod.Status.Phase == v1alpha1.OffloadedPodSucceeded, opod.Status.Phase == v1alpha1.OffloadedPodFailed:
		r.release(o.key, o.pod)
		return ctrl.Result{}, nil
	case how == ended, how == evicted:
		return ctrl.Result{}, r.finish(ctx, o, how)
	case how == absent && r.evictedLast(o):
		if how = standingOf(opod, o.pod); how != ended {
			how = evicted
		}
		return ctrl.Result{}, r.finish(ctx, o, how)
	case how == leaving:
		return ctrl.Result{}, nil // the Pod's end brings us back
	case how == stale:
		return ctrl.Result{}, r.deleteLeft(ctx, pod)
	case how == lost:
		r.log.Info("guest lost, making it again", "namespace", pod.Namespace, "pod", pod.Name, "reason", pod.Status.Reason)
		return ctrl.Result{}, r.delete(ctx, pod, nil)
	case how == foreign:
		return r.refuse(ctx, o, "", refused(reasonNameTaken, "a Pod %s that Kith did not make is in namespace %s", o.key.Name, o.key.Namespace))
	case malformed != nil:
		return r.refuse(ctx, o, "", malformed)
	case how == alive && r.outside(pod):
		return ctrl.Result{}, r.expel(ctx, o)
	case how == alive:
		if older(pod.ResourceVersion, r.memo(o.key).podVersion) {
			return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil
		}
		return ctrl.Result{}, r.keep(ctx, o)
	default:
		return r.make(ctx, o)
	}
}

// start counts the guests there are before the first is admitted: else a new one could take the place of
// one that was not looked at yet. One that was lost while no daemon ran keeps its place too.
func (r *reconciler) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return nil
	}
	if err := r.contracts.load(ctx); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, guests); err != nil {
		return fmt.Errorf("counting guests: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		t := r.contracts.look(pod.Namespace)
		if t != nil && (!over(pod) || !final(pod)) {
			r.book.enter(client.ObjectKeyFromObject(pod), t.contract, requestsOf(pod))
		}
	}
	accepted := &unstructured.UnstructuredList{}
	accepted.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("OffloadedPodList"))
	if err := r.cached.List(ctx, accepted); err != nil {
		return fmt.Errorf("counting guests: %w", err)
	}
	for i := range accepted.Items {
		opod, malformed := typed(&accepted.Items[i])
		t := r.contracts.look(opod.Namespace)
		if t != nil && malformed == nil && opod.Status.Phase == v1alpha1.OffloadedPodAccepted && opod.DeletionTimestamp.IsZero() {
			r.book.enter(client.ObjectKeyFromObject(opod), t.contract, requestsOf(podFor(opod, t)))
		}
	}
	r.started = true
	return nil
}

// guest reads the Pod; one that Kith did not make is as good as not there.
func (r *reconciler) guest(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key, pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if pod.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil, nil
	}
	return pod, nil
}

// orphan: an OffloadedPod that is gone for good takes its Pod along. The garbage collector does the same,
// where one runs. It keeps its place under the contract until it is gone: a consumer that takes the finalizer off and
// leaves a Pod with a long grace period behind has one more otherwise.
func (r *reconciler) orphan(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
	r.book.settle(key)
	pod, err := r.justMade(ctx, key, pod)
	if err != nil {
		return err
	}
	if pod != nil && standingOf(&v1alpha1.OffloadedPod{}, pod) == stale {
		return r.deleteLeft(ctx, pod)
	}
	r.release(key, nil)
	r.forget(key)
	return nil
}

// justMade looks for a Pod that was made a moment ago where it must be by now; the cache may not have it yet.
func (r *reconciler) justMade(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) (*corev1.Pod, error) {
	if pod != nil || r.now().Sub(r.memo(key).made) >= cacheLag {
		return pod, nil
	}
	var live corev1.Pod
	if err := r.live.Get(ctx, key, &live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if live.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil, nil
	}
	return &live, nil
}

// count sees to it that a Pod which is there has its place in the book, whatever its OffloadedPod became.
func (r *reconciler) count(pod *corev1.Pod) {
	if pod == nil || over(pod) {
		return
	}
	if t := r.contracts.look(pod.Namespace); t != nil {
		r.book.enter(client.ObjectKeyFromObject(pod), t.contract, requestsOf(pod))
	}
}

// over: none of its containers runs any more, or will.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// deleteLeft deletes a Pod that no OffloadedPod stands for, in endGrace at most.
func (r *reconciler) deleteLeft(ctx context.Context, pod *corev1.Pod) error {
	most := int64(endGrace / time.Second)
	if running := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && (running == nil || *running <= most) {
		return nil
	}
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil && *own < most {
		most = *own
	}
	return r.delete(ctx, pod, &most)
}

// keep holds a living Pod in step with its template.
func (r *reconciler) keep(ctx context.Context, o *one) error {
	m := r.memo(o.key)
	r.wake(r.book.correct(o.key, requestsOf(o.pod)))
	status := &o.opod.Status
	if m.uid == o.pod.UID && m.synced == o.opod.Generation && status.PodUID == o.pod.UID && status.Phase == v1alpha1.OffloadedPodAccepted {
		return nil
	}
	t, err := r.contracts.ofNamespace(ctx, o.key.Namespace)
	if err != nil || t == nil {
		return err
	}
	r.book.enter(o.key, t.contract, requestsOf(o.pod))
	if err := r.hold(ctx, o); err != nil {
		return client.IgnoreNotFound(err) // gone: the news of that is on its way
	}
	refused, err := r.adjust(ctx, o, t)
	if err != nil {
		return err
	}
	if err := r.accepted(ctx, o, refused); err != nil {
		return err
	}
	if len(refused) > 0 {
		return nil // it is looked at again when there is room, or other terms
	}
	m = r.memo(o.key)
	m.uid, m.synced = o.pod.UID, o.opod.Generation
	r.remember(o.key, m)
	return nil
}

// adjust brings over what may change in a running pod, and tells of what may not. What is refused, it gives.
func (r *reconciler) adjust(ctx context.Context, o *one, t *terms) (refused []metav1.Condition, err error) {
	want := podFor(o.opod, t)
	if no := keepImages(want, o.pod, t.images); no != nil {
		r.event(o.pod, corev1.EventTypeWarning, "NotChanged", "a running pod keeps its image: %s", no.message)
	}
	next := o.pod.DeepCopy()
	changed, cannot := syncInPlace(next, want)
	if len(cannot) > 0 {
		r.event(o.pod, corev1.EventTypeWarning, "NotChanged", "a running pod keeps its %v", cannot)
	}
	if changed {
		err := r.client.Patch(ctx, next, client.StrategicMergeFrom(o.pod), client.FieldOwner(v1alpha1.ManagedBy))
		switch {
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			r.event(o.pod, corev1.EventTypeWarning, "NotChanged", "%v", err)
		case err != nil:
			return nil, client.IgnoreNotFound(err)
		default:
			r.changed(o, next)
		}
	}
	resize, err := r.resize(ctx, o, t, want)
	if err != nil {
		return nil, err
	}
	debug, err := r.debug(ctx, o, t)
	if err != nil {
		return nil, err
	}
	if resize == nil && debug != nil { // other terms may allow it
		r.book.wait(o.key, waiter{t.contract, refusal{debug.Reason, debug.Message}, true})
	}
	for _, c := range []*metav1.Condition{resize, debug} {
		if c != nil {
			refused = append(refused, *c)
		}
	}
	return refused, nil
}

// finish records the end of a pod that ended for good. Its Pod may be cleared away from now on. One that was evicted has failed,
// however its containers ended, as a pod has that a kubelet evicts.
func (r *reconciler) finish(ctx context.Context, o *one, how standing) error {
	status, final := o.opod.Status, o.pod.Status.DeepCopy()
	switch {
	case how == evicted:
		final.Phase, final.Reason, final.Message = corev1.PodFailed, reasonEvicted, cut(evictionOf(o.pod).Message, 1024)
	case unsaid(o.pod):
		final.Phase, final.Reason, final.Message = corev1.PodFailed, reasonEvicted, cut(r.whyEvicted(o.pod), 1024)
	}
	status.Phase = v1alpha1.OffloadedPodSucceeded
	if final.Phase == corev1.PodFailed {
		status.Phase = v1alpha1.OffloadedPodFailed
	}
	status.Reason, status.Message, status.Final = final.Reason, final.Message, final
	countPod(&status, o.pod.UID)
	if err := r.writeStatus(ctx, o, status); err != nil {
		return err
	}
	if how == evicted { // a kubelet says so itself
		r.log.Info("guest evicted", "namespace", o.key.Namespace, "pod", o.key.Name, "why", final.Message)
		r.event(o.pod, corev1.EventTypeWarning, reasonEvicted, "%s", final.Message)
	}
	r.release(o.key, nil)
	return nil
}

// behind: the cache does not have what we wrote ourselves yet. To go by it would mean to write that once more.
func (r *reconciler) behind(key types.NamespacedName, raw *unstructured.Unstructured) bool {
	return older(raw.GetResourceVersion(), r.memo(key).written)
}

// older says whether version a is before b; nothing is before "".
func older(a, b string) bool {
	if b == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// wrote notes the version that o has after a write of ours.
func (r *reconciler) wrote(o *one) {
	m := r.memo(o.key)
	m.written = o.raw.GetResourceVersion()
	r.remember(o.key, m)
}

func (r *reconciler) memo(key types.NamespacedName) memo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memos[key]
}

func (r *reconciler) remember(key types.NamespacedName, m memo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memos[key] = m
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memos, key)
	delete(r.evicted, key)
}

// release frees the pod's place and has those tried again that wait for one; not while a Pod of that name runs, whose
// end brings us back.
func (r *reconciler) release(key types.NamespacedName, pod *corev1.Pod) {
	if pod == nil || over(pod) {
		r.wake(r.book.release(key))
	}
}

// wake has these looked at again soon.
func (r *reconciler) wake(keys []types.NamespacedName) {
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
