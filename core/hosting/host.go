package hosting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
	"kith.dev/core/installed"
)

// Host is the provider's side of every contract. Make it with New. All methods may be called by many at once.
type Host struct {
	client     client.Client
	contracts  *contracts
	tenants    *tenants
	book       *book
	reconciler *reconciler
	views      *views
	told       told
	usage      *usage
	homes      *homes
	paces      sync.Map       // pacer by consumer, of its messages about policies
	raw        rest.Interface // of this cluster's API server, any path
	log        *slog.Logger
}

// New registers the provider's reconcilers with mgr; they work while mgr runs. The identity mgr uses must be
// allowed what the tenants are, and more: it binds roles, makes namespaces and deletes pods. Refusals are noted in
// audits, which may be nil.
func New(mgr manager.Manager, audits *audit.Log, log *slog.Logger) (*Host, error) {
	checker, err := newChecker()
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("hosting: client for nodes: %w", err)
	}
	live := mgr.GetAPIReader()
	h := &Host{client: mgr.GetClient(), contracts: newContracts(live, log), book: newBook(), told: told{last: map[string]telling{}}, log: log}
	h.contracts.cached, h.raw = h.client, core.RESTClient()
	h.usage = &usage{nodes: h.raw, now: time.Now, known: map[string]reading{}}
	h.tenants = &tenants{client: h.client, live: live, contracts: h.contracts, book: h.book, audits: audits, log: log}
	h.reconciler = &reconciler{
		client: h.client, cached: mgr.GetCache(), live: live,
		contracts: h.contracts, book: h.book, rules: rules{checker: checker},
		events: mgr.GetEventRecorder("kith-hosting"), audits: audits, log: log, now: time.Now,
		memos: map[types.NamespacedName]memo{}, told: map[string]*rate.Limiter{},
	}
	h.homes = &homes{client: h.client, live: live, contracts: h.contracts, log: log, told: map[string]home{}, marked: map[string]map[types.NamespacedName]mark{}}
	h.views = newViews(h.contracts, audits, log)
	if err := h.watch(mgr); err != nil {
		return nil, fmt.Errorf("hosting: %w", err)
	}
	if err := h.watchForViews(mgr); err != nil {
		return nil, fmt.Errorf("hosting: %w", err)
	}
	return h, nil
}

// ResolveBy has guests ask the resolver for names. Call it before the manager starts.
func (h *Host) ResolveBy(r Resolver) { h.reconciler.resolver = r }

// Confine names the RuntimeClass that every guest must have: the fence is around those alone. Call it before the manager
// starts; with "" guests have none.
func (h *Host) Confine(class string) { h.reconciler.class = class }

// CacheOptions are for the manager's cache: of no object its managed fields; of OffloadedPods the templates as text. Other rooms
// read all Pods, so all are there.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{newOffloaded(): {Transform: textual}},
	}
}

// Install applies what every tenant needs: the ClusterRole kith:tenant, and first the admission policies that bound what
// it permits; and the PriorityClass of guests. Idempotent.
func (h *Host) Install(ctx context.Context) error {
	bounded, err := h.tenants.installBounds(ctx)
	if err != nil {
		return err
	}
	if err := h.tenants.apply(ctx, tenantClusterRole(bounded)); err != nil {
		return fmt.Errorf("installing ClusterRole %s: %w", tenantRole, err)
	}
	err = h.tenants.apply(ctx, guestPriority())
	if installed.Unchangeable("PriorityClass", err) { // another stands under its name
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.GuestPriorityClass}}
		if err = client.IgnoreNotFound(h.tenants.client.Delete(ctx, class)); err == nil {
			err = h.tenants.apply(ctx, guestPriority())
		}
	}
	if err != nil {
		return fmt.Errorf("installing PriorityClass %s: %w", v1alpha1.GuestPriorityClass, err)
	}
	return nil
}

// EnsureNamespace makes, or finds, the twin of the consumer's namespace home and gives its name: that which it has
// already, else <home>-<short id>; with mapping SameName that of home, where the policy allows it, or an error. Errors
// a consumer may read are *api.Error: Invalid, Conflict, Forbidden (no contract in force), NotReady.
func (h *Host) EnsureNamespace(ctx context.Context, contract *v1alpha1.Contract, consumer Consumer, home string, mapping v1alpha1.NamespaceMapping) (twin string, err error) {
	return h.tenants.ensure(ctx, contract, consumer, home, mapping)
}

// ReleaseNamespace begins to clear the twin of home away, guests with their grace period, 35 s at most, first; that goes on by
// itself. It reports whether there is anything of it, and may be called again.
func (h *Host) ReleaseNamespace(ctx context.Context, contract *v1alpha1.Contract, home string) (there bool, err error) {
	return h.tenants.release(ctx, contract.Spec.ID, home)
}

// EndContract takes the contract out of force for good, shuts the door to the consumer (unless another
// contract with it is in force) and clears away everything under it. It takes as long as the guests' grace
// periods do, 95 s at most, and may be called again, after a restart too, until it gives nil.
func (h *Host) EndContract(ctx context.Context, contract *v1alpha1.Contract) error {
	if err := h.tenants.endContract(ctx, contract.Spec.ID); err != nil {
		return fmt.Errorf("ending contract %s: %w", contract.Name, err)
	}
	return nil
}

// Used is the sum of the requests of the guests under the contract (its spec.id).
func (h *Host) Used(contractID string) corev1.ResourceList { return h.book.used(contractID) }

// Admitted says whether a contract with the consumer (identity.ID.String) is in force, and how many twin
// namespaces it has. It is the Door's Access.
func (h *Host) Admitted(consumerID string) (namespaces int, ok bool) {
	return h.contracts.Admitted(consumerID)
}

// OnShut has f called whenever the last contract with a consumer stopped being in force: give it Door.Shut.
func (h *Host) OnShut(f func(consumerID string)) {
	h.contracts.mu.Lock()
	defer h.contracts.mu.Unlock()
	h.contracts.shut = append(h.contracts.shut, f)
}

// OnRefused has f called whenever other guests than before are refused: no object need change with that. f must not call back.
func (h *Host) OnRefused(f func()) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.book.refused = f
}

// reconcileContracts follows contracts, peers, policies and nodes, all of them at once.
func (h *Host) reconcileContracts(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	next, err := h.contracts.refresh(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := h.contracts.takeChanged()
	for _, id := range changed {
		h.book.markDirty(id)
		t := h.contracts.of(id)
		if !t.inForce(time.Now()) {
			continue
		}
		if again := h.tenants.reapply(ctx, t); again != nil {
			h.contracts.markChanged(id)
			err = again
		}
	}
	h.reconciler.wake(h.book.refusedUnder(changed))
	if err != nil || next.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(time.Until(next), time.Millisecond)}, nil
}
