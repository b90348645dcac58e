package hosting

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
	"kith.dev/core/hosting/guests"
	queues "kith.dev/core/queue"
)

// watch registers what changes the terms, and what tells of their use.
func (h *Host) watch(mgr manager.Manager) error {
	// One key for all: whatever changed, everything is read again.
	anew := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err := ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-contracts").
		Watches(&v1alpha1.Contract{}, anew, builder.WithPredicates(guests.Updates(contractElse))).
		Watches(&v1alpha1.Peer{}, anew, builder.WithPredicates(guests.Updates(peerElse))).
		Watches(&v1alpha1.SharingPolicy{}, anew, builder.WithPredicates(guests.Updates(guests.SpecOrLabels))).
		Watches(&corev1.Node{}, anew, builder.WithPredicates(own(), guests.Updates(nodeElse))).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(h.reconcileContracts))
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return h.Contracts.Publish(ctx, h.client, h.Book) }))
}

// own nodes are those that guests run on.
func own() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelPeer] == "" })
}

// nodeElse: of nodes, whether guests can have user namespaces there. The engine says it some moments after it has started.
func nodeElse(was, is client.Object) bool {
	return was.GetAnnotations()[v1alpha1.AnnotationUserNamespaces] != is.GetAnnotations()[v1alpha1.AnnotationUserNamespaces]
}

func contractElse(was, is client.Object) bool {
	a, b := was.(*v1alpha1.Contract), is.(*v1alpha1.Contract)
	return guests.SpecOrLabels(was, is) || a.Status.State != b.Status.State
}

// peerElse: of Peers, also the ranges under which they are seen here.
func peerElse(was, is client.Object) bool {
	return guests.SpecOrLabels(was, is) || grants.AliasesOf(was.(*v1alpha1.Peer)) != grants.AliasesOf(is.(*v1alpha1.Peer))
}
