package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/net/netplan"
)

// EndpointSlice goes with its Service.
var EndpointSlice = &Kind{
	Name: "EndpointSlice", Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Type: &discoveryv1.EndpointSlice{}, Direction: Out,
	Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Discovery().V1().EndpointSlices().Informer()
	},
	Quota:          Quota{Name: "count/endpointslices.discovery.k8s.io", Most: 1000},
	MetadataPolicy: "tenants-slices",
	Bounds: []Bound{
		{
			Name:      "tenants-addresses",
			Variables: []admissionv1.Variable{listed("space", AnnotationSpace)},
			Rules: []Rule{
				{`object.addressType in ["IPv4", "IPv6"]`, "addressType: only IPv4 and IPv6 reach a peer"},
				{`has(object.metadata.labels) && "endpointslice.kubernetes.io/managed-by" in object.metadata.labels && object.metadata.labels["endpointslice.kubernetes.io/managed-by"] == "kith.dev"`,
					"the label endpointslice.kubernetes.io/managed-by=kith.dev is missing"},
				{`object.endpoints.all(e, e.addresses.all(a, variables.space.exists(r, cidr(r).containsIP(a))))`,
					"endpoints: an address is not in the consumer's own address space"},
			},
		},
		{Name: "tenants-sizes", Rules: []Rule{{
			fmt.Sprintf(`(has(object.endpoints) ? object.endpoints.map(e, size(e.addresses)).sum() : 0) * (has(object.ports) && size(object.ports) > 0 ? size(object.ports) : 1) <= %d`, maxPairs),
			fmt.Sprintf("endpoints, ports: more than %d pairs of address and port", maxPairs),
		}}},
	},
	Check: checkSlice,
	Here:  sliceHere,
	Stays: func(home metav1.Object) bool {
		service := home.GetLabels()[discoveryv1.LabelServiceName]
		return service == "" || ofAPIServer(home.GetNamespace(), service)
	},
	Map:     mapping(mapSlice),
	Depends: func(_ Object, there *There) string { return strconv.Itoa(there.Plan) },
}

const (
	sliceManager = "kith.dev"
	// maxPairs is how many pairs of address and port an EndpointSlice may make: kube-proxy keeps each by itself. The
	// endpoint slice controller makes slices of 100 addresses, which leaves 25 ports.
	maxPairs = 2500
	// weightOfPair: kube-proxy takes some 400 bytes for each, and of what a consumer sends sixteen times as much is expected.
	weightOfPair = 32
)

// AnnotationSpace on a twin namespace, which its consumer cannot write, lists the ranges of the consumer's address space, with
// commas between them: first that of its guests here, then those of its own pods and of its guests elsewhere. The admission
// policy compares with them the addresses in the consumer's EndpointSlices. Consumers may have the same ranges but for the first.
const AnnotationSpace = "kith.dev/address-space"

// listed makes a list from an annotation of the namespace.
func listed(variable, annotation string) admissionv1.Variable {
	return admissionv1.Variable{Name: variable, Expression: fmt.Sprintf(
		`has(namespaceObject.metadata.annotations) && %[1]q in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations[%[1]q].split(",").filter(s, s != "") : []`, annotation)}
}

// mapSlice gives the EndpointSlice abroad. Addresses are the same there, but endpoints that guests cannot reach are left out and
// counted; conditions, host names and ports stay as they are, and so what is ready is ready there. Zones and nodes of home mean
// nothing abroad; of guests NodeOf gives the peer's node, which the proxy there must know to lead a guest to itself. A guest is called
// there as at home: where the peer is a broker, which sends it on, its node at the provider is found by that. The problem, when there
// is one, says why there is no slice abroad.
func mapSlice(home *discoveryv1.EndpointSlice, there *There) (abroad *discoveryv1.EndpointSlice, problem string) {
	switch {
	case home.AddressType == discoveryv1.AddressTypeIPv4:
	case home.AddressType != discoveryv1.AddressTypeIPv6:
		return nil, fmt.Sprintf("addresses of type %s are not carried to peers", home.AddressType)
	case !there.IPv6:
		return nil, "addresses of type IPv6 are not carried to this peer: not both of you have IPv6"
	}
	home = there.Seen(home)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  Marked(there.Twin, nameAbroad(home.Namespace, home.Name)),
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
	if service, ok := out.Labels[discoveryv1.LabelServiceName]; ok {
		out.Labels[discoveryv1.LabelServiceName] = nameAbroad(home.Namespace, service)
	}
	for i := range home.Endpoints {
		e := home.Endpoints[i].DeepCopy()
		e.Addresses = slices.DeleteFunc(e.Addresses, func(a string) bool {
			parsed, err := netip.ParseAddr(a)
			return err != nil || !there.Reaches(parsed)
		})
		if len(e.Addresses) == 0 {
			there.LeftOut++
			continue
		}
		node := there.NodeOf(e)
		guest := e.TargetRef
		e.NodeName, e.TargetRef, e.Zone, e.Hints, e.DeprecatedTopology = nil, nil, nil, nil, nil
		if node != "" {
			e.NodeName = &node
			if guest != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: Pod.Name, Namespace: there.Twin, Name: guest.Name}
			}
		}
		out.Endpoints = append(out.Endpoints, *e)
	}
	for i := range home.Ports {
		out.Ports = append(out.Ports, *home.Ports[i].DeepCopy())
	}
	return out, ""
}

// checkSlice: endpoints and ports come together, so that what is weighed here is what is kept.
func checkSlice(media string, body []byte) (int64, error) {
	var slice sliceSize
	if err := read(body, &slice); err != nil {
		return 0, err
	}
	n := slice.pairs()
	weight := weightOfPair * int64(n)
	switch {
	case media != runtime.ContentTypeJSON && media != string(types.ApplyYAMLPatchType), slice.Endpoints == nil, slice.Ports == nil:
		return weight, errors.New("endpoints, ports: of an EndpointSlice both are written together; write it whole")
	case n > maxPairs:
		return weight, fmt.Errorf("endpoints, ports: %d addresses with %d ports each make %d pairs, at most %d are taken", slice.addresses(), len(slice.Ports), n, maxPairs)
	}
	return weight, nil
}

// sliceHere moves the addresses of all endpoints. One that is not in the consumer's address space could mean anything here.
func sliceHere(body []byte, t netplan.Translation) ([]byte, error) {
	var slice map[string]json.RawMessage
	var endpoints []map[string]json.RawMessage
	err := json.Unmarshal(body, &slice)
	if err == nil {
		err = json.Unmarshal(slice["endpoints"], &endpoints)
	}
	if err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	for i, e := range endpoints {
		var addresses []string
		if err := json.Unmarshal(e["addresses"], &addresses); err != nil {
			return nil, fmt.Errorf("endpoints[%d].addresses: %w", i, err)
		}
		for j, a := range addresses {
			home, err := netip.ParseAddr(a)
			here, ok := t.Here(home)
			if err != nil || !ok {
				return nil, fmt.Errorf("endpoints[%d]: %.64q is not in the consumer's own address space", i, a)
			}
			addresses[j] = here.String()
		}
		e["addresses"], _ = json.Marshal(addresses)
	}
	slice["endpoints"], _ = json.Marshal(endpoints)
	return json.Marshal(slice)
}

// sliceSize is of an EndpointSlice what makes it large.
type sliceSize struct {
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
	Ports []struct{} `json:"ports"`
}

func (s *sliceSize) addresses() (n int) {
	for i := range s.Endpoints {
		n += max(1, len(s.Endpoints[i].Addresses))
	}
	return n
}

func (s *sliceSize) pairs() int { return s.addresses() * max(1, len(s.Ports)) }
