package volumes

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/trust/contract"
)

// ofConsumer are what labels of a volume say whose it is.
var ofConsumer = []string{
	v1alpha1.LabelManagedBy, v1alpha1.LabelConsumer, v1alpha1.LabelConsumerName, v1alpha1.LabelContract, v1alpha1.LabelHomeNamespace, v1alpha1.LabelHomeClaim,
}

// Watch registers what notes whose the volumes are, and what becomes of them when their claims are gone.
func (c *Claims) Watch(mgr manager.Manager) error {
	guests := predicate.NewPredicateFuncs(func(o client.Object) bool {
		v, ok := o.(*corev1.PersistentVolume)
		return ok && ofGuests(v)
	})
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	if err := ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-snapshots").
		Watches(&v1alpha1.Contract{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*v1alpha1.Contract), e.ObjectNew.(*v1alpha1.Contract)
			return was.Generation != is.Generation || was.Status.State != is.Status.State || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil)
		}})).
		Watches(&v1alpha1.Peer{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})). // the first that is read
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			again, err := c.keepSnapshots(ctx)
			return ctrl.Result{RequeueAfter: again}, err
		})); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-volumes").
		For(&corev1.PersistentVolume{}, builder.WithPredicates(guests)).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(c.under), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(c.reconcile))
}

// ofGuests reports whether a volume was made for a guest.
func ofGuests(v *corev1.PersistentVolume) bool {
	_, is := v1alpha1.ClassOfGuests(v.Spec.StorageClassName)
	return is
}

// under are the volumes of the peer that a contract is with: the next one may say otherwise how long they are kept.
func (c *Claims) under(ctx context.Context, o client.Object) (all []reconcile.Request) {
	var volumes corev1.PersistentVolumeList
	if c.client.List(ctx, &volumes, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}) != nil {
		return nil
	}
	for i := range volumes.Items {
		if of := c.contracts.Twin(claimNamespace(&volumes.Items[i])); of.Contract == o.(*v1alpha1.Contract).Spec.ID {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&volumes.Items[i])})
		}
	}
	return all
}

// claimNamespace is where the claim of a volume is; "" without one.
func claimNamespace(v *corev1.PersistentVolume) string {
	if v.Spec.ClaimRef == nil {
		return ""
	}
	return v.Spec.ClaimRef.Namespace
}

// keepsFor is how long the volumes of claims under a contract are kept after its end; false when there is no such contract here.
func (c *Claims) keepsFor(ctx context.Context, id string) (time.Duration, bool, error) {
	var contracts v1alpha1.ContractList
	if err := c.client.List(ctx, &contracts); err != nil {
		return 0, false, fmt.Errorf("looking how long volumes are kept: %w", err)
	}
	for i := range contracts.Items {
		if ctr := &contracts.Items[i]; ctr.Spec.ID == id && ctr.Spec.Role == v1alpha1.RoleProvider {
			return record.Keeps(ctr), true, nil
		}
	}
	return 0, false, nil
}

func (c *Claims) reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var v corev1.PersistentVolume
	if err := c.client.Get(ctx, r.NamespacedName, &v); err != nil || v.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch v.Status.Phase {
	case corev1.VolumeBound:
		return ctrl.Result{}, c.label(ctx, &v)
	case corev1.VolumeReleased:
		return c.keep(ctx, &v)
	}
	return ctrl.Result{}, nil
}

// label notes on a volume whose it is, so that it is known when the claim is gone.
func (c *Claims) label(ctx context.Context, v *corev1.PersistentVolume) error {
	var claim corev1.PersistentVolumeClaim
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}, &claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if claim.UID != v.Spec.ClaimRef.UID || claim.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || claim.Labels[v1alpha1.LabelHomeClaim] == "" {
		return nil
	}
	next := v.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	for _, key := range ofConsumer {
		next.Labels[key] = claim.Labels[key]
	}
	next.Annotations[v1alpha1.AnnotationHomeClaim] = claim.Annotations[v1alpha1.AnnotationHomeClaim]
	delete(next.Annotations, v1alpha1.AnnotationKeptUntil)
	keep, known, err := c.keepsFor(ctx, c.contracts.Twin(claim.Namespace).Contract)
	if err != nil {
		return err
	}
	if known {
		next.Annotations[v1alpha1.AnnotationKeepFor] = keep.String()
	}
	if !maps.Equal(v.Labels, next.Labels) || !maps.Equal(v.Annotations, next.Annotations) {
		if err := c.client.Patch(ctx, next, client.MergeFrom(v)); err != nil {
			return fmt.Errorf("noting whose volume %s is: %w", v.Name, err)
		}
	}
	return c.count(ctx, claim.Labels[v1alpha1.LabelConsumer], c.contracts.Twin(claim.Namespace).Contract)
}

// keep waits until the time of a volume is over that nobody has any more.
func (c *Claims) keep(ctx context.Context, v *corev1.PersistentVolume) (ctrl.Result, error) {
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || v.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return ctrl.Result{}, nil // it goes already, or somebody else decides
	}
	until, err := time.Parse(time.RFC3339, v.Annotations[v1alpha1.AnnotationKeptUntil])
	if err != nil {
		until = time.Now().Add(keptFor(v)).Truncate(time.Second)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationKeptUntil, until.UTC().Format(time.RFC3339))
		if err := c.client.Patch(ctx, v, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		c.log.Info("the claim of a guest's volume is gone; the data is kept", "volume", v.Name, "peer", v.Labels[v1alpha1.LabelConsumerName],
			"claim", v.Annotations[v1alpha1.AnnotationHomeClaim], "until", until)
		if err := c.count(ctx, v.Labels[v1alpha1.LabelConsumer], v.Labels[v1alpha1.LabelContract]); err != nil {
			return ctrl.Result{}, err
		}
	}
	if left := time.Until(until); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	c.log.Info("a guest's volume was kept long enough; it is deleted", "volume", v.Name, "peer", v.Labels[v1alpha1.LabelConsumerName], "claim", v.Annotations[v1alpha1.AnnotationHomeClaim])
	return ctrl.Result{}, c.release(ctx, v.Name)
}

// keptFor is how long a volume is kept from now on: as its contract had it. One that is noted by an older Kith has none.
func keptFor(v metav1.Object) time.Duration {
	d, err := time.ParseDuration(v.GetAnnotations()[v1alpha1.AnnotationKeepFor])
	if err != nil {
		return contract.DefaultKeep
	}
	return min(max(d, contract.MinKeep), contract.MaxKeep)
}

// kept finds the volume that is kept of a claim; nil when there is none.
func (c *Claims) kept(ctx context.Context, consumer, home, name string, uid types.UID) (*corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	if err := c.live.List(ctx, &volumes, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: consumer, v1alpha1.LabelHomeClaim: string(uid)}); err != nil {
		return nil, fmt.Errorf("looking for a volume of claim %s: %w", name, err)
	}
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if v.DeletionTimestamp == nil && ofGuests(v) && v.Annotations[v1alpha1.AnnotationHomeClaim] == home+"/"+name &&
			(v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeAvailable) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			return v, nil
		}
	}
	return nil, nil
}

// giveBack reserves a kept volume for the claim that is about to be made.
func (c *Claims) giveBack(ctx context.Context, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}},"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":%q,"name":%q,"uid":null,"resourceVersion":null}}}`,
		v.ResourceVersion, v1alpha1.AnnotationKeptUntil, claim.Namespace, claim.Name)
	if err := c.client.Patch(ctx, v, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("giving back volume %s: %w", v.Name, err)
	}
	return nil
}
