package guests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
)

// Binder gives guests their node while the cluster's scheduler is off. It binds no other pod, and moves none out of the way: guests are
// below all others.
type Binder struct {
	client client.Client
	event  func(about client.Object, kind, reason, note string, args ...any)
	log    *slog.Logger
	inbox  queues.Inbox

	on      atomic.Bool
	assumed map[types.UID]string // guests that were bound, to which node, and of which the cache does not know yet; of the one worker
}

// Binder is the one for the reconciler's guests.
func (r *Reconciler) Binder() *Binder {
	return &Binder{client: r.client, event: r.event, log: r.log, assumed: map[types.UID]string{}}
}

// SetBinding has guests bound here, or leaves them to the scheduler. Off, it lets go at once of what it has not begun; a guest cannot be
// bound twice, so nothing goes wrong while both are at work.
func (b *Binder) SetBinding(on bool) {
	if b.on.Swap(on) != on && on {
		b.inbox.Add(types.NamespacedName{})
	}
}

// Watch registers what brings the binder to work: whatever may leave a guest without a node, or make room for one.
func (b *Binder) Watch(mgr manager.Manager) error {
	one := Workload()
	one.MaxConcurrentReconciles = 1
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	on := predicate.NewPredicateFuncs(func(client.Object) bool { return b.on.Load() })
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-binding").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(on, predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return waiting(e.Object.(*corev1.Pod)) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				return waiting(is) && SpecOrLabels(was, is) || is.Spec.NodeName != "" && PodChanged(was, is)
			},
		})).
		Watches(&corev1.Node{}, all, builder.WithPredicates(on, Updates(roomChanged))).
		WatchesRawSource(&b.inbox).
		WithOptions(one).
		Complete(reconcile.Func(b.reconcile))
}

// waiting reports whether it is a guest that the scheduler would look for a node for.
func waiting(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	ours := pod.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && owner != nil && owner.Kind == "OffloadedPod"
	return ours && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !over(pod) && len(pod.Spec.SchedulingGates) == 0 &&
		cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName) == corev1.DefaultSchedulerName
}

// roomChanged: of nodes, what decides about who may run there.
func roomChanged(was, is client.Object) bool {
	a, b := was.(*corev1.Node), is.(*corev1.Node)
	return a.Spec.Unschedulable != b.Spec.Unschedulable || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(taintsOf(a), taintsOf(b)) || !equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// reconcile looks at all guests that wait, the oldest first: each takes the room of those after it.
func (b *Binder) reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !b.on.Load() {
		clear(b.assumed)
		return ctrl.Result{}, nil
	}
	var nodes corev1.NodeList
	if err := b.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("bind guests: read nodes: %w", err)
	}
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("bind guests: read pods: %w", err)
	}
	places, queue := b.survey(nodes.Items, pods.Items)
	var errs []error
	for _, pod := range queue {
		if !b.on.Load() {
			break
		}
		errs = append(errs, b.settle(ctx, pod, places)) // one that cannot be bound keeps no other back
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// settle binds one guest, or says why not.
func (b *Binder) settle(ctx context.Context, pod *corev1.Pod, places []*place) error {
	at, why := choose(pod, places)
	if at == nil {
		return b.unbound(ctx, pod, corev1.PodReasonUnschedulable, why)
	}
	err := b.bind(ctx, pod, at.node.Name)
	switch {
	case err == nil:
		at.take(pod)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, bound, or being deleted by now: the news of it is on its way
		return nil
	default:
		err = errors.Join(err, b.unbound(ctx, pod, corev1.PodReasonSchedulerError, err.Error()))
	}
	return err
}

// survey gives the nodes that guests run on with what is there, and the guests that wait.
func (b *Binder) survey(nodes []corev1.Node, pods []corev1.Pod) (places []*place, queue []*corev1.Pod) {
	by := map[string]*place{}
	for i := range nodes {
		if v1alpha1.Fenced(&nodes[i]) {
			by[nodes[i].Name] = &place{node: &nodes[i]}
		}
	}
	still := map[types.UID]string{}
	for i := range pods {
		pod := &pods[i]
		node := pod.Spec.NodeName
		if assumed := b.assumed[pod.UID]; node == "" && assumed != "" {
			node, still[pod.UID] = assumed, assumed
		}
		switch {
		case node != "" && by[node] != nil && !over(pod):
			by[node].take(pod)
		case node == "" && waiting(pod):
			queue = append(queue, pod)
		}
	}
	b.assumed = still
	for _, name := range slices.Sorted(maps.Keys(by)) {
		places = append(places, by[name])
	}
	slices.SortFunc(queue, func(x, y *corev1.Pod) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return places, queue
}

func (b *Binder) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	err := b.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
	if err != nil {
		return fmt.Errorf("bind guest %s/%s to node %s: %w", pod.Namespace, pod.Name, node, err)
	}
	b.assumed[pod.UID] = node
	b.event(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
}

// unbound says of a guest why it has no node, where the scheduler says it.
func (b *Binder) unbound(ctx context.Context, pod *corev1.Pod, reason, why string) error {
	next := pod.DeepCopy()
	i := slices.IndexFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i < 0 {
		next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled})
		i = len(next.Status.Conditions) - 1
	}
	c := &next.Status.Conditions[i]
	if c.Status == corev1.ConditionFalse && c.Reason == reason && c.Message == why {
		return nil
	}
	if c.Status != corev1.ConditionFalse {
		c.LastTransitionTime = metav1.Now()
	}
	c.Status, c.Reason, c.Message, c.ObservedGeneration = corev1.ConditionFalse, reason, why, pod.Generation
	if err := b.client.Status().Patch(ctx, next, client.StrategicMergeFrom(pod), client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("say why guest %s/%s has no node: %w", pod.Namespace, pod.Name, err))
	}
	b.log.Info("guest has no node", "namespace", pod.Namespace, "pod", pod.Name, "why", why)
	b.event(pod, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
	return nil
}
