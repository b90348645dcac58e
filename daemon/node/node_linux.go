package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/overlay"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/translate"
	"kith.dev/daemon/leader"
)

// Config is fixed for the life of the process.
type Config struct {
	REST      *rest.Config
	Node      string       // that this process runs on
	DaemonSet string       // NAMESPACE/NAME, that this process is of; the pods of kithd are in the same namespace
	Pods      netip.Prefix // of the cluster
	Services  netip.Prefix
	VXLANPort uint16
	VXLANID   uint32

	Log         *slog.Logger
	Controllers logr.Logger
}

// Node is the process.
type Node struct {
	cfg       Config
	namespace string
	kernel    hostnet.Changes
	overlay   *overlay.Kernel
	inSync    atomic.Bool                 // the kernel has what follows from the cluster's state, read at least once by this process
	here      atomic.Bool                 // the gateway is on this node, and kithd keeps the fence
	around    atomic.Pointer[fence.Fence] // that this process keeps; nil without one
}

// New touches nothing.
func New(cfg Config) *Node {
	n := &Node{cfg: cfg}
	n.namespace, _, _ = strings.Cut(cfg.DaemonSet, "/")
	n.overlay = overlay.NewKernel(overlay.Config{Self: cfg.Node, Pods: cfg.Pods, Port: cfg.VXLANPort, ID: cfg.VXLANID, Tunnel: netplan.Tunnel}, &n.kernel, cfg.Log)
	return n
}

// Ready says why this node is not led to the gateway, or guests on it are not fenced; "" when both are. By this alone the kithd that works knows
// where guests may run (core/provide/fenced): whatever else must hold for that is to be said here.
func (n *Node) Ready() string {
	if !n.inSync.Load() {
		return "the cluster was not read yet, or the kernel does not have what follows from it"
	}
	if n.here.Load() { // kithd keeps the fence
		return ""
	}
	f := n.around.Load()
	if f == nil {
		return "guests here are not fenced yet"
	}
	if err := f.Kept(); err != nil {
		return "guests here are not fenced: " + err.Error()
	}
	return ""
}

const longest = 15 * time.Second // between two attempts

// Run keeps this node as it should be until ctx ends. What it made stays then, for whoever starts after it, unless all of Kith is being removed.
func (n *Node) Run(ctx context.Context) error {
	growing := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: longest}
	delay := growing
	for ctx.Err() == nil {
		err := n.follow(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errMoved):
			delay = growing
		default:
			pause := delay.Step()
			n.cfg.Log.Warn("the cluster cannot be followed, trying again", "err", err, "in", pause.String())
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
	return n.leave()
}

// errMoved: the gateway came to this node, or left it, so that another process keeps the fence here.
var errMoved = errors.New("the gateway came to this node, or left it")

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// follow runs the controllers, until ctx ends or the gateway moves to this node or away.
func (n *Node) follow(ctx context.Context) error {
	n.inSync.Store(false) // until the cluster has been read again
	n.here.Store(false)
	n.around.Store(nil)
	scheme := scheme()
	direct, err := client.New(n.cfg.REST, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	var self corev1.Node
	if err := direct.Get(ctx, client.ObjectKey{Name: n.cfg.Node}, &self); err != nil {
		return fmt.Errorf("read node %s: %w", n.cfg.Node, err)
	}
	gateway, err := n.gateway(ctx, direct)
	if err != nil {
		return err
	}
	mgr, err := n.manager(scheme)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	here := gateway == n.cfg.Node
	n.here.Store(here)
	if !here {
		if err := n.fence(ctx, mgr, overlay.AddressOf(&self)); err != nil {
			return err
		}
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	known := gateway // what was known last: while nobody works, the way stays where it was
	err = ctrl.NewControllerManagedBy(mgr).Named("kith-nodes").
		Watches(&corev1.Node{}, all, builder.WithPredicates(machines(), predicate.Funcs{UpdateFunc: nodeMoved})).
		Watches(&v1alpha1.Peer{}, all).
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(works))).
		Complete(reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			at, err := n.gateway(ctx, mgr.GetClient())
			if err != nil {
				return ctrl.Result{}, err
			}
			if at != "" {
				known = at
			}
			if (known == n.cfg.Node) != here {
				cancel(errMoved)
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, n.set(ctx, mgr.GetClient(), known)
		}))
	if err != nil {
		return err
	}
	go n.keep(ctx, "the way to the gateway's node", n.overlay.Run)
	go n.keep(ctx, "the questions whether it is there", n.overlay.Ask)
	err = mgr.Start(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errMoved) {
		n.cfg.Log.Info("the gateway moved", "here", !here)
		return errMoved
	}
	return err
}

// manager watches guests, and the pod of the kithd that works, and of all others nothing; the services that guests have of their homes.
func (n *Node) manager(scheme *runtime.Scheme) (ctrl.Manager, error) {
	guests, err := labels.NewRequirement(v1alpha1.LabelConsumer, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	objects := translate.Cached()
	objects[&corev1.Node{}] = cache.ByObject{Transform: slim}
	objects[&corev1.Pod{}] = cache.ByObject{Transform: slim, Namespaces: map[string]cache.Config{
		n.namespace:         {LabelSelector: labels.SelectorFromSet(labels.Set{leader.Label: "true"})},
		cache.AllNamespaces: {LabelSelector: labels.NewSelector().Add(*guests), FieldSelector: fields.OneTermNotEqualSelector("metadata.namespace", n.namespace)},
	}}
	mgr, err := ctrl.NewManager(n.cfg.REST, ctrl.Options{
		Scheme: scheme, Logger: n.cfg.Controllers, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, GracefulShutdownTimeout: new(time.Second),
		Cache: cache.Options{ByObject: objects},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the cluster: %w", err)
	}
	return mgr, nil
}

// ownPods is a cache of the pods of this node, the owner's among them, which the fence tells from guests that it awaits.
func (n *Node) ownPods(mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(n.cfg.REST, cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}:           {Transform: slim, Field: fields.OneTermEqualSelector("spec.nodeName", n.cfg.Node)},
		&coordinationv1.Lease{}: fence.Lease(n.cfg.Node),
	}})
	if err != nil {
		return nil, fmt.Errorf("follow the pods of this node: %w", err)
	}
	return c, mgr.Add(c)
}

// slim drops what nobody here reads.
func slim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork}
		sandbox := slices.DeleteFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.PodReadyToStartContainers })
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs, Conditions: sandbox}
	case *corev1.Node:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	}
	return o, nil
}

// fence keeps guests of this node fenced, and leads them by the addresses of their homes. Their way home is the overlay, as it is the tunnel's device on the gateway's node.
func (n *Node) fence(ctx context.Context, mgr ctrl.Manager, ip netip.Addr) error {
	cfg := fence.Config{
		Tunnel: overlay.Device, Pods: n.cfg.Pods, Services: n.cfg.Services, Node: ip, NodeName: n.cfg.Node, Self: n.cfg.Node, DNS: netplan.Cluster{Pods: n.cfg.Pods, Services: n.cfg.Services}.DNS(),
		Kernel: &n.kernel, Log: n.cfg.Log,
	}
	f, err := fence.New(cfg)
	if err != nil {
		return err
	}
	here, err := n.ownPods(mgr)
	if err != nil {
		return err
	}
	if err := f.SetupWithManager(mgr, here); err != nil {
		return err
	}
	n.around.Store(f)
	go n.keep(ctx, "the fence around guests", f.Run)
	t := translate.New(cfg)
	go n.keep(ctx, "the addresses of guests' homes", t.Run)
	return t.SetupWithManager(mgr)
}

// keep runs a part until ctx ends.
func (n *Node) keep(ctx context.Context, what string, run func(context.Context) error) {
	for ctx.Err() == nil {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Warn(what+" failed, will be started again", "err", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// gateway names the node of the kithd that works; "" while none does.
func (n *Node) gateway(ctx context.Context, c client.Reader) (string, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(n.namespace), client.MatchingLabels{leader.Label: "true"}); err != nil {
		return "", fmt.Errorf("look which kithd works: %w", err)
	}
	for _, p := range pods.Items {
		if !v1alpha1.Ended(p.Status.Phase) && p.Spec.NodeName != "" {
			return p.Spec.NodeName, nil
		}
	}
	return "", nil
}

// set reads nodes and peers, and sets the overlay in the kernel accordingly.
func (n *Node) set(ctx context.Context, c client.Reader, gateway string) error {
	var nodes corev1.NodeList
	var peers v1alpha1.PeerList
	if err := errors.Join(c.List(ctx, &nodes), c.List(ctx, &peers)); err != nil {
		return fmt.Errorf("look which nodes and peers there are: %w", err)
	}
	plan, ok := overlay.PlanOf(overlay.Config{Self: n.cfg.Node, Pods: n.cfg.Pods}, world(gateway, nodes.Items, peers.Items))
	if !ok {
		n.inSync.Store(true)
		return nil
	}
	err := n.overlay.Set(plan)
	n.inSync.Store(err == nil)
	if err != nil {
		n.cfg.Log.Warn("the way between this node and the gateway's is not complete, trying again", "err", err)
	}
	return err
}

// world is what of the cluster concerns nodes.
func world(gateway string, nodes []corev1.Node, peers []v1alpha1.Peer) overlay.World {
	w := overlay.World{Gateway: gateway}
	for i := range nodes {
		if !isMachine(&nodes[i]) {
			continue
		}
		pods, _ := netip.ParsePrefix(nodes[i].Spec.PodCIDR) // the zero value of none
		w.Nodes = append(w.Nodes, overlay.Node{Name: nodes[i].Name, IP: overlay.AddressOf(&nodes[i]), Pods: pods})
	}
	for i := range peers {
		pair, _ := peers[i].Status.Network.Pair(netip.Prefix{}) // what cannot be read is led nowhere
		if pair.There.IsValid() {
			w.Peers = append(w.Peers, pair.There)
		}
		for _, m := range pair.Aliases {
			w.Peers = append(w.Peers, m.Alias)
		}
	}
	return w
}

// isMachine leaves out peers, and other virtual nodes.
func isMachine(node client.Object) bool {
	return node.GetLabels()["type"] != "virtual-kubelet" && !strings.HasPrefix(node.GetName(), v1alpha1.VirtualNodePrefix)
}

func machines() predicate.Predicate { return predicate.NewPredicateFuncs(isMachine) }

func nodeMoved(e event.UpdateEvent) bool {
	a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return overlay.AddressOf(a) != overlay.AddressOf(b) || a.Spec.PodCIDR != b.Spec.PodCIDR
}

func works(o client.Object) bool { return o.GetLabels()[leader.Label] == "true" }

// leave takes away what this process and those before it made, if their DaemonSet is gone. It stays while a pod is merely replaced: connections
// outlive that. That the process may not even ask means that its rights are gone already.
func (n *Node) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := client.New(n.cfg.REST, client.Options{Scheme: scheme()})
	if err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(n.cfg.DaemonSet, "/")
	var set appsv1.DaemonSet
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &set)
	if !gone(&set, err) {
		n.cfg.Log.Info("this process ends, and what it made stays", "err", err)
		return nil
	}
	n.cfg.Log.Info("Kith is being removed: nothing of it stays on this node")
	return n.overlay.Remove(fence.Table, fence.Limits, fence.Links, fence.Bandwidth, translate.Table)
}

func gone(set *appsv1.DaemonSet, err error) bool {
	if err == nil {
		return set.DeletionTimestamp != nil
	}
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
