package fenced

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// Config says whose fences there are.
type Config struct {
	Client    client.Client
	Self      string // the node that this kithd works on
	Namespace string // of the pods of `kithd node`; "" where there are none
	// Own is the state of the fence that this kithd keeps on its own node. Call Again when it has changed.
	Own func(self *corev1.Node) (why Reason, more string)
	// Cut says which packets do not get through between this node and another; "" when all do. nil: not known. Call Again when it has changed.
	Cut func(node *corev1.Node) string
	// Changed is called when a node no longer takes guests, and when it does again; not for one that never had a fence.
	Changed func(Verdict)
	Log     *slog.Logger
}

// Keeper keeps the label on the nodes where a fence is alive. Its methods may be called by many at once.
type Keeper struct {
	cfg   Config
	inbox queue.Inbox

	mu    sync.Mutex
	since time.Time // it works; zero: not yet
}

// New touches nothing.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg} }

// settles is how long after a change an agent that is not ready any more may be taken for one that is: longer than two probes in a row that fail
// (packaging/chart), each at its latest.
const settles = 20 * time.Second

// SetupWithManager has the labels follow nodes and agents.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	agents := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && k.cfg.Namespace != "" && pod.Namespace == k.cfg.Namespace && IsAgent(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("kith-fenced").
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&corev1.Pod{}, all, builder.WithPredicates(agents, predicate.Funcs{UpdateFunc: agentChanged})).
		WatchesRawSource(&k.inbox).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(reconcile.Func(k.reconcile))
}

func nodeChanged(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	addresses := func(n *corev1.Node) string { return fmt.Sprint(n.Status.Addresses) }
	return isMachine(a) != isMachine(b) || a.Labels[v1alpha1.LabelFenced] != b.Labels[v1alpha1.LabelFenced] ||
		a.Annotations[v1alpha1.AnnotationFencedBy] != b.Annotations[v1alpha1.AnnotationFencedBy] || addresses(a) != addresses(b)
}

func agentChanged(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return ready(a) != ready(b) || a.Spec.NodeName != b.Spec.NodeName
}

// Again queues another look at all nodes.
func (k *Keeper) Again() { k.inbox.Add(types.NamespacedName{}) }

// Verdicts says of each machine of the cluster whether guests may run there, as it is now.
func (k *Keeper) Verdicts(ctx context.Context) ([]Verdict, error) {
	w, err := k.observe(ctx)
	return w.Judge(), err
}

func (k *Keeper) observe(ctx context.Context) (w World, err error) {
	var nodes corev1.NodeList
	if err := k.cfg.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return w, fmt.Errorf("see which nodes there are: %w", err)
	}
	w = World{Nodes: nodes.Items, Self: k.cfg.Self, Own: Elsewhere}
	for i := range nodes.Items {
		if nodes.Items[i].Name == k.cfg.Self {
			w.Own, w.More = k.cfg.Own(&nodes.Items[i])
		}
	}
	k.mu.Lock()
	w.Settled = !k.since.IsZero() && time.Since(k.since) >= settles
	k.mu.Unlock()
	if k.cfg.Namespace == "" {
		return w, nil
	}
	var pods corev1.PodList
	if err := k.cfg.Client.List(ctx, &pods, client.InNamespace(k.cfg.Namespace), client.MatchingLabels{AgentLabel: AgentValue}, client.UnsafeDisableDeepCopy); err != nil {
		return w, fmt.Errorf("see which nodes have a `kithd node`: %w", err)
	}
	w.Agents = pods.Items
	if k.cfg.Cut != nil {
		w.Cut = map[string]string{}
		for i := range nodes.Items {
			w.Cut[nodes.Items[i].Name] = k.cfg.Cut(&nodes.Items[i])
		}
	}
	return w, nil
}

func (k *Keeper) reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	k.mu.Lock()
	if k.since.IsZero() {
		k.since = time.Now()
	}
	left := settles - time.Since(k.since)
	k.mu.Unlock()
	w, err := k.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	nodes := map[string]*corev1.Node{}
	for i := range w.Nodes {
		nodes[w.Nodes[i].Name] = &w.Nodes[i]
	}
	for _, v := range w.Judge() {
		if err := k.mark(ctx, nodes[v.Node], v); err != nil {
			return ctrl.Result{}, err
		}
		if v.Node == k.cfg.Self && v.Why == Down {
			k.cfg.Log.Warn("no guests may run on this node", "node", v.Node, "why", string(v.Why), "more", v.More)
		}
	}
	return ctrl.Result{RequeueAfter: max(0, left)}, nil
}

// mark writes the verdict on a node. While the verdict is Starting the label stays as it was: only kithd was restarted, and the kernel still has
// the table of the process before.
func (k *Keeper) mark(ctx context.Context, is *corev1.Node, v Verdict) error {
	was, had := v1alpha1.Fenced(is), is.Annotations[v1alpha1.AnnotationFencedBy]
	label, labelled := is.Labels[v1alpha1.LabelFenced]
	if v.Why == Starting {
		return nil
	}
	next := is.DeepCopy()
	if v.Why == Alive {
		if was && had == v.By {
			return nil
		}
		set(&next.Labels, v1alpha1.LabelFenced, "true")
		set(&next.Annotations, v1alpha1.AnnotationFencedBy, v.By)
	} else {
		if !labelled {
			return nil
		}
		delete(next.Labels, v1alpha1.LabelFenced)
	}
	if err := k.cfg.Client.Patch(ctx, next, client.MergeFrom(is), client.FieldOwner(v1alpha1.ManagedBy)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("say of node %s whether guests may run there: %w", is.Name, err))
	}
	k.cfg.Log.Info("whether guests may run on a node changed", "node", is.Name, "fenced", v.Why == Alive, "was", label, "why", string(v.Why), "more", v.More)
	if k.cfg.Changed != nil && was != (v.Why == Alive) && had != "" {
		k.cfg.Changed(v)
	}
	return nil
}

func set(in *map[string]string, key, value string) {
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
}
