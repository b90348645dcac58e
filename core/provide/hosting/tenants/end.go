package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
)

const (
	endSlack  = 5 * time.Second  // and what the kubelet may take on top before force is used
	clearTime = 60 * time.Second // for the namespaces themselves to go
	pollEvery = 200 * time.Millisecond
	wakeAfter = 10 * time.Second // of a deletion; shorter grace periods than that need nobody's help
)

// annotationCleared on a twin that is being deleted says that nothing of Kith's is in it any more.
const annotationCleared = "kith.dev/cleared"

// EndContract takes the contract out of force for good, shuts the door to the consumer (unless another
// contract with it is in force) and clears away everything under it. It takes as long as the guests' grace
// periods do, 95 s at most, and may be called again, after a restart too, until it gives nil.
func (t *Tenants) EndContract(ctx context.Context, contract *v1alpha1.Contract) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("ending contract %s: %w", contract.Name, err)
		}
	}()
	contractID := contract.Spec.ID
	t.contracts.End(contractID)
	which := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelContract: contractID}
	mine, err := t.begin(ctx, which)
	if err != nil || len(mine) == 0 {
		return err
	}
	var left []string
	err = wait.PollUntilContextTimeout(ctx, pollEvery, guests.EndGrace+endSlack+clearTime, true, func(ctx context.Context) (bool, error) {
		var now corev1.NamespaceList
		if err := t.live.List(ctx, &now, which, grants.Recent()); err != nil {
			return false, err
		}
		left = left[:0]
		for i := range now.Items {
			if mine[now.Items[i].UID] {
				left = append(left, now.Items[i].Name)
			}
		}
		return len(left) == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil && len(left) > 0 {
		return fmt.Errorf("%d namespaces are still there, such as %s: something in them holds them back", len(left), left[0])
	}
	if err != nil {
		return fmt.Errorf("waiting for the end of the namespaces under contract %s: %w", contractID, err)
	}
	return nil
}

// ReleaseNamespace begins to clear the twin of home away, guests with their grace period, 35 s at most, first; that goes on by
// itself. It reports whether there is anything of it, and may be called again.
func (t *Tenants) ReleaseNamespace(ctx context.Context, contractID, home string) (there bool, err error) {
	begun, err := t.begin(ctx, client.MatchingLabels{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelContract: contractID, v1alpha1.LabelHomeNamespace: home,
	})
	return len(begun) > 0, err
}

// begin deletes the twin namespaces with these labels, and gives their UIDs. What the deletion needs besides, clearing does: it
// goes on by itself, after a restart too. A namespace that has the labels and is no twin is disowned at once.
func (t *Tenants) begin(ctx context.Context, which client.MatchingLabels) (map[types.UID]bool, error) {
	var list corev1.NamespaceList
	if err := t.live.List(ctx, &list, which); err != nil {
		return nil, fmt.Errorf("listing twin namespaces: %w", err)
	}
	var work errgroup.Group // not WithContext: one that hangs must not stop the others
	work.SetLimit(16)
	begun, errs := map[types.UID]bool{}, make([]error, len(list.Items))
	for i := range list.Items {
		ns := &list.Items[i]
		tw, ok := grants.TwinOf(ns)
		if !ok {
			work.Go(func() error { errs[i] = t.disown(ctx, ns); return nil })
			continue
		}
		begun[ns.UID] = true
		if !tw.Leaving {
			work.Go(func() error { errs[i] = t.delete(ctx, ns, tw); return nil })
		}
	}
	_ = work.Wait()
	return begun, errors.Join(errs...)
}

func (t *Tenants) delete(ctx context.Context, ns *corev1.Namespace, tw grants.Twin) error {
	err := t.client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting namespace %s: %w", ns.Name, err)
	}
	tw.Leaving, tw.Since = true, time.Now()
	t.contracts.Learn(tw)
	t.log.Info("twin namespace is cleared away", "namespace", ns.Name, "peer", ns.Labels[v1alpha1.LabelConsumerName])
	return nil
}

// disown takes what is the consumer's out of a namespace that has the labels of a twin and is none, or none any more because
// somebody edited them. The namespace itself is somebody else's.
func (t *Tenants) disown(ctx context.Context, ns *corev1.Namespace) error {
	t.log.Warn("a namespace has the labels of a twin and is none; it is left alone", "namespace", ns.Name)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: tenantRole}}
	if err := t.client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("shutting namespace %s: %w", ns.Name, err)
	}
	if err := t.clearPods(ctx, ns.Name); err != nil {
		return fmt.Errorf("ending guests in namespace %s: %w", ns.Name, err)
	}
	return nil
}

// Watch registers what clears namespaces away.
func (t *Tenants) Watch(mgr manager.Manager) error {
	// What ends in a namespace that is being deleted brings that further; most namespaces are not.
	inLeaving := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if !t.contracts.Twin(o.GetNamespace()).Leaving {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-clearing").
		For(&corev1.Namespace{}, builder.WithPredicates(guests.Managed(), beingDeleted())).
		Watches(guests.NewOffloaded(), inLeaving, builder.WithPredicates(guests.Updates(guests.OffloadedChanged))).
		Watches(&corev1.Pod{}, inLeaving, builder.WithPredicates(guests.Managed(), guests.Updates(guests.PodChanged))).
		WithOptions(guests.Workload()).Complete(reconcile.Func(t.clearing))
}

// beingDeleted lets through what is on its way out, until it is gone.
func beingDeleted() predicate.Predicate {
	leaving := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
	leaving.DeleteFunc = func(event.DeleteEvent) bool { return false }
	return leaving
}

// clearing helps twin namespaces that are being deleted to their end: it is asked whenever a guest in one goes.
func (t *Tenants) clearing(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := t.client.Get(ctx, req.NamespacedName, &ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	tw, ok := grants.TwinOf(&ns)
	if !ok || !tw.Leaving {
		return ctrl.Result{}, nil
	}
	since := time.Since(ns.DeletionTimestamp.Time)
	again, err := t.clearOnce(ctx, ns.Name, since)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("clearing namespace %s: %w", ns.Name, err)
	}
	if again == 0 {
		again, err = t.wake(ctx, &ns, since)
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// wake has the cluster look at a namespace again from which everything went. Its namespace controller, which does the rest, waits for
// half of the longest grace period that it has seen (pkg/controller/namespace in Kubernetes), however soon the pods end; a
// change of the namespace brings it back. It gives when to look again; 0 when nothing is left to do.
func (t *Tenants) wake(ctx context.Context, ns *corev1.Namespace, since time.Duration) (again time.Duration, err error) {
	if _, done := ns.Annotations[annotationCleared]; done {
		return 0, nil
	}
	if since < wakeAfter {
		return wakeAfter - since, nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, ns.UID, annotationCleared)
	err = t.client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("telling the namespace controller of %s: %w", ns.Name, err)
	}
	return 0, nil
}

// clearOnce does what can be done for a namespace that is being deleted for so long: its guests have their grace period, within
// bounds, and nobody's finalizers hold it back afterwards. It gives when to look again; 0 when nothing is left to do.
func (t *Tenants) clearOnce(ctx context.Context, namespace string, since time.Duration) (again time.Duration, err error) {
	rest, err := t.list(ctx, "OffloadedPodList", client.InNamespace(namespace))
	if err != nil {
		return 0, err
	}
	wanted := func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp.IsZero() }
	if slices.ContainsFunc(rest, wanted) {
		if err := t.client.DeleteAllOf(ctx, guests.NewOffloaded(), client.InNamespace(namespace)); err != nil { // theirs have the grace that was asked for
			return 0, err
		}
	}
	pods, err := t.list(ctx, "PodList", client.InNamespace(namespace), guests.Selector)
	if err != nil {
		return 0, err
	}
	// No guest is there any more, and no OffloadedPod that could still make one.
	quiet := len(pods) == 0 && !slices.ContainsFunc(rest, func(o metav1.PartialObjectMetadata) bool {
		return wanted(o) || slices.Contains(o.Finalizers, v1alpha1.FinalizerOffloadedPod)
	})
	if !quiet {
		if left := guests.EndGrace + endSlack - since; left > 0 {
			return left, nil
		}
		t.log.Warn("guests did not end in time, ending them by force", "namespace", namespace)
		if err := t.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), guests.Selector, client.GracePeriodSeconds(0)); err != nil {
			return 0, err
		}
		again = endSlack
	}
	for i := range rest {
		if len(rest[i].Finalizers) == 0 {
			continue
		}
		one := guests.NewOffloaded()
		one.SetNamespace(namespace)
		one.SetName(rest[i].Name)
		err := t.client.Patch(ctx, one, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			return 0, err
		}
	}
	return again, nil
}

// clearPods lets the guests end in their grace period, by the reconciler's hand, and makes an end of those
// that do not. Finalizers that a consumer put on its OffloadedPods hold nothing back.
func (t *Tenants) clearPods(ctx context.Context, namespace string) error {
	began := time.Now()
	return wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		since := time.Since(began)
		again, err := t.clearOnce(ctx, namespace, since)
		return again == 0 || since >= guests.EndGrace+endSlack, err
	})
}

func (t *Tenants) list(ctx context.Context, kind string, opts ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if kind == "PodList" {
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	}
	err := t.live.List(ctx, list, append(opts, grants.Recent())...)
	return list.Items, err
}
