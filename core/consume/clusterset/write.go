package clusterset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// errTaken says that somebody else made a ServiceImport of the name.
var errTaken = errors.New("somebody else made a ServiceImport of this name, and it stays as it is")

// write makes what is imported what it is to be: a ServiceImport, which owns the rest; for one with an address a service that has it; and a slice for each
// that a cluster has.
func (s *Set) write(ctx context.Context, here *place, key types.NamespacedName, all []from, m *merged) error {
	present, _ := here.slices.GetIndexer().ByIndex(byImport, key.Name)
	endpoints := slices.DeleteFunc(typed[discoveryv1.EndpointSlice](present), func(o *discoveryv1.EndpointSlice) bool { return !isOurs(o) })
	var held bool
	heard := map[string]bool{}
	for _, e := range all {
		heard[e.cluster] = true
	}
	keep := func(o *discoveryv1.EndpointSlice) bool {
		cluster := o.Labels[mcs.LabelSourceCluster]
		return !heard[cluster] && cluster != s.cfg.Self && s.held(cluster)
	}
	for _, o := range endpoints {
		held = held || keep(o)
	}
	have := get[mcs.ServiceImport](here.imports, key.Namespace, key.Name)
	switch {
	case len(all) == 0 && held:
		return nil
	case len(all) == 0:
		return s.remove(ctx, here, key, have, endpoints)
	case have != nil && !isOurs(have):
		return errTaken
	}
	is, err := s.writeImport(ctx, key, have, m, held)
	if err != nil || is == nil {
		return err
	}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(is, importKind)}
	service, err := s.writeService(ctx, here, key, m, owner, held)
	if err != nil {
		return err
	}
	var address []string
	if !m.Headless {
		address = service.Spec.ClusterIPs
	}
	var errs []error
	wanted := map[string]bool{}
	for _, e := range all {
		for i, slice := range m.behind(e.Export) {
			want := endpointSlice(key, e.cluster, i, slice, owner)
			wanted[want.Name] = true
			errs = append(errs, s.writeSlice(ctx, get[discoveryv1.EndpointSlice](here.slices, key.Namespace, want.Name), want))
		}
	}
	for _, o := range endpoints {
		if !wanted[o.Name] && !keep(o) {
			errs = append(errs, client.IgnoreNotFound(s.cfg.Kube.DiscoveryV1().EndpointSlices(key.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})))
		}
	}
	if held {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, s.finish(ctx, is, m, address))...)
}

var importKind = schema.GroupVersionKind{Group: mcs.GroupName, Version: mcs.GroupVersion.Version, Kind: mcs.ServiceImportKindName}

func isOurs(o metav1.Object) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
}

// marks are labels that say whose an object is, with others.
func marks(others map[string]string) map[string]string {
	all := maps.Clone(others)
	if all == nil {
		all = map[string]string{}
	}
	all[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	return all
}

// writeImport writes all of a ServiceImport but its addresses and status; nil without an error: the namespace is not here, or about to go. held: of
// some who export it nothing is known now, so what there is stays.
func (s *Set) writeImport(ctx context.Context, key types.NamespacedName, have *mcs.ServiceImport, m *merged, held bool) (*mcs.ServiceImport, error) {
	imports := s.cfg.MCS.ServiceImports(key.Namespace)
	want := &mcs.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: marks(m.Labels), Annotations: m.Annotations},
		Spec: mcs.ServiceImportSpec{
			Type: mcs.ClusterSetIP, Ports: []mcs.ServicePort{}, SessionAffinity: m.SessionAffinity, SessionAffinityConfig: m.affinity(),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, InternalTrafficPolicy: some(m.InternalTrafficPolicy), TrafficDistribution: some(m.TrafficDistribution),
		},
	}
	if m.Headless {
		want.Spec.Type = mcs.Headless
	}
	for _, p := range m.Ports {
		want.Spec.Ports = append(want.Spec.Ports, mcs.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: some(p.AppProtocol), Port: p.Port})
	}
	if have == nil {
		is, err := imports.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, nil
		}
		return is, err
	}
	if held {
		return have, nil
	}
	if have.Spec.Type == want.Spec.Type && want.Spec.Type == mcs.ClusterSetIP {
		want.Spec.IPs = have.Spec.IPs
	}
	if equality.Semantic.DeepEqual(have.Labels, want.Labels) && equality.Semantic.DeepEqual(have.Annotations, want.Annotations) && equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return have, nil
	}
	next := have.DeepCopy()
	next.Labels, next.Annotations, next.Spec = want.Labels, want.Annotations, want.Spec
	return imports.Update(ctx, next, metav1.UpdateOptions{})
}

// some is a pointer to a value that is not the zero value.
func some[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// writeService writes the service whose address the import has. A headless one leads pods of this cluster at peers to the endpoints, as it leads them
// to those of any other.
func (s *Set) writeService(ctx context.Context, here *place, key types.NamespacedName, m *merged, owner []metav1.OwnerReference, held bool) (*corev1.Service, error) {
	services := s.cfg.Kube.CoreV1().Services(key.Namespace)
	have := get[corev1.Service](here.services, key.Namespace, v1alpha1.ImportedService(key.Name))
	if have != nil && held {
		return have, nil
	}
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: some(corev1.IPFamilyPolicySingleStack),
		SessionAffinity: affinity(m.SessionAffinity), SessionAffinityConfig: m.affinity(), InternalTrafficPolicy: some(m.InternalTrafficPolicy), TrafficDistribution: some(m.TrafficDistribution),
	}
	if m.Headless {
		want.ClusterIP = corev1.ClusterIPNone
	}
	for _, p := range m.Ports {
		want.Ports = append(want.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: some(p.AppProtocol), Port: p.Port, TargetPort: intstr.FromInt32(p.Port)})
	}
	if have != nil && isOurs(have) && (have.Spec.ClusterIP == corev1.ClusterIPNone) != m.Headless { // which cannot be changed
		if err := s.removeService(ctx, here, key); err != nil {
			return nil, err
		}
		have = nil
	}
	if have == nil {
		return services.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ImportedService(key.Name), Labels: marks(map[string]string{mcs.LabelServiceName: key.Name}), OwnerReferences: owner}, Spec: want,
		}, metav1.CreateOptions{})
	}
	if !isOurs(have) {
		return nil, fmt.Errorf("somebody else made a Service %s", have.Name)
	}
	next := have.DeepCopy()
	next.OwnerReferences = owner
	next.Spec.SessionAffinity, next.Spec.SessionAffinityConfig, next.Spec.TrafficDistribution = want.SessionAffinity, want.SessionAffinityConfig, want.TrafficDistribution
	if want.InternalTrafficPolicy != nil {
		next.Spec.InternalTrafficPolicy = want.InternalTrafficPolicy
	}
	next.Spec.Ports = want.Ports
	if equality.Semantic.DeepEqual(have.OwnerReferences, next.OwnerReferences) && equality.Semantic.DeepEqual(have.Spec, next.Spec) {
		return have, nil
	}
	return services.Update(ctx, next, metav1.UpdateOptions{})
}

// endpointSlice is that of a cluster's i-th slice.
func endpointSlice(key types.NamespacedName, cluster string, i int, of Slice, owner []metav1.OwnerReference) *discoveryv1.EndpointSlice {
	labels := marks(map[string]string{
		mcs.LabelServiceName: key.Name, mcs.LabelSourceCluster: cluster, discoveryv1.LabelManagedBy: fieldOwner,
		discoveryv1.LabelServiceName: v1alpha1.ImportedService(key.Name),
	})
	want := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: key.Namespace, Name: sliceName(key.Name, cluster, i), Labels: labels, OwnerReferences: owner},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range of.Ports {
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port, AppProtocol: some(p.AppProtocol)})
	}
	for _, e := range of.Endpoints {
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e.Address.String()}, Hostname: some(e.Hostname),
			Conditions: discoveryv1.EndpointConditions{Ready: &e.Ready, Serving: &e.Serving, Terminating: &e.Terminating},
		})
	}
	return want
}

const fieldOwner = "kith-multi-cluster-services"

func (s *Set) writeSlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	of := s.cfg.Kube.DiscoveryV1().EndpointSlices(want.Namespace)
	var err error
	switch {
	case have == nil:
		_, err = of.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldOwner})
	case !isOurs(have):
		return fmt.Errorf("somebody else made an EndpointSlice %s", have.Name)
	case !equality.Semantic.DeepEqual(have.Labels, want.Labels) || !equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) || !equality.Semantic.DeepEqual(have.Ports, want.Ports) ||
		!equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences):
		want.ResourceVersion = have.ResourceVersion
		_, err = of.Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldOwner})
	}
	return err
}

// finish gives a ServiceImport its address and status.
func (s *Set) finish(ctx context.Context, is *mcs.ServiceImport, m *merged, address []string) error {
	imports := s.cfg.MCS.ServiceImports(is.Namespace)
	if !slices.Equal(is.Spec.IPs, address) {
		next := is.DeepCopy()
		next.Spec.IPs = address
		var err error
		if is, err = imports.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	next := is.DeepCopy()
	next.Status.EndpointSliceObjects, next.Status.Clusters = mcs.EndpointSliceObjectsPresent, nil
	for _, c := range m.clusters {
		next.Status.Clusters = append(next.Status.Clusters, mcs.ClusterStatus{Cluster: c})
	}
	meta.SetStatusCondition(&next.Status.Conditions, condition(string(mcs.ServiceImportConditionReady), true, string(mcs.ServiceImportReasonReady), "", is.Generation))
	if equality.Semantic.DeepEqual(is.Status, next.Status) {
		return nil
	}
	_, err := imports.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}

func condition(kind string, is bool, reason, message string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: generation}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// remove takes away what was imported.
func (s *Set) remove(ctx context.Context, here *place, key types.NamespacedName, have *mcs.ServiceImport, endpoints []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, o := range endpoints {
		errs = append(errs, client.IgnoreNotFound(s.cfg.Kube.DiscoveryV1().EndpointSlices(key.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})))
	}
	errs = append(errs, s.removeService(ctx, here, key))
	if have != nil && isOurs(have) {
		errs = append(errs, client.IgnoreNotFound(s.cfg.MCS.ServiceImports(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})))
	}
	return errors.Join(errs...)
}

func (s *Set) removeService(ctx context.Context, here *place, key types.NamespacedName) error {
	have := get[corev1.Service](here.services, key.Namespace, v1alpha1.ImportedService(key.Name))
	if have == nil || !isOurs(have) {
		return nil
	}
	return client.IgnoreNotFound(s.cfg.Kube.CoreV1().Services(key.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}}))
}

// say writes the conditions of this cluster's ServiceExport. failed is what became of its import.
func (s *Set) say(ctx context.Context, export *mcs.ServiceExport, bad *invalid, m *merged, failed error) error {
	if export == nil || export.DeletionTimestamp != nil {
		return nil
	}
	next := export.DeepCopy()
	set := func(kind mcs.ServiceExportConditionType, is bool, reason mcs.ServiceExportConditionReason, message string) {
		meta.SetStatusCondition(&next.Status.Conditions, condition(string(kind), is, string(reason), message, export.Generation))
	}
	switch {
	case bad != nil:
		set(mcs.ServiceExportConditionValid, false, bad.reason, bad.why)
		set(mcs.ServiceExportConditionReady, false, mcs.ServiceExportReasonPending, "it is not valid")
		meta.RemoveStatusCondition(&next.Status.Conditions, string(mcs.ServiceExportConditionConflict))
	default:
		set(mcs.ServiceExportConditionValid, true, mcs.ServiceExportReasonValid, "")
		switch {
		case errors.Is(failed, errTaken):
			set(mcs.ServiceExportConditionReady, false, mcs.ServiceExportReasonFailed, failed.Error())
		case !s.anyoneMayHave(export.Namespace):
			set(mcs.ServiceExportConditionReady, false, mcs.ServiceExportReasonPending,
				"no sharing policy names this namespace, so no peer has it: kith share --services "+export.Namespace)
		default:
			set(mcs.ServiceExportConditionReady, true, mcs.ServiceExportReasonExported, "peers that the sharing policies mean have it, if they say so too")
		}
		if len(m.conflict) > 0 {
			reason, message := m.said()
			set(mcs.ServiceExportConditionConflict, true, mcs.ServiceExportConditionReason(reason), message)
		} else {
			set(mcs.ServiceExportConditionConflict, false, mcs.ServiceExportReasonNoConflicts, "")
		}
	}
	if equality.Semantic.DeepEqual(export.Status, next.Status) {
		return nil
	}
	_, err := s.cfg.MCS.ServiceExports(export.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return client.IgnoreNotFound(err)
}

// anyoneMayHave reports whether a policy names the namespace.
func (s *Set) anyoneMayHave(namespace string) bool {
	return slices.ContainsFunc(s.cfg.Ledger.Now().Policies, func(p v1alpha1.SharingPolicy) bool {
		return sharing.Common(namespace, p.Spec.Services, p.Spec.Services)
	})
}
