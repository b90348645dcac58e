package dns

import (
	"bytes"
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
)

const (
	byAddress  = "address"
	byConsumer = "consumer"
)

// clusterIP is the annotation of a twin service that says its address at home (core/kinds, AnnotationClusterIP). Its home writes it, and
// only guests of that home are told.
const clusterIP = "kith.dev/cluster-ip"

// watchedGuests is the directory: it watches guests, twin namespaces and the services in them.
type watchedGuests struct{ pods, namespaces, twins cache.SharedIndexInformer }

// watchGuests watches until ctx ends. Before the first answer of the API server nobody is known.
func watchGuests(ctx context.Context, client kubernetes.Interface) (*watchedGuests, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedBy }),
		informers.WithTransform(essence))
	w := &watchedGuests{factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer(), factory.Core().V1().Services().Informer()}
	if err := w.pods.AddIndexers(cache.Indexers{byAddress: addressesOf}); err != nil {
		return nil, err
	}
	if err := w.namespaces.AddIndexers(cache.Indexers{byConsumer: consumerOf}); err != nil {
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
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp},
			Status:     corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}, nil
	case *corev1.Namespace:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}
		if isTwin(o) {
			ns.Labels = map[string]string{
				v1alpha1.LabelConsumer: o.Labels[v1alpha1.LabelConsumer], v1alpha1.LabelHomeNamespace: o.Labels[v1alpha1.LabelHomeNamespace],
			}
		}
		return ns, nil
	case *corev1.Service:
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Annotations: map[string]string{clusterIP: o.Annotations[clusterIP]},
			},
			Spec: corev1.ServiceSpec{ClusterIP: o.Spec.ClusterIP},
		}, nil
	}
	return o, nil
}

// serviceOf gives the twin of a service that has an address at home.
func serviceOf(o any) (s service, ok bool) {
	of, ok := o.(*corev1.Service)
	if !ok {
		return service{}, false
	}
	home, err := netip.ParseAddr(of.Annotations[clusterIP])
	here, errHere := netip.ParseAddr(of.Spec.ClusterIP)
	return service{of.Namespace, home, here}, err == nil && errHere == nil && home.Is4() && here.Is4()
}

func servedAt(o any) ([]string, error) {
	if s, ok := serviceOf(o); ok {
		return []string{s.home.String(), s.here.String()}, nil
	}
	return nil, nil
}

// services implements directory.
func (w *watchedGuests) services(at netip.Addr) (list []service) {
	found, err := w.twins.GetIndexer().ByIndex(byAddress, at.String())
	if err != nil {
		return nil
	}
	for _, o := range found {
		if s, ok := serviceOf(o); ok {
			list = append(list, s)
		}
	}
	return list
}

// isTwin implements directory.
func (w *watchedGuests) isTwin(namespace string) bool {
	o, exists, err := w.namespaces.GetIndexer().GetByKey(namespace)
	return err == nil && exists && o.(*corev1.Namespace).Labels[v1alpha1.LabelConsumer] != ""
}

// isTwin reports whether a namespace with the labels of a twin is one, as core/hosting sees it: labels are copied to others too.
func isTwin(ns *corev1.Namespace) bool {
	home, consumer := ns.Labels[v1alpha1.LabelHomeNamespace], ns.Labels[v1alpha1.LabelConsumer]
	if ns.Name == home {
		return slices.ContainsFunc(ns.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == "kith" && e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:`+v1alpha1.LabelConsumer+`"`))
		})
	}
	start, ok := endsIn(ns.Name, consumer)
	if !ok || start == home {
		return ok
	}
	const hash = len("-12345678") // a long name is cut, and this put in its place
	return len(home) > 63-len("-1234567") && len(start) > hash && strings.HasPrefix(home, strings.TrimRight(start[:len(start)-hash], "-"))
}

// addressesOf: a pod that ended has given its address back.
func addressesOf(o any) (all []string, _ error) {
	pod, ok := o.(*corev1.Pod)
	if !ok || v1alpha1.Ended(pod.Status.Phase) {
		return nil, nil
	}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all, nil
}

func consumerOf(o any) ([]string, error) {
	if ns, ok := o.(*corev1.Namespace); ok && ns.Labels[v1alpha1.LabelConsumer] != "" {
		return []string{ns.Labels[v1alpha1.LabelConsumer]}, nil
	}
	return nil, nil
}

// tenantOf implements directory. While there is one consumer only, every guest is its own: nobody has to wait.
func (w *watchedGuests) tenantOf(guest netip.Addr) (tenant, bool) {
	found, err := w.pods.GetIndexer().ByIndex(byAddress, guest.String())
	if err != nil {
		return tenant{}, false
	}
	if len(found) == 0 {
		all := w.namespaces.GetIndexer().ListIndexFuncValues(byConsumer)
		if len(all) != 1 {
			return tenant{}, false
		}
		return w.tenant(all[0], "")
	}
	pod := found[0].(*corev1.Pod)
	for _, other := range found[1:] { // the address of one that is just leaving, given to the next
		if p := other.(*corev1.Pod); pod.CreationTimestamp.Before(&p.CreationTimestamp) {
			pod = p
		}
	}
	own, exists, err := w.namespaces.GetIndexer().GetByKey(pod.Namespace)
	if err != nil || !exists {
		return tenant{}, false
	}
	return w.tenant(own.(*corev1.Namespace).Labels[v1alpha1.LabelConsumer], pod.Namespace)
}

func (w *watchedGuests) tenant(consumer, here string) (tenant, bool) {
	all, err := w.namespaces.GetIndexer().ByIndex(byConsumer, consumer)
	if err != nil {
		return tenant{}, false
	}
	t := tenant{here: here, twins: map[string]string{}, services: w.services}
	for _, o := range all {
		ns := o.(*corev1.Namespace)
		if home := ns.Labels[v1alpha1.LabelHomeNamespace]; t.twins[home] == "" || ns.Name < t.twins[home] {
			t.twins[home] = ns.Name
		}
	}
	return t, true
}
