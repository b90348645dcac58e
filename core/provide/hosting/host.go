package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/api/v1alpha1"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/custom"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/exports"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
	"kith.dev/core/provide/hosting/tenants"
	"kith.dev/core/provide/hosting/volumes"
	"kith.dev/core/trust/audit"
)

// Host is the provider's side of every contract: what is granted, the tenants and their guests. Make it with New. All methods may
// be called by many at once.
type Host struct {
	*grants.Contracts
	*grants.Allocations
	*tenants.Tenants
	*tenants.Homes
	*guests.Reconciler
	*guests.Binder
	*door.Counter
	*volumes.Claims
	*custom.Objects
	*exports.Exports

	client client.Client
	views  *views
	usage  *usage
	log    *slog.Logger
}

// New registers the provider's reconcilers with mgr; they work while mgr runs. The identity mgr uses must be
// allowed what the tenants are, and more: it binds roles, makes namespaces and deletes pods. Refusals are noted in
// audits, which may be nil.
func New(mgr manager.Manager, agreed *ledger.Ledger, audits *audit.Log, log *slog.Logger) (*Host, error) {
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("hosting: client for nodes: %w", err)
	}
	contracts := grants.NewContracts(mgr.GetAPIReader(), agreed, log)
	h := &Host{client: mgr.GetClient(), Contracts: contracts, Allocations: grants.NewAllocations(), log: log}
	h.Counter = &door.Counter{Contracts: h.Contracts, Raw: core.RESTClient()}
	h.usage = &usage{nodes: core.RESTClient(), answers: expiring.NewExpiring()}
	h.Tenants = tenants.New(h.client, mgr.GetAPIReader(), h.Contracts, h.Allocations, audits, log)
	h.Homes = tenants.NewHomes(mgr, h.Contracts, log)
	h.Claims = volumes.New(h.client, mgr.GetAPIReader(), h.Contracts, h.Allocations, audits, log)
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1 // consumers have limits of their own
	objects, err := dynamic.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("hosting: client for custom resources: %w", err)
	}
	h.Objects = custom.New(objects, h.Contracts, log)
	h.Contracts.OnShut(h.ShutObjects)
	h.Exports = exports.New(h.Contracts)
	h.Contracts.OnShut(h.ShutServices)
	if h.Reconciler, err = guests.New(mgr, h.Contracts, h.Allocations, audits, log); err != nil {
		return nil, err
	}
	h.Binder = h.Reconciler.Binder()
	h.views = newViews(h.Contracts, audits, log)
	watchUse := func(mgr manager.Manager) error { return h.Contracts.WatchUse(mgr, h.Allocations) }
	for _, watch := range []func(manager.Manager) error{h.Reconciler.Watch, h.Binder.Watch, h.watch, watchUse, h.Tenants.Watch, h.Homes.Watch, h.Claims.Watch, h.watchForViews} {
		if err := watch(mgr); err != nil {
			return nil, fmt.Errorf("hosting: %w", err)
		}
	}
	return h, nil
}

// Confine names the RuntimeClass that every guest must have: the fence is around those alone. Call it before the manager
// starts; with "" guests have none.
func (h *Host) Confine(class string) { h.Reconciler.Class, h.Tenants.Fenced = class, class != "" }

// Refuses reports whether guests that need the RuntimeClass are refused: it cannot be combined with theirs.
func (h *Host) Refuses(class string) bool {
	return class != "" && h.Reconciler.Class != "" && guestnet.With(class) == ""
}

// Address gives guests addresses out of the range agreed on with their home cluster, and lets them reach the services there by their
// ClusterIPs at home. networks is the directory that the CNI plugin of guest links reads (guestnet.WriteNetwork). Call it before mgr starts;
// do not call it where another network plugin assigns guests' addresses (then see Translate).
func (h *Host) Address(mgr manager.Manager, networks string, kernel tenants.Kernel) error {
	h.Reconciler.Addressed = true
	return h.Tenants.Address(mgr, networks, kernel)
}

// Translate is for clusters where another network plugin assigns guests' addresses, out of the range pods. Addresses in what is exchanged with
// their home clusters are mapped to and from the ranges agreed on. Call it before mgr starts.
func (h *Host) Translate(pods netip.Prefix) {
	h.Contracts.Pods, h.Reconciler.Pods, h.Reconciler.Translated = pods, pods, true
}

// AskHomes is for an engine that has homes asked for the images of their guests (core/provide/images). Call it before mgr starts.
func (h *Host) AskHomes() { h.Contracts.FromHome = true }

// CloseWhile refuses new guests while closed gives a reason. Call it before mgr starts.
func (h *Host) CloseWhile(closed func() string) { h.Reconciler.Closed = closed }

// CacheOptions are for the manager's cache: of no object its managed fields, of Namespaces those alone that are Kith's word
// (grants.TwinOf); of OffloadedPods the templates as text. Other rooms read all Pods, so all are there.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			guests.NewOffloaded(): {Transform: guests.Textual},
			&corev1.Namespace{}:   {Transform: grants.OwnFields},
		},
	}
}

// reconcileTerms follows contracts, peers, policies and nodes, all of them at once.
func (h *Host) reconcileTerms(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	next, err := h.Contracts.Refresh(ctx)
	if err != nil || next.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Until(next), time.Millisecond)}, nil
}

// reconcileContract brings what is here under a contract in step with its terms, which have changed.
func (h *Host) reconcileContract(ctx context.Context, r ctrl.Request) (result ctrl.Result, err error) {
	h.Allocations.MarkDirty(r.Name)
	if t := h.Contracts.Of(r.Name); t.InForce(time.Now()) {
		err = h.Tenants.Reapply(ctx, t)
	}
	if t := h.Contracts.Of(r.Name); t != nil {
		h.views.partsChanged(t.Consumer.ID)
	}
	h.Objects.KindsChanged(r.Name)
	h.Tenants.NetworksChanged()
	h.Reconciler.Wake(h.Allocations.Under(r.Name))
	return result, err
}

// watch registers what changes the terms.
func (h *Host) watch(mgr manager.Manager) error {
	// One key for all: whatever changed, everything is read again.
	anew := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err := ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-contracts").
		Watches(&v1alpha1.Contract{}, anew, builder.WithPredicates(guests.Updates(contractChanged))).
		Watches(&v1alpha1.Peer{}, anew, builder.WithPredicates(guests.Updates(peerChanged))).
		Watches(&v1alpha1.SharingPolicy{}, anew, builder.WithPredicates(guests.Updates(guests.SpecOrLabels))).
		Watches(&corev1.Node{}, anew, builder.WithPredicates(guests.Updates(nodeChanged))).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(reconcile.Func(h.reconcileTerms))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-changes").WatchesRawSource(&h.Contracts.Changed).
		WithOptions(controller.Options{NewQueue: queues.New}).Complete(reconcile.Func(h.reconcileContract))
}

// nodeChanged: of the nodes that guests run on, whether they can have user namespaces there, which the engine says some moments after it has started, and how
// much there is; of those of providers, whether guests go on to them now.
func nodeChanged(was, is client.Object) bool {
	a, b := was.(*corev1.Node), is.(*corev1.Node)
	if b.Labels[v1alpha1.LabelPeer] != "" {
		return (grants.NotThere(a) == "") != (grants.NotThere(b) == "") || a.Labels[corev1.LabelArchStable] != b.Labels[corev1.LabelArchStable]
	}
	return v1alpha1.Fenced(a) != v1alpha1.Fenced(b) || !equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) ||
		was.GetAnnotations()[v1alpha1.AnnotationUserNamespaces] != is.GetAnnotations()[v1alpha1.AnnotationUserNamespaces]
}

func contractChanged(was, is client.Object) bool {
	a, b := was.(*v1alpha1.Contract), is.(*v1alpha1.Contract)
	return guests.SpecOrLabels(was, is) || a.Status.State != b.Status.State || !equality.Semantic.DeepEqual(a.Status.Lowering, b.Status.Lowering)
}

// peerChanged: of Peers, also the addresses that were agreed on.
func peerChanged(was, is client.Object) bool {
	network := func(o client.Object) grants.Network { return grants.NetworkOf(o.(*v1alpha1.Peer), netip.Prefix{}) }
	onward := func(o client.Object) (list [2]any) {
		if n := o.(*v1alpha1.Peer).Status.Network; n != nil {
			list = [2]any{n.Relayed, n.Onward}
		}
		return list
	}
	return guests.SpecOrLabels(was, is) || network(was) != network(is) || !reflect.DeepEqual(onward(was), onward(is))
}
