package exposure

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// again is the time until a service that got no port is tried again: there is no event when a program closes its port.
const again = time.Minute

// Config is fixed for the life of an Exposure.
type Config struct {
	On        bool
	Addresses func() ([]netip.Addr, error) // of this laptop on its LANs, now; IPv4
	Log       *slog.Logger
}

// Exposure follows services and the laptop's addresses.
type Exposure struct {
	cfg   Config
	moved chan event.GenericEvent

	client   client.Client
	fresh    client.Reader // past the cache, which leaves out who wrote what
	recorder events.EventRecorder
	told     map[types.UID]string // what the owner was told of a service last
}

// New makes an Exposure; nothing is touched.
func New(cfg Config) *Exposure {
	return &Exposure{cfg: cfg, moved: make(chan event.GenericEvent, 1)}
}

// Moved tells that the laptop's addresses are others now. It may be called at any time.
func (e *Exposure) Moved() {
	select {
	case e.moved <- event.GenericEvent{Object: &corev1.Service{}}:
	default: // it will look anyway
	}
}

// SetupWithManager has services followed. Turned off, what there is from before is taken back once, and nothing is watched.
func (e *Exposure) SetupWithManager(mgr ctrl.Manager) error {
	e.client, e.fresh, e.recorder = mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("kith")
	if !e.cfg.On {
		return mgr.Add(manager.RunnableFunc(e.takeBack))
	}
	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(mgr).Named(owner).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(loadBalancers())).
		WatchesRawSource(source.Channel(e.moved, handler.EnqueueRequestsFromMapFunc(all))).
		WithOptions(controller.Options{
			NewQueue:    queue.New,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](200*time.Millisecond, 30*time.Second),
		}).
		Complete(reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) { return e.reconcile(ctx) }))
}

// loadBalancers lets through what is, or was, such a service: all others change often and matter nothing.
func loadBalancers() predicate.Predicate {
	is := func(o client.Object) bool {
		s, ok := o.(*corev1.Service)
		return ok && (s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0)
	}
	filter := predicate.NewPredicateFuncs(is)
	filter.UpdateFunc = func(e event.UpdateEvent) bool { return is(e.ObjectOld) || is(e.ObjectNew) }
	return filter
}

// takeBack removes this laptop's addresses from all services: the only work while nothing is exposed.
func (e *Exposure) takeBack(ctx context.Context) error {
	growing := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6, Cap: time.Minute}
	_ = growing.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_, err := e.reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("services keep this laptop's addresses for the moment, trying again", "err", err)
		}
		return err == nil, nil
	})
	return nil // it ends with ctx, or with success
}

func (e *Exposure) reconcile(ctx context.Context) (ctrl.Result, error) {
	addresses, err := e.addresses()
	if err != nil {
		return ctrl.Result{}, err
	}
	var services corev1.ServiceList
	if err := e.fresh.List(ctx, &services); err != nil {
		return ctrl.Result{}, fmt.Errorf("see which services to expose: %w", err)
	}
	var namespaces corev1.NamespaceList
	if err := e.fresh.List(ctx, &namespaces, client.HasLabels{v1alpha1.LabelConsumer}); err != nil {
		return ctrl.Result{}, fmt.Errorf("see which namespaces are others': %w", err)
	}
	guests := map[string]bool{}
	for _, n := range namespaces.Items {
		guests[n.Name] = true
	}
	busy := func(p port) bool {
		return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return listens(a, p) })
	}
	var result ctrl.Result
	refused := map[types.UID]string{}
	for _, s := range plan(services.Items, addresses, func(namespace string) bool { return guests[namespace] }, busy) {
		if s.write {
			if err := e.write(ctx, s); err != nil {
				return result, err
			}
		}
		if s.refused != "" {
			refused[s.service.UID], result.RequeueAfter = s.refused, again
			if e.told[s.service.UID] != s.refused {
				e.recorder.Eventf(s.service, nil, corev1.EventTypeWarning, "NotExposed", "Expose", "%s", s.refused)
			}
		}
	}
	e.told = refused
	return result, nil
}

func (e *Exposure) addresses() ([]netip.Addr, error) {
	if !e.cfg.On {
		return nil, nil
	}
	return e.cfg.Addresses()
}

func (e *Exposure) write(ctx context.Context, s step) error {
	var to []corev1.LoadBalancerIngress
	for _, ip := range s.ingress {
		to = append(to, corev1.LoadBalancerIngress{IP: ip})
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": s.service.ResourceVersion}, // what was decided upon, or nothing
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": to}},
	})
	if err != nil {
		return err
	}
	target := &corev1.Service{}
	target.Namespace, target.Name = s.service.Namespace, s.service.Name
	err = e.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body), client.FieldOwner(owner))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("expose service %s/%s: %w", s.service.Namespace, s.service.Name, err)
	}
	e.cfg.Log.Info("service exposed", "namespace", s.service.Namespace, "service", s.service.Name, "addresses", s.ingress)
	return nil
}

// listens reports whether a program of the laptop listens on a port of an address.
func listens(at netip.Addr, p port) bool {
	address := net.JoinHostPort(at.String(), strconv.Itoa(int(p.number)))
	var socket interface{ Close() error }
	var err error
	switch p.protocol {
	case corev1.ProtocolUDP:
		socket, err = net.ListenPacket("udp4", address)
	case corev1.ProtocolTCP:
		socket, err = net.Listen("tcp4", address)
	default:
		return false
	}
	if err != nil {
		return true
	}
	socket.Close()
	return false
}
