package offloading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/consume/volumes"
	"kith.dev/core/trust/wire"
)

// conditionLabelled is True once the namespace carries the label: from then on, taking the label away ends the offloading.
const conditionLabelled = "NamespaceLabelled"

// ConditionPodsEvicted is False while pods that are to come home stay abroad, for the PodDisruptionBudgets that its message names.
const ConditionPodsEvicted = "PodsEvicted"

// budgetPause is the time until a PodDisruptionBudget that refused is tried again: no watch tells when it would allow more. Most do when
// another pod is Ready at home.
const budgetPause = 2 * time.Second

// cacheLag is when to look again at a namespace whose pods the cache does not show yet as they are.
const cacheLag = 500 * time.Millisecond

// Twins are the twin namespaces at all peers.
type Twins interface {
	// Review releases the twins of a home namespace that it does not need any more, and makes those that it needs without a pod: now, or when their peer
	// can be reached.
	Review(namespace string)
}

// Reconciler keeps NamespaceOffloadings, the label on namespaces and the tolerations of waiting pods in step.
type Reconciler struct {
	client client.Client
	fresh  client.Reader // past the cache
	twins  Twins
	events events.EventRecorder // nil without a manager
	log    *slog.Logger

	Purse Purse // nil: budgets are not looked at
}

// New makes a Reconciler. The client must read from a cache that holds Namespaces, Pods and NamespaceOffloadings, fresh past it.
func New(c client.Client, fresh client.Reader, twins Twins, log *slog.Logger) *Reconciler {
	return &Reconciler{client: c, fresh: fresh, twins: twins, log: log}
}

// SetupWithManager registers the reconciler; its requests are names of namespaces.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.events = mgr.GetEventRecorder("kith-offloading")
	namespaceOf := func(_ context.Context, obj client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: obj.GetNamespace()}}}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("offloading").
		For(&corev1.Namespace{}).
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(namespaceOf)).
		Watches(&corev1.PodTemplate{}, handler.EnqueueRequestsFromMapFunc(namespaceOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(stuckOrLeft())).
		WatchesRawSource(source.Func(r.watchPurse)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, NewQueue: queue.New}).
		Complete(r)
}

// stuckOrLeft lets through pods that wait at home, and those that left a virtual node: what is kept of them, and the end of
// an offloading, wait for that.
func stuckOrLeft() predicate.Funcs {
	is := func(what func(*corev1.Pod) bool, obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && what(pod)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(needsWork, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return is(needsWork, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(onVirtualNode, e.Object) },
	}
}

// Reconcile brings one namespace to what its label and its NamespaceOffloading say. Somebody else's write in
// between is no error: it is looked at again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	waiting, behind, remade := r.remake(ctx, req.Name)
	held, next, err := r.reconcile(ctx, req, waiting > 0)
	err = errors.Join(remade, err)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	case err == nil && behind:
		return ctrl.Result{RequeueAfter: cacheLag}, nil
	case err == nil && held:
		return ctrl.Result{RequeueAfter: budgetPause}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	result, err := r.forget(ctx, req.Name)
	result.RequeueAfter = soonest(result.RequeueAfter, next)
	return result, err
}

// soonest is the shorter of two times; 0 is never.
func soonest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// reconcile tells, too, whether pods are to come home that disruption budgets hold: those have to be asked again; and when to look at what is spent.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request, waiting bool) (held bool, next time.Duration, err error) {
	var ns corev1.Namespace
	err = r.client.Get(ctx, req.NamespacedName, &ns)
	if client.IgnoreNotFound(err) != nil {
		return false, 0, err
	}
	if err != nil || ns.DeletionTimestamp != nil {
		r.twins.Review(req.Name)
		return false, 0, r.letGo(ctx, req.Name)
	}
	var nso v1alpha1.NamespaceOffloading
	err = r.client.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: v1alpha1.NamespaceOffloadingName}, &nso)
	labelled := ns.Labels[v1alpha1.LabelOffload] == "true"
	switch {
	case apierrors.IsNotFound(err) && labelled:
		return false, 0, r.create(ctx, ns.Name)
	case apierrors.IsNotFound(err):
		r.twins.Review(ns.Name)
		return false, 0, nil
	case err != nil:
		return false, 0, err
	case nso.DeletionTimestamp != nil:
		held, err := r.end(ctx, &ns, &nso, waiting)
		return held, 0, err
	case !labelled && meta.IsStatusConditionTrue(nso.Status.Conditions, conditionLabelled):
		return false, 0, r.unlabelled(ctx, &nso)
	}
	if next, err = r.budget(ctx, &nso); err != nil {
		return false, 0, err
	}
	if err := r.begin(ctx, &ns, &nso); err != nil {
		return false, 0, err
	}
	r.twins.Review(ns.Name) // it may be reflected where none of its pods goes, or not any more
	later, err := r.freeWaiting(ctx, &nso)
	return false, soonest(next, later), err
}

// labelled asks the API server whether the owner has the label on a namespace. Namespaces and NamespaceOffloadings come by two watches:
// the cache may show what begin or end wrote on the one before what it wrote, earlier, on the other.
func (r *Reconciler) labelled(ctx context.Context, namespace string) (bool, error) {
	var ns corev1.Namespace
	err := r.fresh.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	return ns.Labels[v1alpha1.LabelOffload] == "true", err
}

// unlabelled ends the offloading of a namespace whose owner took the label away.
func (r *Reconciler) unlabelled(ctx context.Context, nso *v1alpha1.NamespaceOffloading) error {
	if has, err := r.labelled(ctx, nso.Namespace); err != nil || has {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.client.Delete(ctx, nso, client.Preconditions{UID: &nso.UID}))
}

// create begins the offloading of a namespace whose owner put the label on it.
func (r *Reconciler) create(ctx context.Context, namespace string) error {
	if has, err := r.labelled(ctx, namespace); err != nil || !has {
		return client.IgnoreNotFound(err)
	}
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespaceOffloadingName, Namespace: namespace}}
	if err := r.client.Create(ctx, nso); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("offload namespace %s: %w", namespace, err)
	}
	return nil
}

// begin sets finalizer, label with annotations, and condition, in that order, so that no pod leaves before the finalizer ensures that it is
// brought home in the end.
func (r *Reconciler) begin(ctx context.Context, ns *corev1.Namespace, nso *v1alpha1.NamespaceOffloading) error {
	if controllerutil.AddFinalizer(nso, v1alpha1.FinalizerOffloading) {
		if err := r.client.Update(ctx, nso); err != nil {
			return err
		}
	}
	if err := r.mark(ctx, ns, nso); err != nil {
		return err
	}
	says := "new pods of this namespace may run at peers"
	if nso.Spec.Strategy == v1alpha1.StrategyLocal {
		says = "the services of this namespace are at peers too, and its pods stay at home"
	}
	if !meta.SetStatusCondition(&nso.Status.Conditions, metav1.Condition{
		Type: conditionLabelled, Status: metav1.ConditionTrue, Reason: "Offloaded", ObservedGeneration: nso.Generation,
		Message: says,
	}) {
		return nil
	}
	r.log.Info("namespace offloaded", "namespace", ns.Name, "strategy", nso.Spec.Strategy)
	return r.client.Status().Update(ctx, nso)
}

// mark writes on the namespace what the admission policy reads there; nil takes it away.
func (r *Reconciler) mark(ctx context.Context, ns *corev1.Namespace, nso *v1alpha1.NamespaceOffloading) error {
	before := ns.DeepCopy()
	r.markBudget(ns, nso)
	delete(ns.Annotations, v1alpha1.AnnotationStrategy)
	delete(ns.Annotations, v1alpha1.AnnotationPeers)
	delete(ns.Annotations, v1alpha1.AnnotationVolumes)
	delete(ns.Annotations, v1alpha1.AnnotationDefaultClass)
	delete(ns.Annotations, v1alpha1.AnnotationSpread)
	delete(ns.Annotations, v1alpha1.AnnotationNetwork)
	delete(ns.Annotations, v1alpha1.AnnotationWhenAsleep)
	if nso == nil {
		delete(ns.Labels, v1alpha1.LabelOffload)
		delete(ns.Annotations, v1alpha1.AnnotationRefused)
	} else {
		spec := &nso.Spec
		metav1.SetMetaDataLabel(&ns.ObjectMeta, v1alpha1.LabelOffload, "true")
		metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationStrategy, string(cmp.Or(spec.Strategy, v1alpha1.StrategyLocalAndRemote)))
		if len(spec.Peers) > 0 {
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationPeers, strings.Join(spec.Peers, ","))
		}
		if spec.Network == v1alpha1.NetworkNone {
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationNetwork, v1alpha1.WithoutNetwork)
		}
		if spec.Spread {
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationSpread, "true")
		}
		if spec.WhenAsleep != "" {
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationWhenAsleep, string(spec.WhenAsleep))
		}
		if spec.Volumes == v1alpha1.VolumesAnywhere {
			var classes storagev1.StorageClassList
			if err := r.fresh.List(ctx, &classes); err != nil {
				return fmt.Errorf("storage classes: %w", err)
			}
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationVolumes, string(spec.Volumes))
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AnnotationDefaultClass, cmp.Or(volumes.DefaultClass(classes.Items), new(storagev1.StorageClass)).Name)
		}
	}
	if maps.Equal(before.Labels, ns.Labels) && maps.Equal(before.Annotations, ns.Annotations) {
		return nil
	}
	return r.client.Patch(ctx, ns, client.MergeFrom(before))
}

// freeWaiting lets pods that were made before the namespace was offloaded go abroad too: the API server
// permits adding tolerations to a pod, and the scheduler looks at it again. What cannot be added it has made again; next is when to look at
// those that are too young for that, 0 for never.
func (r *Reconciler) freeWaiting(ctx context.Context, nso *v1alpha1.NamespaceOffloading) (next time.Duration, all error) {
	if len(wanted(nso.Spec)) == 0 {
		return 0, nil
	}
	now := r.wantedNow(nso)
	open, some := r.open(nso)
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(nso.Namespace)); err != nil {
		return 0, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !waits(pod) {
			continue
		}
		if outgrown(pod, nso, open, some) {
			later, err := r.remade(ctx, pod)
			all = errors.Join(all, err)
			if next = soonest(next, later); later <= 0 {
				continue
			}
		}
		var add []corev1.Toleration
		if stuckAtHome(pod) || narrowed(pod) {
			add = missing(pod, nso.Spec, now)
		}
		if len(add) == 0 {
			all = errors.Join(all, r.tellWaiting(ctx, pod, nso), r.tellBound(ctx, pod, &nso.Spec))
			continue
		}
		before := pod.DeepCopy()
		if some && !tolerates(pod) { // it gets the others when they are open again
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNarrowed, "true")
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, add...)
		all = errors.Join(all, client.IgnoreNotFound(r.client.Patch(ctx, pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))))
	}
	return next, all
}

// conditionBound is on a pod that wants a virtual node and may not go there for what it is bound to at home; so it is said once.
const conditionBound = "kith.dev/BoundToHome"

// tellBound writes an event on a pod that cannot go to a peer because of what it is bound to at home, such as a claim: the scheduler's own events
// speak of taints only. For a pod that tolerates them, as all do under the strategy Remote, the scheduler may even choose a node, for which
// the claim then waits ten minutes without a message.
func (r *Reconciler) tellBound(ctx context.Context, pod *corev1.Pod, spec *v1alpha1.NamespaceOffloadingSpec) error {
	wants := virtualNode(&pod.Spec)
	told := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionBound })
	if wants == "" || told || !boundHome(pod, spec.Volumes) {
		return nil
	}
	how := ""
	if spec.Strategy == v1alpha1.StrategyRemote {
		how = fmt.Sprintf(" (kith offload %s --strategy both, then delete the pod, so that it is made anew)", pod.Namespace)
	}
	why := fmt.Sprintf("it asks for %s, but its volume claims (PersistentVolumeClaims, ephemeral volumes) stand for what is at home, and these do not go abroad: "+
		"let it run at home%s, or use a volume without a claim (emptyDir, configMap, secret); kith offload %s --volumes anywhere lets the volumes of new claims be at peers", wants, how, pod.Namespace)
	if claims := pod.Spec.ResourceClaims; len(claims) > 0 {
		why = fmt.Sprintf("it asks for %s, but spec.resourceClaims[0] (%s) stands for devices of home's nodes, and resource claims do not go abroad: "+
			"let it run at home%s, or have it request a device of a peer by name, as nvidia.com/gpu, without a claim", wants, claims[0].Name, how)
	}
	before := pod.DeepCopy()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: conditionBound, Status: corev1.ConditionTrue, Reason: "Claims", Message: why, LastTransitionTime: metav1.Now(),
	})
	if err := r.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	if r.events != nil {
		r.events.Eventf(pod, nil, corev1.EventTypeWarning, "BoundToHome", "Offloading", "%s", why)
	}
	return nil
}

// end evicts the pods from peers; when the last has left it releases the twins and then removes the finalizer. It does not wait until a twin is
// deleted: what a peer still keeps is seen in its view, and released when it can be reached.
func (r *Reconciler) end(ctx context.Context, ns *corev1.Namespace, nso *v1alpha1.NamespaceOffloading, waiting bool) (held bool, err error) {
	if !controllerutil.ContainsFinalizer(nso, v1alpha1.FinalizerOffloading) {
		return false, nil
	}
	if err := r.mark(ctx, ns, nil); err != nil {
		return false, err
	}
	pods, err := r.abroad(ctx, ns.Name)
	if err != nil {
		return false, err
	}
	stays, err := bringHome(ctx, r.client, pods, nso.Annotations[v1alpha1.AnnotationForce] == "true")
	if err = errors.Join(err, r.tellHeld(ctx, nso, stays)); err != nil || len(pods) > 0 || waiting {
		return len(stays) > 0, err // each that left brings us back
	}
	r.twins.Review(ns.Name)
	controllerutil.RemoveFinalizer(nso, v1alpha1.FinalizerOffloading)
	r.log.Info("namespace is home again", "namespace", ns.Name)
	return false, r.client.Update(ctx, nso)
}

// tellHeld says in the status which pods a PodDisruptionBudget keeps at peers, and what to do.
func (r *Reconciler) tellHeld(ctx context.Context, nso *v1alpha1.NamespaceOffloading, stays []string) error {
	var changed bool
	if len(stays) == 0 {
		changed = meta.RemoveStatusCondition(&nso.Status.Conditions, ConditionPodsEvicted)
	} else {
		why := stays[0]
		if more := len(stays) - 1; more > 0 {
			why += fmt.Sprintf("; %d more wait", more)
		}
		changed = meta.SetStatusCondition(&nso.Status.Conditions, metav1.Condition{
			Type: ConditionPodsEvicted, Status: metav1.ConditionFalse, Reason: "DisruptionBudget", ObservedGeneration: nso.Generation, Message: wire.Cut(why, 32<<10), // what a condition holds
		})
		if changed {
			r.log.Info("pods cannot come home yet", "namespace", nso.Namespace, "why", why)
		}
	}
	if !changed {
		return nil
	}
	return r.client.Status().Update(ctx, nso)
}

// letGo drops the finalizer when the namespace itself is going: its pods are being deleted anyway. It does not wait for the
// NamespaceOffloading's own deletion: the namespace controller looks again eight seconds after it found one with a finalizer.
func (r *Reconciler) letGo(ctx context.Context, namespace string) error {
	var nso v1alpha1.NamespaceOffloading
	key := types.NamespacedName{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
	if err := r.client.Get(ctx, key, &nso); err != nil || !controllerutil.ContainsFinalizer(&nso, v1alpha1.FinalizerOffloading) {
		return client.IgnoreNotFound(err)
	}
	pods, err := r.abroad(ctx, namespace)
	if err != nil || len(pods) > 0 {
		return err // each that left brings us back
	}
	controllerutil.RemoveFinalizer(&nso, v1alpha1.FinalizerOffloading)
	return client.IgnoreNotFound(r.client.Update(ctx, &nso))
}

func (r *Reconciler) abroad(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var list []corev1.Pod
	for _, pod := range pods.Items {
		if Abroad(&pod) {
			list = append(list, pod)
		}
	}
	return list, nil
}

// WaitInForce waits until a pod created in the namespace now would be let abroad: the API server learns of a new
// NamespaceOffloading through a watch of its own. It asks by dry runs.
func (r *Reconciler) WaitInForce(ctx context.Context, nso *v1alpha1.NamespaceOffloading) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 15*time.Second, true, func(ctx context.Context) (bool, error) {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "kith-probe-", Namespace: nso.Namespace},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "kith.dev/probe"}}},
		}
		if err := r.client.Create(ctx, probe, client.DryRunAll); err != nil {
			r.log.Debug("probe of the admission policy", "namespace", nso.Namespace, "err", err)
			return apierrors.IsForbidden(err) || apierrors.IsInvalid(err), nil // others forbid this pod; nothing to learn
		}
		now := nso.DeepCopy()
		if nso.Spec.Budget != nil && r.Purse != nil { // the reconciler says what it leaves open
			if err := r.fresh.Get(ctx, client.ObjectKeyFromObject(nso), now); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			if now.Status.Budget == nil || now.Status.Budget.NamespaceBudget != *nso.Spec.Budget {
				return false, nil
			}
		}
		return tolerates(probe) == (len(r.wantedNow(now)) > 0) && r.volumesInForce(ctx, nso), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s: the API server does not let its pods abroad: %w", nso.Namespace, err)
	}
	return nil
}

// volumesInForce reports whether a claim created in the namespace now would get a volume that may be anywhere, where it is to.
func (r *Reconciler) volumesInForce(ctx context.Context, nso *v1alpha1.NamespaceOffloading) bool {
	if nso.Spec.Volumes != v1alpha1.VolumesAnywhere {
		return true
	}
	probe := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kith-probe-", Namespace: nso.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
		},
	}
	if err := r.client.Create(ctx, probe, client.DryRunAll); err != nil {
		r.log.Debug("probe of the admission policy of claims", "namespace", nso.Namespace, "err", err)
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) // as with pods
	}
	return probe.Spec.StorageClassName != nil && *probe.Spec.StorageClassName == v1alpha1.StorageClassName
}
