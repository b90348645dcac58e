package fence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/queue"
)

// SetupWithManager has the fence follow peers, contracts and policies; and guests, where their links do not tell them.
func (f *Fence) SetupWithManager(mgr ctrl.Manager) error {
	// One key for all: whatever changed, everything is read again, from the cache.
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("kith-fence").
		Watches(&v1alpha1.Peer{}, all).
		Watches(&v1alpha1.Contract{}, all).
		Watches(&v1alpha1.SharingPolicy{}, all).
		WithOptions(controller.Options{NewQueue: queue.New})
	if f.cfg.Group == 0 {
		b.Watches(&corev1.Pod{}, all, builder.WithPredicates(guests(), predicate.Funcs{UpdateFunc: movedOrEnded}))
	}
	return b.Complete(f.paced(mgr.GetClient()))
}

// pace is the shortest time between two looks at everything: the first of many that come at once is not kept waiting.
const pace = 200 * time.Millisecond

func (f *Fence) paced(c client.Reader) reconcile.Func {
	var last time.Time // there is one key, so one at a time
	return func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		if wait := pace - time.Since(last); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		defer func() { last = time.Now() }()
		return ctrl.Result{}, f.reconcile(ctx, c)
	}
}

func (f *Fence) reconcile(ctx context.Context, c client.Reader) error {
	var pods corev1.PodList
	var contracts v1alpha1.ContractList
	var peers v1alpha1.PeerList
	var policies v1alpha1.SharingPolicyList
	lists := []client.ObjectList{&contracts, &peers, &policies}
	if f.cfg.Group == 0 {
		lists = append(lists, &pods)
	}
	for _, list := range lists {
		// Nothing here changes them, and copies of a thousand pods for each that moved are most of the work.
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("see whom to fence: %w", err)
		}
	}
	return f.Set(f.cfg.relations(objects{pods: pods.Items, contracts: contracts.Items, peers: peers.Items, policies: policies.Items}))
}

// guests are pods of others here.
func guests() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelConsumer] != "" })
}

func movedOrEnded(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return a.UID != b.UID || v1alpha1.Ended(a.Status.Phase) != v1alpha1.Ended(b.Status.Phase) ||
		!maps.Equal(a.Labels, b.Labels) || !slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}
