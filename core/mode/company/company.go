// Package company is the side of a tether that runs other people's laptops as nodes: which laptops are accepted (TetherPolicy), which rights
// their users get in this cluster, and the proxy through which these reach its API server. Any kithd can do it. All state is in objects:
// Peer.spec.tethered says that this cluster runs the laptop; removing it ends the tether.
//
// The daemon makes one Company for the cluster and passes it the laptops' calls of the peer API; core/agree/relations asks it how to answer a
// laptop's request.
//
// It must never grant more than a TetherPolicy says, nor change an object that it did not create. What a laptop's user may do is decided by
// RBAC: this package only impersonates the user.
package company

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/audit"
)

// Config is what a Company needs.
type Config struct {
	Client   *ledger.Ledger
	Fresh    client.Reader // past the cache
	REST     *rest.Config  // to the API server, with every right there
	Roles    []string      // ClusterRoles that a TetherPolicy may give, anyRole for all that Kubernetes lets it
	Audit    *audit.Log    // of refusals
	Announce func(api.Event)
	Log      *slog.Logger
}

// Company runs laptops.
type Company struct {
	cfg  Config
	door *apiproxy.Door

	beginning sync.Mutex // held while a laptop's wish becomes a tether
	providing sync.Mutex // held while rights are given or taken

	mu      sync.Mutex
	granted map[string]rights // by Peer name
	asked   map[string]tries  // by Peer name
	pruned  bool              // what an earlier run left behind was looked for
}

// tries counts how often a laptop was asked for a new contract since it last was a node here.
type tries struct {
	n    int
	last time.Time
}

// New makes a Company.
func New(cfg Config) (*Company, error) {
	c := &Company{cfg: cfg, granted: map[string]rights{}, asked: map[string]tries{}}
	var err error
	c.door, err = c.newDoor()
	return c, err
}

// SetupWithManager registers what reacts to Peers and TetherPolicies.
func (c *Company) SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewControllerManagedBy(mgr).Named("tether-policies").
		For(&v1alpha1.TetherPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(reconcile.Func(c.judge)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("tether").
		For(&v1alpha1.Peer{}, builder.WithPredicates(concerned)).
		Watches(&v1alpha1.TetherPolicy{}, handler.EnqueueRequestsFromMapFunc(c.everybody), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return named(o.(*v1alpha1.Contract).Spec.Peer)
		}), builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.unsettled), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return named(o.GetLabels()[v1alpha1.LabelPeer])
		}), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false }, // administrators may change nodes: that is not reverted
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(controller.Options{NewQueue: queue.New}).
		Complete(c)
}

// concerned filters changes of Peers: only fields that this package reads matter.
var concerned = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	if was.Spec.Tethered == nil && is.Spec.Tethered == nil && is.Status.Tether == nil {
		return false
	}
	return was.Generation != is.Generation || !equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions) ||
		!equality.Semantic.DeepEqual(was.Status.Outgoing, is.Status.Outgoing) ||
		!equality.Semantic.DeepEqual(was.Status.Tether, is.Status.Tether) || was.Status.Node != is.Status.Node
}}

func named(peer string) []ctrl.Request {
	if peer == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: peer}}}
}

// everybody lists the laptops that a policy may select.
func (c *Company) everybody(context.Context, client.Object) (all []ctrl.Request) {
	for _, peer := range c.cfg.Client.Now().Peers {
		if peer.Spec.Tethered != nil {
			all = append(all, named(peer.Name)...)
		}
	}
	return all
}

// unsettled lists the laptops that may have lost rights with a deleted namespace.
func (c *Company) unsettled(ctx context.Context, ns client.Object) []ctrl.Request {
	c.mu.Lock()
	clear(c.granted)
	c.pruned = false
	c.mu.Unlock()
	return c.everybody(ctx, ns)
}

// policyFor is the policy that counts for a laptop; nil without one.
func (c *Company) policyFor(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.TetherPolicy, error) {
	var list v1alpha1.TetherPolicyList
	if err := c.cfg.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("look which TetherPolicy is for %s: %w", peer.Name, err)
	}
	return Select(list.Items, peer), nil
}
