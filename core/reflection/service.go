package reflection

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mapService gives the Service abroad: the home one whole, less what only means something at home. Without a selector
// nobody but us fills it with endpoints. Ports of hosts are not opened at a peer: NodePort and LoadBalancer become
// ClusterIP. The problem, when there is one, says why it cannot be abroad.
func mapService(home *corev1.Service, twin string) (abroad *corev1.Service, problem string) {
	spec := home.Spec.DeepCopy()
	headless := spec.ClusterIP == corev1.ClusterIPNone

	spec.Selector = nil
	spec.ClusterIP, spec.ClusterIPs = "", nil
	if headless {
		spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}
	spec.IPFamilies, spec.IPFamilyPolicy = nil, nil
	spec.ExternalIPs = nil
	spec.LoadBalancerIP, spec.LoadBalancerClass, spec.LoadBalancerSourceRanges = "", nil, nil
	spec.AllocateLoadBalancerNodePorts = nil
	spec.HealthCheckNodePort = 0
	spec.ExternalTrafficPolicy = ""
	// The nodes of the endpoints are not known there; "Local" would find none, and "nearest" is for one cluster.
	spec.InternalTrafficPolicy = nil
	spec.TrafficDistribution = nil
	for i := range spec.Ports {
		spec.Ports[i].NodePort = 0
	}
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		spec.ClusterIP, spec.ClusterIPs = "", nil
		if spec.ExternalName, problem = mapExternalName(spec.ExternalName, home.Namespace, twin); problem != "" {
			return nil, problem
		}
	default:
		spec.Type = corev1.ServiceTypeClusterIP
		spec.ExternalName = ""
	}
	return &corev1.Service{ObjectMeta: marked(twin, home.Name), Spec: *spec}, ""
}

// mapExternalName: a name inside the cluster is another one abroad, and only that of the own namespace is known there.
func mapExternalName(name, home, twin string) (string, string) {
	plain := strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(plain, ".")
	inside := strings.HasSuffix(plain, ".cluster.local") || strings.HasSuffix(plain, ".svc") || plain == "localhost" || strings.HasSuffix(plain, ".localhost")
	switch {
	case !inside:
		return name, ""
	case len(labels) >= 3 && labels[1] == home && labels[2] == "svc":
		labels[1] = twin
		return strings.Join(labels, "."), ""
	}
	return "", fmt.Sprintf("externalName %s means something in this cluster only", name)
}
