package clusterset

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// invalid says why a ServiceExport exports nothing.
type invalid struct {
	reason mcs.ServiceExportConditionReason
	why    string
}

// reasonNotSupported is why a ServiceExport is not valid whose labels, annotations or ports are none that peers take.
const reasonNotSupported mcs.ServiceExportConditionReason = "NotSupported"

// exportOf makes of a ServiceExport, the service of its name and its endpoints what is exported, with the addresses that endpoints have here.
func exportOf(e *mcs.ServiceExport, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) (*Export, *invalid) {
	switch {
	case service == nil:
		return nil, &invalid{mcs.ServiceExportReasonNoService, "there is no Service of this name"}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, &invalid{mcs.ServiceExportReasonInvalidServiceType, "a Service of type ExternalName is a name for something else, and cannot be exported"}
	}
	out := &Export{
		Name: Name{e.Namespace, e.Name}, Since: since(e.CreationTimestamp), Headless: service.Spec.ClusterIP == corev1.ClusterIPNone,
		SessionAffinity: service.Spec.SessionAffinity, InternalTrafficPolicy: ptr.Deref(service.Spec.InternalTrafficPolicy, ""), TrafficDistribution: ptr.Deref(service.Spec.TrafficDistribution, ""),
		Labels: e.Spec.ExportedLabels, Annotations: e.Spec.ExportedAnnotations,
	}
	if a := service.Spec.SessionAffinityConfig; a != nil && a.ClientIP != nil && service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.AffinitySeconds = ptr.Deref(a.ClientIP.TimeoutSeconds, 0)
	}
	for _, p := range service.Spec.Ports {
		out.Ports = append(out.Ports, Port{Name: p.Name, Protocol: p.Protocol, AppProtocol: ptr.Deref(p.AppProtocol, ""), Port: p.Port})
	}
	if err := out.check(netip.Prefix{}); err != nil { // a peer would not take it, nor anything beside it
		return nil, &invalid{reasonNotSupported, err.Error()}
	}
	slices.SortFunc(endpoints, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	for _, slice := range endpoints {
		if slice.AddressType == discoveryv1.AddressTypeIPv4 {
			out.Slices = append(out.Slices, sliceOf(slice))
		}
	}
	return out, nil
}

func sliceOf(of *discoveryv1.EndpointSlice) (s Slice) {
	for _, p := range of.Ports {
		if p.Port != nil { // without one it is any, as no Service has
			s.Ports = append(s.Ports, Port{Name: ptr.Deref(p.Name, ""), Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP), AppProtocol: ptr.Deref(p.AppProtocol, ""), Port: *p.Port})
		}
	}
	for _, e := range of.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		a, err := netip.ParseAddr(e.Addresses[0]) // the others mean nothing (discovery.k8s.io/v1)
		if err != nil {
			continue
		}
		ready := ptr.Deref(e.Conditions.Ready, true)
		s.Endpoints = append(s.Endpoints, Endpoint{
			Address: a, Hostname: ptr.Deref(e.Hostname, ""),
			Ready: ready, Serving: ptr.Deref(e.Conditions.Serving, ready), Terminating: ptr.Deref(e.Conditions.Terminating, false),
		})
	}
	return s
}
