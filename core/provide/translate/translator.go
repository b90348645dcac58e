package translate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/names"
)

// Table is the name of the nftables table.
const Table = "kith-translate"

// Translator keeps the table in step with the cluster.
type Translator struct {
	cfg    fence.Config
	kernel *kernel
	names  *names.Server

	// of the one worker
	last []Tenant
	next time.Time // not before that
}

// New makes one for guests within the fence of this configuration; nothing is touched.
func New(cfg fence.Config) *Translator {
	return &Translator{cfg: cfg, kernel: newKernel(cfg.DNS, cfg.Log), names: names.New(cfg.DNS, cfg.Log)}
}

// Run keeps the table where it is, and answers guests' questions to DNS, until ctx ends. The table stays then, for connections need it, and questions go
// to the cluster's DNS.
func (t *Translator) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	if leads && t.cfg.Node.Is4() {
		all.Go(func() { t.serve(ctx) })
	}
	err := t.kernel.run(ctx)
	stop()
	all.Wait()
	return err
}

// serve answers questions, at the node's address. A kithd that is not on the node has none such: it leads nobody there either.
func (t *Translator) serve(ctx context.Context) {
	pauses := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
	for {
		err := t.names.Serve(ctx, t.cfg.Node, func(ctx context.Context, port uint16) {
			if err := t.kernel.answer(netip.AddrPortFrom(t.cfg.Node, port)); err != nil {
				t.cfg.Log.Warn("guests ask the cluster's DNS, which knows no names of their homes", "err", err)
			}
			t.kernel.beat(ctx)
		})
		if off := t.kernel.answer(netip.AddrPort{}); off != nil || err != nil {
			t.cfg.Log.Info("guests' questions to DNS are not answered as at home, trying again", "err", errors.Join(err, off))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.Step()):
		}
	}
}

// managed is on what Kith made of consumers' objects, and on their namespaces.
var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// Cached are the objects of a cache that is this room's alone: twins, and the services in them.
func Cached() map[client.Object]cache.ByObject {
	twins := labels.SelectorFromSet(labels.Set(managed))
	return map[client.Object]cache.ByObject{
		&corev1.Service{}:   {Label: twins, Transform: slim},
		&corev1.Namespace{}: {Label: twins, Transform: grants.OwnFields},
	}
}

// slim drops what nobody here reads.
func slim(o any) (any, error) {
	if o, ok := o.(*corev1.Service); ok {
		o.ManagedFields, o.Status = nil, corev1.ServiceStatus{}
		o.Spec = corev1.ServiceSpec{ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs}
	}
	return o, nil
}

// SetupWithManager has the table follow guests, nodes, peers, twins and their services.
func (t *Translator) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	of := func(label string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[label] != "" })
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kith-translate").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(of(v1alpha1.LabelConsumer), fence.Moved())).
		Watches(&corev1.Node{}, all, builder.WithPredicates(fence.NodeMoved())).
		Watches(&v1alpha1.Peer{}, all).
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(of(v1alpha1.LabelConsumer), predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&corev1.Service{}, all, builder.WithPredicates(of(v1alpha1.LabelManagedBy), predicate.Funcs{UpdateFunc: addressChanged})).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(t.reconcile(mgr.GetClient()))
}

func addressChanged(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Service), e.ObjectNew.(*corev1.Service)
	return a.UID != b.UID || a.Annotations[kinds.AnnotationClusterIP] != b.Annotations[kinds.AnnotationClusterIP] || !equality.Semantic.DeepEqual(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

// pace is the shortest time between two looks at everything: the first of many that come at once is not kept waiting.
const pace = 100 * time.Millisecond

func (t *Translator) reconcile(c client.Reader) reconcile.Func {
	return func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		if left := time.Until(t.next); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
		defer func() { t.next = time.Now().Add(pace) }()
		now, err := t.read(ctx, c)
		if err != nil || t.last != nil && reflect.DeepEqual(t.last, now) {
			return ctrl.Result{}, err
		}
		if err := t.kernel.set(now); err != nil {
			return ctrl.Result{}, fmt.Errorf("lead guests by the addresses of their homes: %w", err)
		}
		t.last = now
		t.names.Tell(tenantsOf(now))
		return ctrl.Result{}, nil
	}
}

// tenantsOf are those of each guest, as the server of names wants them.
func tenantsOf(list []Tenant) map[netip.Addr]*names.Tenant {
	guests := map[netip.Addr]*names.Tenant{}
	for _, t := range list {
		of := &names.Tenant{Twins: t.Twins, Services: t.Services, Ranges: t.Ranges, APIServer: t.APIServer, Kept: map[netip.Addr]bool{}}
		for _, guest := range t.All {
			of.Kept[guest] = true
		}
		for _, guest := range t.Guests {
			guests[guest] = of
		}
	}
	return guests
}

func (t *Translator) read(ctx context.Context, c client.Reader) ([]Tenant, error) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var peers v1alpha1.PeerList
	var namespaces corev1.NamespaceList
	var services corev1.ServiceList
	for list, which := range map[client.ObjectList][]client.ListOption{&pods: {client.HasLabels{v1alpha1.LabelConsumer}}, &nodes: nil, &peers: nil, &namespaces: {managed}, &services: {managed}} {
		if err := c.List(ctx, list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, fmt.Errorf("see what guests reach at their homes: %w", err)
		}
	}
	return tenants(t.cfg, objects{pods: pods.Items, nodes: nodes.Items, peers: peers.Items, namespaces: namespaces.Items, services: services.Items}), nil
}
