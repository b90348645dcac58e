package hosting

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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/queue"
)

// workload is how many guests, and namespaces on their way out, are looked at side by side.
func workload() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 8,
		NewQueue:                queues.New,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](10*time.Millisecond, 30*time.Second),
	}
}

// watch registers what brings the reconciler to work: only changes that can change its mind.
func (r *reconciler) watch(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-pods").
		For(newOffloaded(), builder.WithPredicates(updates(wantedElse))).
		Watches(&corev1.Pod{}, &evictions{r: r}, builder.WithPredicates(managed(), updates(stoodElse))).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queue = queue
			return nil
		})).
		WithOptions(workload()).Complete(r)
}

// updates lets through what is new or gone, and updates that differ.
func updates(differ func(was, is client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld, e.ObjectNew) }}
}

func managed() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
	})
}

func specOrLabels(was, is client.Object) bool {
	return was.GetGeneration() != is.GetGeneration() || !maps.Equal(was.GetLabels(), is.GetLabels()) ||
		was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero()
}

// wantedElse: of OffloadedPods, anything but their status, which is our own word.
func wantedElse(was, is client.Object) bool {
	return specOrLabels(was, is) || was.GetUID() != is.GetUID() ||
		was.GetAnnotations()[v1alpha1.AnnotationGrace] != is.GetAnnotations()[v1alpha1.AnnotationGrace] ||
		slices.Contains(was.GetFinalizers(), v1alpha1.FinalizerOffloadedPod) && !slices.Contains(is.GetFinalizers(), v1alpha1.FinalizerOffloadedPod)
}

// stoodElse: of Pods, what changes their standing, and what they hold. Readiness, addresses, restarts do not.
func stoodElse(was, is client.Object) bool {
	a, b := was.(*corev1.Pod), is.(*corev1.Pod)
	return a.UID != b.UID || a.Status.Phase != b.Status.Phase ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(requestsOf(a), requestsOf(b))
}
