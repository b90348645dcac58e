package guests

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/provide/hosting/grants"
)

// Workload is how many guests, and namespaces on their way out, are looked at side by side.
func Workload() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 8,
		NewQueue:                queues.New,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](10*time.Millisecond, 30*time.Second),
	}
}

// Watch registers what brings the reconciler to work: only changes that can change its mind.
func (r *Reconciler) Watch(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-pods").
		For(NewOffloaded(), builder.WithPredicates(Updates(OffloadedChanged))).
		Watches(&corev1.Pod{}, r.evictions(), builder.WithPredicates(Managed(), Updates(PodChanged))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.seekers), builder.WithPredicates(r.sought(), Updates(PodChanged))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(Updates(fencedChanged))).
		WatchesRawSource(&r.inbox).
		WithOptions(Workload()).Complete(r)
}

// Updates lets through what is new or gone, and updates that differ.
func Updates(differ func(was, is client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld, e.ObjectNew) }}
}

// fencedChanged: of nodes, whether guests may run there.
func fencedChanged(was, is client.Object) bool {
	return v1alpha1.Fenced(was.(*corev1.Node)) != v1alpha1.Fenced(is.(*corev1.Node))
}

// ofNode are the guests that a node which takes guests, or does so no more, concerns: those that are refused for want of one, or have not started
// there.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) (all []reconcile.Request) {
	if v1alpha1.Fenced(o.(*corev1.Node)) {
		for key, refused := range r.allocations.RefusedPods() {
			if refused.No.Reason == grants.ReasonNotFenced {
				all = append(all, reconcile.Request{NamespacedName: key})
			}
		}
		return all
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, Selector, client.UnsafeDisableDeepCopy); err != nil { // of a cache that has not begun
		r.log.Warn("guests of a node that takes none any more are not known", "node", o.GetName(), "err", err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == o.GetName() && unstarted(pod) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return all
}

func Managed() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
	})
}

func SpecOrLabels(was, is client.Object) bool {
	return was.GetGeneration() != is.GetGeneration() || !maps.Equal(was.GetLabels(), is.GetLabels()) ||
		was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
}

// OffloadedChanged reports whether an OffloadedPod differs in anything but their status, which is our own word.
func OffloadedChanged(was, is client.Object) bool {
	return SpecOrLabels(was, is) || was.GetUID() != is.GetUID() ||
		was.GetAnnotations()[v1alpha1.AnnotationGrace] != is.GetAnnotations()[v1alpha1.AnnotationGrace] ||
		slices.Contains(was.GetFinalizers(), v1alpha1.FinalizerOffloadedPod) && !slices.Contains(is.GetFinalizers(), v1alpha1.FinalizerOffloadedPod)
}

// PodChanged reports whether a Pod differs in what changes its state, where it is or that it has no place, or what it holds. Readiness, addresses, restarts do not.
func PodChanged(was, is client.Object) bool {
	a, b := was.(*corev1.Pod), is.(*corev1.Pod)
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || a.Status.Phase != b.Status.Phase ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || unplaced(a) != unplaced(b) ||
		!equality.Semantic.DeepEqual(requestsOf(a), requestsOf(b))
}
