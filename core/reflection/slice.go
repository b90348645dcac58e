package reflection

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Translate turns an address as home uses it into the one that reaches it at the peer; false when none does.
type Translate func(netip.Addr) (netip.Addr, bool)

// mapSlice gives the EndpointSlice abroad. Endpoints the peer cannot reach are left out and counted; conditions, host
// names and ports stay as they are, and so what is ready is ready there. Zones and nodes of home mean nothing abroad; of
// guests nodeOf gives the peer's node, which the proxy there must know to lead a guest to itself. The problem, when
// there is one, says why there is no slice abroad.
func mapSlice(home *discoveryv1.EndpointSlice, twin string, translate Translate, nodeOf func(*discoveryv1.Endpoint) string) (abroad *discoveryv1.EndpointSlice, leftOut int, problem string) {
	if home.AddressType != discoveryv1.AddressTypeIPv4 {
		return nil, 0, fmt.Sprintf("addresses of type %s are not carried to peers", home.AddressType)
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  marked(twin, home.Name),
		AddressType: home.AddressType,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports:       []discoveryv1.EndpointPort{},
	}
	out.Labels[discoveryv1.LabelManagedBy] = sliceManager
	for _, key := range []string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		if v, ok := home.Labels[key]; ok {
			out.Labels[key] = v
		}
	}
	for i := range home.Endpoints {
		e := home.Endpoints[i].DeepCopy()
		addresses := make([]string, 0, len(e.Addresses))
		for _, a := range e.Addresses {
			if parsed, err := netip.ParseAddr(a); err == nil {
				if there, ok := translate(parsed); ok {
					addresses = append(addresses, there.String())
				}
			}
		}
		if len(addresses) == 0 {
			leftOut++
			continue
		}
		e.Addresses = addresses
		node := nodeOf(e)
		e.NodeName, e.Zone, e.Hints, e.DeprecatedTopology = nil, nil, nil, nil
		if node != "" {
			e.NodeName = &node
		}
		e.TargetRef = nil
		out.Endpoints = append(out.Endpoints, *e)
	}
	for i := range home.Ports {
		out.Ports = append(out.Ports, *home.Ports[i].DeepCopy())
	}
	return out, leftOut, ""
}
