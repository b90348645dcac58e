package fence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// SetupWithManager has the fence follow peers, contracts and policies; and guests and nodes, where guests' links do not tell them, and with them the
// owner's pods on this node and the lease of its kubelet. here is a cache that has those, the manager's or another.
func (f *Fence) SetupWithManager(mgr ctrl.Manager, here cache.Cache) error {
	// One key for all: whatever changed, everything is read again, from the cache.
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("kith-fence").
		Watches(&v1alpha1.Peer{}, all).
		Watches(&v1alpha1.Contract{}, all).
		Watches(&v1alpha1.SharingPolicy{}, all).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(reconcile.Request{}) // also where nothing of these is there: until it was told so the fence is closed
			return nil
		})).
		WithOptions(controller.Options{NewQueue: queue.New})
	if f.cfg.Group == 0 {
		b.Watches(&corev1.Pod{}, all, builder.WithPredicates(guests(), Moved())).
			Watches(&corev1.Node{}, all, builder.WithPredicates(NodeMoved())).
			WatchesRawSource(source.Kind[client.Object](here, &corev1.Pod{}, all, predicate.NewPredicateFuncs(f.asksOf), Moved()))
		if f.cfg.NodeName != "" { // else no guest is to run here
			b.WatchesRawSource(source.Kind[client.Object](here, &coordinationv1.Lease{}, all, predicate.NewPredicateFuncs(func(client.Object) bool { return f.asks() })))
		}
	}
	return b.Complete(f.paced(mgr.GetClient(), here))
}

// asksOf reports whether one of the owner's pods matters: while guests are here, and always if it has an address that none could have.
func (f *Fence) asksOf(o client.Object) bool {
	pod := o.(*corev1.Pod)
	return pod.Labels[v1alpha1.LabelConsumer] == "" && (f.asks() && f.cfg.isHere(pod) || len(podOutOfRange(f.cfg.Pods, pod)) > 0)
}

// pace is the shortest time between two looks at everything: the first of many that come at once is not kept waiting.
const pace = 200 * time.Millisecond

func (f *Fence) paced(c, here client.Reader) reconcile.Func {
	var last time.Time // there is one key, so one at a time
	return func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		if wait := pace - time.Since(last); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		defer func() { last = time.Now() }()
		err := f.reconcile(ctx, c, here)
		return ctrl.Result{RequeueAfter: f.again()}, err
	}
}

func (f *Fence) reconcile(ctx context.Context, c, here client.Reader) error {
	var contracts v1alpha1.ContractList
	var peers v1alpha1.PeerList
	var policies v1alpha1.SharingPolicyList
	var pods, own corev1.PodList
	var nodes corev1.NodeList
	lists := []client.ObjectList{&contracts, &peers, &policies}
	if f.cfg.Group == 0 {
		lists = append(lists, &nodes)
	}
	for _, list := range lists {
		// Nothing here changes them, and copies of a thousand pods for each that moved are most of the work.
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("see whom to fence: %w", err)
		}
	}
	if f.cfg.Group == 0 {
		err := c.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.HasLabels{v1alpha1.LabelConsumer})
		if err == nil {
			err = here.List(ctx, &own, client.UnsafeDisableDeepCopy)
		}
		if err != nil {
			return fmt.Errorf("see whom to fence: %w", err)
		}
	}
	own.Items = slices.DeleteFunc(own.Items, func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelConsumer] != "" })
	o := objects{pods: append(pods.Items, own.Items...), nodes: nodes.Items, contracts: contracts.Items, peers: peers.Items, policies: policies.Items}
	if f.cfg.Group == 0 {
		f.Compare(o.nodes, o.pods)
		if err := f.listen(ctx, here); err != nil {
			return err
		}
	}
	return f.Set(f.cfg.relations(o))
}

// listen hears whether the kubelet of this node is there, and whether this process would know.
func (f *Fence) listen(ctx context.Context, here client.Reader) error {
	if f.cfg.NodeName == "" {
		return nil
	}
	var lease coordinationv1.Lease
	err := here.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: f.cfg.NodeName}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("see whether the kubelet of this node is there: %w", err)
	}
	if at := lease.Spec.RenewTime; at != nil {
		f.Heard(at.Time)
	}
	return nil
}

// Lease is what a cache of SetupWithManager has of leases: that of a node's kubelet.
func Lease(node string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {FieldSelector: fields.OneTermEqualSelector("metadata.name", node)}}}
}

// Moved passes updates of pods by which it may be told anew whose an address is.
func Moved() predicate.Predicate { return predicate.Funcs{UpdateFunc: movedOrEnded} }

// NodeMoved is Moved of nodes.
func NodeMoved() predicate.Predicate { return predicate.Funcs{UpdateFunc: nodeMoved} }

func nodeMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return !slices.Equal(podRanges(a), podRanges(b)) || !maps.Equal(AddressesOf([]corev1.Node{*a}), AddressesOf([]corev1.Node{*b}))
}

// guests are pods of others here.
func guests() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelConsumer] != "" })
}

func movedOrEnded(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return a.UID != b.UID || isRemade(a) != isRemade(b) || v1alpha1.Ended(a.Status.Phase) != v1alpha1.Ended(b.Status.Phase) ||
		a.Spec.NodeName != b.Spec.NodeName || !maps.Equal(a.Labels, b.Labels) || !slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}
