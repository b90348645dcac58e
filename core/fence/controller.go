package fence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// SetupWithManager has the fence follow guests, peers, contracts and policies.
func (f *Fence) SetupWithManager(mgr ctrl.Manager) error {
	// One key for all: whatever changed, everything is read again, from the cache.
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("kith-fence").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(guestsAndTravellers(), predicate.Funcs{UpdateFunc: movedOrEnded})).
		Watches(&v1alpha1.Peer{}, all).
		Watches(&v1alpha1.Contract{}, all).
		Watches(&v1alpha1.SharingPolicy{}, all).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(f.paced(mgr.GetClient()))
}

// pace is the shortest time between two looks at all guests: the first of many that come at once is not kept waiting.
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
	for _, list := range []client.ObjectList{&pods, &contracts, &peers, &policies} {
		// Nothing here changes them, and copies of a thousand pods for each that moved are most of the work.
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("see whom to fence: %w", err)
		}
	}
	o := objects{pods: pods.Items, contracts: contracts.Items, peers: peers.Items, policies: policies.Items}
	return f.Set(o.relations())
}

// guestsAndTravellers are the pods of others here, and the owner's at others.
func guestsAndTravellers() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && (pod.Labels[v1alpha1.LabelConsumer] != "" || strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix))
	})
}

func movedOrEnded(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || v1alpha1.Ended(a.Status.Phase) != v1alpha1.Ended(b.Status.Phase) ||
		!maps.Equal(a.Labels, b.Labels) || !slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}
