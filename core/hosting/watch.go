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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/queue"
)

const workers = 8

// watch registers what brings the reconcilers to work: only changes that can change their minds.
func (h *Host) watch(mgr manager.Manager) error {
	options := controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue:                queues.New,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](10*time.Millisecond, 30*time.Second),
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-pods").
		For(newOffloaded(), builder.WithPredicates(updates(wantedElse))).
		Watches(&corev1.Pod{}, &evictions{r: h.reconciler}, builder.WithPredicates(managed(), updates(stoodElse))).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			h.reconciler.mu.Lock()
			defer h.reconciler.mu.Unlock()
			h.reconciler.queue = queue
			return nil
		})).
		WithOptions(options).Complete(h.reconciler)
	if err != nil {
		return err
	}
	// One key for all: whatever changed, everything is read again.
	anew := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err = ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-contracts").
		Watches(&v1alpha1.Contract{}, anew, builder.WithPredicates(updates(contractElse))).
		Watches(&v1alpha1.Peer{}, anew, builder.WithPredicates(updates(peerElse))).
		Watches(&v1alpha1.SharingPolicy{}, anew, builder.WithPredicates(updates(specOrLabels))).
		Watches(&corev1.Node{}, anew, builder.WithPredicates(own(), updates(nodeElse))).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(h.reconcileContracts))
	if err != nil {
		return err
	}
	// What ends in a namespace that is being deleted brings that further; most namespaces are not.
	inLeaving := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if !h.contracts.leaving(o.GetNamespace()) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	err = ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-clearing").
		For(&corev1.Namespace{}, builder.WithPredicates(managed(), beingDeleted())).
		Watches(newOffloaded(), inLeaving, builder.WithPredicates(updates(wantedElse))).
		Watches(&corev1.Pod{}, inLeaving, builder.WithPredicates(managed(), updates(stoodElse))).
		WithOptions(options).Complete(reconcile.Func(h.tenants.clearing))
	if err != nil {
		return err
	}
	if err := h.watchGuests(mgr); err != nil {
		return err
	}
	if err := h.homes.watch(mgr); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(h.publish))
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

// beingDeleted lets through what is on its way out, until it is gone.
func beingDeleted() predicate.Predicate {
	leaving := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
	return predicate.Funcs{
		CreateFunc: leaving.Create, UpdateFunc: leaving.Update, GenericFunc: leaving.Generic,
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// own nodes are those that guests run on.
func own() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelPeer] == "" })
}

// nodeElse: of nodes, whether guests can have user namespaces there. The engine says it some moments after it has started.
func nodeElse(was, is client.Object) bool {
	return was.GetAnnotations()[v1alpha1.AnnotationUserNamespaces] != is.GetAnnotations()[v1alpha1.AnnotationUserNamespaces]
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

func contractElse(was, is client.Object) bool {
	a, b := was.(*v1alpha1.Contract), is.(*v1alpha1.Contract)
	return specOrLabels(was, is) || a.Status.State != b.Status.State
}

// peerElse: of Peers, also the ranges under which they are seen here.
func peerElse(was, is client.Object) bool {
	return specOrLabels(was, is) || aliasesOf(was.(*v1alpha1.Peer)) != aliasesOf(is.(*v1alpha1.Peer))
}
