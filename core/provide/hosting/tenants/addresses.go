package tenants

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kith.dev/core/agree/kinds"
	queues "kith.dev/core/base/queue"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/provide/hosting/guests"
)

// Kernel translates the service addresses of guests' home clusters to those of the same services here. Set replaces the whole
// state: what is not in it is removed.
type Kernel interface {
	Set([]guestnet.Tenant) error
}

// Address starts the controllers that publish the address ranges of guests and that translate service addresses: see
// hosting.Host.Address.
func (t *Tenants) Address(mgr manager.Manager, networks string, kernel Kernel) error {
	t.networks, t.services = networks, &services{tenants: t, kernel: kernel}
	return t.services.watch(mgr)
}

// tellNetwork writes, for the CNI plugin, the ranges out of which guests in a namespace get their addresses. It runs before the first
// guest there; guests that run keep their address. In a namespace that is not, or no longer, a twin no guest can start.
func (t *Tenants) tellNetwork(namespace string) error {
	if t.networks == "" {
		return nil
	}
	t.telling.Lock() // so that an older state does not overwrite a newer one
	defer t.telling.Unlock()
	var err error
	if terms := t.contracts.TermsIn(namespace); t.contracts.Twin(namespace).Name == "" {
		err = guestnet.RemoveNetwork(t.networks, namespace)
	} else if terms != nil && terms.Guests != "" {
		var guests netip.Prefix
		if guests, err = netip.ParsePrefix(terms.Guests); err == nil {
			guests6, _ := netip.ParsePrefix(terms.Guests6) // the zero value where there is none, as with the part
			part, _ := netip.ParsePrefix(terms.Part)
			err = guestnet.WriteNetwork(t.networks, namespace, guests, part, guests6)
		}
	}
	if err != nil {
		return fmt.Errorf("telling the range of guests in namespace %s: %w", namespace, err)
	}
	return nil
}

// Gone is for namespaces that are twins no more, unless others of their names are by now.
func (t *Tenants) Gone(namespaces ...string) {
	for _, namespace := range namespaces {
		if err := t.tellNetwork(namespace); err != nil {
			t.log.Warn("guests may start in a namespace of which that is not known to be right", "namespace", namespace, "err", err)
		}
	}
}

// sweep forgets the namespaces that went while no daemon ran.
func (t *Tenants) sweep() {
	files, _ := filepath.Glob(filepath.Join(t.networks, "[a-z0-9]*"))
	for _, file := range files {
		t.Gone(filepath.Base(file))
	}
}

// NetworksChanged has the kernel told of what was agreed on with consumers.
func (t *Tenants) NetworksChanged() {
	if t.services != nil {
		t.services.inbox.Add(types.NamespacedName{})
	}
}

// services keeps the kernel in step with the Services in twins.
type services struct {
	tenants *Tenants
	kernel  Kernel
	inbox   queues.Inbox

	// Of the one worker.
	last  []guestnet.Tenant               // what the kernel was given last; nil: nothing yet
	links map[types.UID][sha256.Size]byte // the variables that were told of each namespace
	next  time.Time                       // not before that
}

// gatherFor is how long news of Services is gathered before all are looked at again, eachService how much longer for each there is.
const (
	gatherFor   = 20 * time.Millisecond
	eachService = 50 * time.Microsecond
)

func (s *services) watch(mgr manager.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return ctrl.NewControllerManagedBy(mgr).Named("kith-hosting-services").
		Watches(&corev1.Service{}, all, builder.WithPredicates(guests.Managed(), guests.Updates(addressChanged))).
		WatchesRawSource(&s.inbox).
		WithOptions(controller.Options{NewQueue: queues.New}).
		Complete(s)
}

func addressChanged(was, is client.Object) bool {
	a, b := was.(*corev1.Service), is.(*corev1.Service)
	return a.UID != b.UID || a.Annotations[kinds.AnnotationClusterIP] != b.Annotations[kinds.AnnotationClusterIP] ||
		a.Annotations[kinds.AnnotationClusterIPv6] != b.Annotations[kinds.AnnotationClusterIPv6] || !equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// Reconcile implements reconcile.Reconciler: it looks at all Services in twins, and has the kernel and guests know those that lead somewhere.
func (s *services) Reconcile(ctx context.Context, _ ctrl.Request) (result ctrl.Result, err error) {
	if wait := time.Until(s.next); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := s.tenants.contracts.Load(ctx); err != nil {
		return result, err
	}
	var list corev1.ServiceList
	if err := s.tenants.client.List(ctx, &list, guests.Selector, client.UnsafeDisableDeepCopy); err != nil {
		return result, fmt.Errorf("look for services of consumers: %w", err)
	}
	s.next = time.Now().Add(gatherFor + time.Duration(len(list.Items))*eachService)
	of := func(namespace string) (n grants.Network) {
		if terms := s.tenants.contracts.TermsIn(namespace); terms != nil {
			n = terms.Network
		}
		return n
	}
	now, believed, left := tenantsOf(s.tenants.contracts.Networks(), list.Items, of)
	if s.last == nil {
		s.tenants.sweep()
	}
	if !reflect.DeepEqual(s.last, now) { // which is never nil
		for guests, n := range left {
			s.tenants.log.Warn("a consumer has more services than its guests can be led to", "guests", guests, "most", guestnet.MaxServices, "left", n)
		}
		if err := s.kernel.Set(now); err != nil {
			return result, fmt.Errorf("lead guests to the services of their homes: %w", err)
		}
		s.last = now
	}
	return result, s.tellLinks(ctx, believed)
}

// tenantsOf gives each consumer's services: what of it is believed (guestnet.Believe). left is how many were too many, by the range of the
// consumer's guests. of gives the network of the consumer whose namespace it is. What one consumer says never makes the whole unusable.
func tenantsOf(networks []grants.Network, list []corev1.Service, of func(namespace string) grants.Network) (all []guestnet.Tenant, believed map[string][]*corev1.Service, left map[string]int) {
	all = []guestnet.Tenant{}
	within := map[string]guestnet.Range{} // by the range of guests
	for _, n := range networks {
		guests, err := netip.ParsePrefix(n.Guests)
		if _, known := within[n.Guests]; err != nil || guests.Bits() != netplan.GuestBits || known {
			continue
		}
		services, _ := netip.ParsePrefix(n.Services)
		services6, _ := netip.ParsePrefix(n.Services6)
		within[n.Guests] = guestnet.Range{services, services6}
		guests6, _ := netip.ParsePrefix(n.Guests6)
		all = append(all, guestnet.Tenant{Guests: guests, Guests6: guests6, Shared: n.SharedPods()})
	}
	leads, believed, left := guestnet.Believe(list, func(namespace string) (home string, named guestnet.Range) {
		guests := of(namespace).Guests
		return guests, within[guests]
	})
	for i := range all {
		if all[i].Services = leads[all[i].Guests.String()]; all[i].Services == nil {
			all[i].Services = guestnet.Services{}
		}
	}
	return all, believed, left
}
