package kinds

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Service goes wherever its namespace has a twin.
var Service = &Kind{
	Name: "Service", Resource: corev1.SchemeGroupVersion.WithResource("services"), Type: &corev1.Service{}, Direction: Out,
	Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Services().Informer()
	},
	Quota:          Quota{Name: corev1.ResourceServices, Most: 500},
	MetadataPolicy: "tenants-objects",
	Bounds: []Bound{{Name: "tenants-services", Rules: []Rule{
		{fmt.Sprintf(`!has(object.spec.ports) || size(object.spec.ports) <= %d`, maxPorts), fmt.Sprintf("spec.ports: more than %d", maxPorts)},
		{`!has(object.spec.type) || object.spec.type in ["ClusterIP", "ExternalName"]`, "spec.type: must be ClusterIP or ExternalName"},
		{`!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0`, "spec.externalIPs: not allowed"},
		{`!has(object.spec.externalName) || object.spec.externalName == "" || !(` + localName + `)`, "spec.externalName: names of this cluster are not allowed"},
	}}},
	Check:   checkService,
	Stays:   func(home metav1.Object) bool { return ofAPIServer(home.GetNamespace(), home.GetName()) },
	Map:     mapping(mapService),
	Depends: func(_ Object, there *There) string { return strconv.FormatBool(there.IPv6) },
	TakeOut: takingOut(func(got, want *corev1.Service) bool {
		found := len(got.Spec.Selector) > 0 || len(got.Spec.ExternalIPs) > 0 || len(got.Spec.Ports) != len(want.Spec.Ports) || got.Spec.Type != want.Spec.Type
		got.Spec.Selector, got.Spec.ExternalIPs, got.Spec.Ports, got.Spec.Type = nil, nil, want.Spec.Ports, want.Spec.Type
		return found
	}),
}

// maxPorts is how many ports a Service may have, and addresses and ranges from outside.
const maxPorts = 100

// localName: names inside this cluster, or the host itself. Those of the own namespace are the consumer's.
const localName = `object.spec.externalName.lowerAscii().matches("(^|[.])(localhost|svc|local)[.]?$") && !object.spec.externalName.lowerAscii().contains("." + object.metadata.namespace + ".svc")`

// AnnotationClusterIP on a Service in a twin is the address that it has at home. Guests are told this one and no other, and what they
// send to it goes to the twin's (core/provide/guestnet); it is believed as far as it lies in the range that the consumer named for its services.
const AnnotationClusterIP = "kith.dev/cluster-ip"

// AnnotationClusterIPv6 is AnnotationClusterIP of the other family. A service at home may have either or both.
const AnnotationClusterIPv6 = "kith.dev/cluster-ipv6"

// The Service by which pods find their API server, and the name of its twin, with that of its EndpointSlice: there is one in every
// twin namespace, whatever home namespace that stands for. A guest's DNS answers kubernetes.default.svc with the AnnotationClusterIP of
// the one that is in the guest's own namespace.
const (
	APIServer       = "kubernetes" // in the namespace default
	APIServerAbroad = "kith-kubernetes"
)

// ofAPIServer: this one Service means the cluster itself. So it stays where it is, and goes into every twin instead.
func ofAPIServer(namespace, service string) bool {
	return namespace == metav1.NamespaceDefault && service == APIServer
}

// nameAbroad is what a Service, or the EndpointSlice of one, is called in a twin.
func nameAbroad(namespace, name string) string {
	if ofAPIServer(namespace, name) {
		return APIServerAbroad
	}
	return name
}

func checkService(_ string, body []byte) (int64, error) {
	var service struct {
		Spec struct {
			Ports                    []struct{} `json:"ports"`
			ExternalIPs              []string   `json:"externalIPs"`
			LoadBalancerSourceRanges []string   `json:"loadBalancerSourceRanges"`
		} `json:"spec"`
	}
	if err := read(body, &service); err != nil {
		return 0, err
	}
	// What the API server writes of n of them that are wrong takes it the time of n².
	for field, n := range map[string]int{"ports": len(service.Spec.Ports), "externalIPs": len(service.Spec.ExternalIPs), "loadBalancerSourceRanges": len(service.Spec.LoadBalancerSourceRanges)} {
		if n > maxPorts {
			return 0, fmt.Errorf("spec.%s: %d, at most %d are taken", field, n, maxPorts)
		}
	}
	return 0, nil
}

// mapService gives the Service abroad: the home one whole, less what only means something at home. Without a selector
// nobody but us fills it with endpoints. Ports of hosts are not opened at a peer: NodePort and LoadBalancer become
// ClusterIP. The problem, when there is one, says why it cannot be abroad.
func mapService(home *corev1.Service, there *There) (abroad *corev1.Service, problem string) {
	spec, meta := home.Spec.DeepCopy(), Marked(there.Twin, nameAbroad(home.Namespace, home.Name))
	headless := spec.ClusterIP == corev1.ClusterIPNone
	for _, own := range spec.ClusterIPs {
		if key := AddressAnnotation(own); key != "" {
			if meta.Annotations == nil {
				meta.Annotations = map[string]string{}
			}
			meta.Annotations[key] = own
		}
	}
	both := there.IPv6 && slices.Contains(spec.IPFamilies, corev1.IPv6Protocol)

	spec.Selector = nil
	spec.ClusterIP, spec.ClusterIPs = "", nil
	if headless {
		spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}
	spec.IPFamilies, spec.IPFamilyPolicy = nil, nil // which comes first is the peer's matter
	if both {
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
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
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilyPolicy = "", nil, nil
		if spec.ExternalName, problem = mapExternalName(spec.ExternalName, home.Namespace, there.Twin); problem != "" {
			return nil, problem
		}
	default:
		spec.Type = corev1.ServiceTypeClusterIP
		spec.ExternalName = ""
	}
	return &corev1.Service{ObjectMeta: meta, Spec: *spec}, ""
}

// AddressAnnotation is the annotation that says an address of a Service; empty for what is none.
func AddressAnnotation(clusterIP string) string {
	a, err := netip.ParseAddr(clusterIP)
	switch {
	case err != nil:
		return ""
	case a.Is4():
		return AnnotationClusterIP
	}
	return AnnotationClusterIPv6
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
