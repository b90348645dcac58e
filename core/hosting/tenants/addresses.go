package tenants

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/hosting/grants"
	"kith.dev/core/hosting/guests"
	"kith.dev/core/kinds"
	queues "kith.dev/core/queue"
)

// guestsOwner owns annotationGuests; the other annotations and labels are the tenant's.
const guestsOwner = "kith-guests"

// addresses lists those of the guests.
func addresses(guests []corev1.Pod) string {
	var all []string
	for i := range guests {
		for _, ip := range guests[i].Status.PodIPs {
			all = append(all, ip.IP)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// gatherFor is how long news of guests' addresses is gathered before it is written.
const gatherFor = 50 * time.Millisecond

// watchGuests keeps annotationGuests in step with the guests.
func (t *Tenants) watchGuests(mgr manager.Manager) error {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	later := func(q queue, namespace string) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}, gatherFor)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-guests").
		Watches(&corev1.Pod{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(q, e.Object.GetNamespace()) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { later(q, e.ObjectNew.GetNamespace()) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { later(q, e.Object.GetNamespace()) },
		}, builder.WithPredicates(guests.Managed(), guests.Updates(addressesChanged))).
		// Once at the beginning: the last guest may have gone while no daemon ran.
		Watches(&corev1.Namespace{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(q, e.Object.GetName()) },
		}, builder.WithPredicates(guests.Managed())).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(t.writeAddresses))
}

// addressWrite is what was written last: all addresses stand in one annotation, so with a thousand guests twenty writes a second
// would cost the API server as much as the guests themselves.
type addressWrite struct {
	at      time.Time
	guests  int
	version string // of the namespace that was written
}

// eachGuest is how much longer the next write waits for every guest in the one before.
const eachGuest = 2 * time.Millisecond

// wait is how long to leave a namespace alone that is seen in this version.
func (w addressWrite) wait(version string) time.Duration {
	if guests.Older(version, w.version) { // it would be compared with what was before
		return gatherFor
	}
	return time.Until(w.at.Add(time.Duration(w.guests) * eachGuest))
}

func addressesChanged(was, is client.Object) bool {
	a, b := was.(*corev1.Pod), is.(*corev1.Pod)
	return a.UID != b.UID || !slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}

func (t *Tenants) writeAddresses(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := t.client.Get(ctx, r.NamespacedName, &ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wait := t.written[r.Name].wait(ns.ResourceVersion); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	var pods corev1.PodList
	if err := t.client.List(ctx, &pods, client.InNamespace(r.Name), guests.Selector, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	tw, ok := grants.TwinOf(&ns)
	now := addresses(pods.Items)
	if !ok || tw.Leaving || ns.Annotations[kinds.AnnotationGuests] == now {
		return ctrl.Result{}, nil
	}
	want := corev1ac.Namespace(ns.Name).WithUID(ns.UID).WithAnnotations(map[string]string{kinds.AnnotationGuests: now})
	err := t.client.Apply(ctx, want, client.FieldOwner(guestsOwner), client.ForceOwnership)
	maps.DeleteFunc(t.written, func(_ string, w addressWrite) bool { return time.Since(w.at) > time.Minute })
	t.written[r.Name] = addressWrite{time.Now(), len(pods.Items), *cmp.Or(want.ResourceVersion, new(string))}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // another namespace of that name by now
	}
	return ctrl.Result{}, err
}
