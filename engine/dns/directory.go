package dns

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

const (
	byAddress = "address"
	byRange   = "range"
)

// Annotations that kithd writes (core/agree/kinds, AnnotationClusterIP and AnnotationSpace).
const (
	clusterIP  = "kith.dev/cluster-ip"    // of a twin service: its address at home. Its home says it, and only guests of that home are told
	clusterIP6 = "kith.dev/cluster-ipv6"  // and its IPv6 one
	space      = "kith.dev/address-space" // of a twin namespace: the ranges of its home's address space, that of the guests here in front
)

// watchedTwins is the directory: it watches twin namespaces and the services in them. No two homes have one range for their guests, so
// nothing has to be learned of a guest that starts.
type watchedTwins struct {
	namespaces, twins cache.SharedIndexInformer
	synced            func() bool
}

// watchTwins watches until ctx ends. Before all that the API server has is here nobody is known.
func watchTwins(ctx context.Context, client kubernetes.Interface) (*watchedTwins, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedBy }),
		informers.WithTransform(essence))
	w := &watchedTwins{namespaces: factory.Core().V1().Namespaces().Informer(), twins: factory.Core().V1().Services().Informer()}
	w.synced = func() bool { return w.namespaces.HasSynced() && w.twins.HasSynced() }
	if err := w.namespaces.AddIndexers(cache.Indexers{byRange: rangeOf}); err != nil {
		return nil, err
	}
	if err := w.twins.AddIndexers(cache.Indexers{byAddress: servedAt}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	return w, nil
}

// essence drops what nobody here reads.
func essence(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Namespace:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}
		if v1alpha1.IsTwin(o) {
			ns.Labels = map[string]string{v1alpha1.LabelHomeNamespace: cmp.Or(o.Labels[v1alpha1.LabelOriginNamespace], o.Labels[v1alpha1.LabelHomeNamespace])}
			ns.Annotations = map[string]string{space: o.Annotations[space]}
		}
		return ns, nil
	case *corev1.Service:
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Annotations: map[string]string{clusterIP: o.Annotations[clusterIP], clusterIP6: o.Annotations[clusterIP6]},
			},
			Spec: corev1.ServiceSpec{ClusterIPs: o.Spec.ClusterIPs},
		}, nil
	}
	return o, nil
}

// servicesOf gives the twin of a service for each address that it has here, with the one of that family at home; the zero value when it has
// none there.
func servicesOf(o any) (list []service) {
	of, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	for _, ip := range of.Spec.ClusterIPs {
		here, err := netip.ParseAddr(ip)
		if err != nil {
			continue // it is headless
		}
		said := of.Annotations[clusterIP]
		if here.Is6() {
			said = of.Annotations[clusterIP6]
		}
		home, err := netip.ParseAddr(said)
		if err != nil || home.Is4() != here.Is4() {
			home = netip.Addr{}
		}
		list = append(list, service{of.Namespace, home, here})
	}
	return list
}

func servedAt(o any) (at []string, _ error) {
	for _, s := range servicesOf(o) {
		at = append(at, s.here.String())
		if s.home.IsValid() {
			at = append(at, s.home.String())
		}
	}
	return at, nil
}

// services implements directory.
func (w *watchedTwins) services(at netip.Addr) (list []service) {
	found, _ := w.twins.GetIndexer().ByIndex(byAddress, at.String()) // there is the index
	for _, o := range found {
		list = append(list, slices.DeleteFunc(servicesOf(o), func(s service) bool { return s.home != at && s.here != at })...)
	}
	return list
}

// serves implements directory.
func (w *watchedTwins) serves(namespace, name string) bool {
	_, exists, err := w.twins.GetIndexer().GetByKey(namespace + "/" + name)
	return err == nil && exists
}

// isTwin implements directory.
func (w *watchedTwins) isTwin(namespace string) bool {
	o, exists, err := w.namespaces.GetIndexer().GetByKey(namespace)
	return err == nil && exists && o.(*corev1.Namespace).Labels != nil
}

func rangeOf(o any) ([]string, error) {
	if ns, ok := o.(*corev1.Namespace); ok && ns.Annotations[space] != "" {
		guests, _, _ := strings.Cut(ns.Annotations[space], ",")
		return []string{guests}, nil
	}
	return nil, nil
}

// orAtHome has guests find the pods that their home has elsewhere, too. Which there are nobody here knows, so each address does.
func (w *watchedTwins) orAtHome(here podFinder) podFinder {
	return func(ctx context.Context, namespace string, ip netip.Addr) (bool, error) {
		o, exists, err := w.namespaces.GetIndexer().GetByKey(namespace)
		if _, ours := guestOf(ctx); ours && err == nil && exists {
			_, elsewhere, _ := strings.Cut(o.(*corev1.Namespace).Annotations[space], ",")
			for r := range strings.SplitSeq(elsewhere, ",") {
				if p, err := netip.ParsePrefix(r); err == nil && p.Contains(ip) {
					return true, nil
				}
			}
		}
		return here(ctx, namespace, ip)
	}
}

// tenantOf implements directory.
func (w *watchedTwins) tenantOf(guest netip.Addr) (tenant, bool) {
	of, _ := guest.Prefix(netplan.GuestBits) // the zero value is nobody's
	found, _ := w.namespaces.GetIndexer().ByIndex(byRange, of.String())
	if len(found) == 0 || !w.synced() {
		return tenant{}, false
	}
	t := tenant{twins: map[string]string{}, known: w}
	for _, o := range found {
		ns := o.(*corev1.Namespace)
		if home := ns.Labels[v1alpha1.LabelHomeNamespace]; t.twins[home] == "" || ns.Name < t.twins[home] {
			t.twins[home] = ns.Name
		}
	}
	return t, true
}
