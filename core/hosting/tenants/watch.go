package tenants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/hosting/guests"
)

// Watch registers what clears namespaces away, and what tells of their guests' addresses.
func (t *Tenants) Watch(mgr manager.Manager) error {
	// What ends in a namespace that is being deleted brings that further; most namespaces are not.
	inLeaving := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if !t.contracts.Twin(o.GetNamespace()).Leaving {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-clearing").
		For(&corev1.Namespace{}, builder.WithPredicates(guests.Managed(), beingDeleted())).
		Watches(guests.NewOffloaded(), inLeaving, builder.WithPredicates(guests.Updates(guests.WantedElse))).
		Watches(&corev1.Pod{}, inLeaving, builder.WithPredicates(guests.Managed(), guests.Updates(guests.StoodElse))).
		WithOptions(guests.Workload()).Complete(reconcile.Func(t.clearing))
	if err != nil {
		return err
	}
	return t.watchGuests(mgr)
}

// beingDeleted lets through what is on its way out, until it is gone.
func beingDeleted() predicate.Predicate {
	leaving := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
	return predicate.Funcs{
		CreateFunc: leaving.Create, UpdateFunc: leaving.Update, GenericFunc: leaving.Generic,
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
