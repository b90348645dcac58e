package volumes

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
)

// annotationClaim on a claim behind another one names that, as "namespace/name".
const annotationClaim = "kith.dev/claim"

// waitingPause is until a claim says again why the one behind it has no volume. When that has one, it is looked at by itself.
const waitingPause = time.Minute

// isBehind reports whether a claim is one of those whose volumes stand for others'.
func isBehind(o client.Object) bool {
	return o.GetNamespace() == Namespace && o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && o.GetAnnotations()[annotationClaim] != ""
}

func hasNoVolume(o client.Object) bool {
	return o.(*corev1.PersistentVolumeClaim).Spec.VolumeName == ""
}

// inFront has the claim looked at that one behind it has a volume for.
func inFront(_ context.Context, back client.Object) []reconcile.Request {
	namespace, name, _ := strings.Cut(back.GetAnnotations()[annotationClaim], "/")
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// bound passes claims behind others that have their volume.
var bound = predicate.NewPredicateFuncs(func(o client.Object) bool {
	return isBehind(o) && o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
})

// watchBehind has claims behind others go with these.
func (c *Controller) watchBehind(mgr ctrl.Manager, options controller.Options) error {
	deleted := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return hasNoVolume(e.Object) },
	}
	behind := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: nameOf(o.(*corev1.PersistentVolumeClaim))}}}
	}
	waiting := predicate.NewPredicateFuncs(func(o client.Object) bool { return isBehind(o) && hasNoVolume(o) })
	return ctrl.NewControllerManagedBy(mgr).Named("kith-volumes-behind").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(waiting)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(behind), builder.WithPredicates(deleted)).
		WithOptions(options).Complete(reconcile.Func(c.orphan))
}

// orphan deletes a claim behind another that was deleted before there was a volume: nobody else would, and making it may have pods stand still, again
// and again. One that has a volume goes with that of the other.
func (c *Controller) orphan(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var back, claim corev1.PersistentVolumeClaim
	if err := c.fresh.Get(ctx, r.NamespacedName, &back); err != nil || !isBehind(&back) || !hasNoVolume(&back) || back.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	of := inFront(ctx, &back)[0]
	switch err := c.fresh.Get(ctx, of.NamespacedName, &claim); {
	case err == nil && nameOf(&claim) == back.Name:
		return ctrl.Result{}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("claim %s: %w", of, err)
	}
	err := c.client.Delete(ctx, &back, client.Preconditions{UID: &back.UID, ResourceVersion: &back.ResourceVersion}) // it may have one by now
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// sayWhy says on a claim why the one behind it has no volume yet.
func (c *Controller) sayWhy(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	var back corev1.PersistentVolumeClaim
	if err := c.fresh.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: nameOf(claim)}, &back); err != nil {
		return client.IgnoreNotFound(err)
	}
	var all corev1.EventList
	if err := c.fresh.List(ctx, &all, client.InNamespace(Namespace), client.MatchingFields{eventOf: string(back.UID)}); err != nil {
		return fmt.Errorf("events of claim %s/%s: %w", Namespace, back.Name, err)
	}
	var last *corev1.Event
	for i := range all.Items {
		e := &all.Items[i]
		if e.Reason == "ProvisioningFailed" && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	if last != nil {
		c.events.Eventf(claim, nil, corev1.EventTypeWarning, "ProvisioningFailed", "Provision", "no volume at %s yet: %s", node, last.Message)
	}
	return nil
}

// eventOf is the field of events that tells the object.
const eventOf = "involvedObject.uid"
