package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/audit"
	"kith.dev/core/hosting/door"
	"kith.dev/core/hosting/grants"
	"kith.dev/core/hosting/guests"
	"kith.dev/core/hosting/tenants"
)

// Host is the provider's side of every contract: what is granted, the tenants and their guests. Make it with New. All methods may
// be called by many at once.
type Host struct {
	*grants.Contracts
	*grants.Book
	*tenants.Tenants
	*tenants.Homes
	*guests.Reconciler
	*door.Counter

	client client.Client
	views  *views
	usage  *usage
	log    *slog.Logger
}

// New registers the provider's reconcilers with mgr; they work while mgr runs. The identity mgr uses must be
// allowed what the tenants are, and more: it binds roles, makes namespaces and deletes pods. Refusals are noted in
// audits, which may be nil.
func New(mgr manager.Manager, audits *audit.Log, log *slog.Logger) (*Host, error) {
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("hosting: client for nodes: %w", err)
	}
	h := &Host{client: mgr.GetClient(), Contracts: grants.NewContracts(mgr.GetAPIReader(), mgr.GetClient(), log), Book: grants.NewBook(), log: log}
	h.Counter = &door.Counter{Contracts: h.Contracts, Raw: core.RESTClient()}
	h.usage = &usage{nodes: core.RESTClient(), now: time.Now, known: map[string]reading{}}
	h.Tenants = tenants.New(h.client, mgr.GetAPIReader(), h.Contracts, h.Book, audits, log)
	h.Homes = tenants.NewHomes(mgr, h.Contracts, log)
	if h.Reconciler, err = guests.New(mgr, h.Contracts, h.Book, audits, log); err != nil {
		return nil, err
	}
	h.views = newViews(h.Contracts, audits, log)
	for _, watch := range []func(manager.Manager) error{h.Reconciler.Watch, h.watch, h.Tenants.Watch, h.Homes.Watch, h.watchForViews} {
		if err := watch(mgr); err != nil {
			return nil, fmt.Errorf("hosting: %w", err)
		}
	}
	return h, nil
}

// Confine names the RuntimeClass that every guest must have: the fence is around those alone. Call it before the manager
// starts; with "" guests have none.
func (h *Host) Confine(class string) { h.Reconciler.Class, h.Tenants.Fenced = class, class != "" }

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

// reconcileContracts follows contracts, peers, policies and nodes, all of them at once.
func (h *Host) reconcileContracts(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	next, err := h.Contracts.Refresh(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := h.Contracts.TakeChanged()
	for _, id := range changed {
		h.Book.MarkDirty(id)
		t := h.Contracts.Of(id)
		if !t.InForce(time.Now()) {
			continue
		}
		if again := h.Tenants.Reapply(ctx, t); again != nil {
			h.Contracts.MarkChanged(id)
			err = again
		}
	}
	h.Reconciler.Wake(h.Book.RefusedUnder(changed))
	if err != nil || next.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Until(next), time.Millisecond)}, nil
}
