package kinds

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What becomes of a field at a peer.
const (
	same    = "the same"
	other   = "another"
	leftOut = "left out"
)

// field is what a field of a Service or an EndpointSlice comes to at a peer, and why where it is not the same.
type field struct{ path, is, why string }

const fieldsPage = "../../../docs/fields.md"

var serviceFields = []field{
	{"metadata.labels", other, "those by which Kith knows its own; controllers there could act upon others"},
	{"metadata.annotations", other, "`kith.dev/cluster-ip` and `cluster-ipv6` with its addresses at home; for others as labels"},
	{"metadata.finalizers", leftOut, "they would hold the namespace there back"},
	{"metadata.ownerReferences", leftOut, "owners are at home"},
	{"spec.ports[].name", same, ""},
	{"spec.ports[].protocol", same, ""},
	{"spec.ports[].appProtocol", same, ""},
	{"spec.ports[].port", same, ""},
	{"spec.ports[].targetPort", same, ""},
	{"spec.ports[].nodePort", leftOut, "no port of the peer's machine is opened"},
	{"spec.selector", leftOut, "its endpoints are those that home knows, at home and at all peers"},
	{"spec.clusterIP", leftOut, "the peer gives it one of its own, and guests reach it by both; `None` stays"},
	{"spec.clusterIPs", leftOut, "as clusterIP"},
	{"spec.type", other, "`ClusterIP` for `NodePort` and `LoadBalancer`, which are open at home; `ExternalName` stays"},
	{"spec.externalIPs", leftOut, "they lead to nodes of home"},
	{"spec.sessionAffinity", same, ""},
	{"spec.loadBalancerIP", leftOut, "the load balancer is home's"},
	{"spec.loadBalancerSourceRanges", leftOut, "the load balancer is home's"},
	{"spec.externalName", same, "one of the own namespace names the twin instead; one of another namespace, or of the machine itself, is refused, and an event says so"},
	{"spec.externalTrafficPolicy", leftOut, "nothing comes in from outside there"},
	{"spec.healthCheckNodePort", leftOut, "as externalTrafficPolicy"},
	{"spec.publishNotReadyAddresses", same, ""},
	{"spec.sessionAffinityConfig.clientIP.timeoutSeconds", same, ""},
	{"spec.ipFamilies[]", leftOut, "which family comes first is the peer's matter"},
	{"spec.ipFamilyPolicy", leftOut, "`PreferDualStack` where both clusters have IPv6 and the service has, too"},
	{"spec.allocateLoadBalancerNodePorts", leftOut, "the load balancer is home's"},
	{"spec.loadBalancerClass", leftOut, "the load balancer is home's"},
	{"spec.internalTrafficPolicy", leftOut, "the peer is one node for home, and has several of its own: `Local` would find nothing"},
	{"spec.trafficDistribution", leftOut, "zones and nodes of home mean nothing there"},
	{"status", leftOut, "the peer's own"},
}

var sliceFields = []field{
	{"metadata.labels", other, "of the service's name, and of a headless one, beside Kith's own"},
	{"metadata.annotations", leftOut, "controllers there could act upon them"},
	{"metadata.finalizers", leftOut, "they would hold the namespace there back"},
	{"metadata.ownerReferences", leftOut, "owners are at home"},
	{"addressType", same, "`FQDN` is refused, and `IPv6` where not both clusters have it"},
	{"endpoints[].addresses[]", same, "one that guests there do not reach is left out, and counted in an event"},
	{"endpoints[].conditions.ready", same, "not ready while home is away"},
	{"endpoints[].conditions.serving", same, "not ready while home is away"},
	{"endpoints[].conditions.terminating", same, ""},
	{"endpoints[].hostname", same, ""},
	{"endpoints[].targetRef", leftOut, "for a guest there it is the pod that it is there"},
	{"endpoints[].deprecatedTopology", leftOut, "as nodeName"},
	{"endpoints[].nodeName", leftOut, "for a guest there it is the peer's node"},
	{"endpoints[].zone", leftOut, "zones of home mean nothing there"},
	{"endpoints[].hints.forZones[].name", leftOut, "as zone"},
	{"endpoints[].hints.forNodes[].name", leftOut, "as nodeName"},
	{"ports[].name", same, ""},
	{"ports[].protocol", same, ""},
	{"ports[].port", same, ""},
	{"ports[].appProtocol", same, ""},
}

// leaf is a field that holds a value: how it is reached in an object, made on the way where make says so.
type leaf struct {
	path  string
	reach func(object reflect.Value, make bool) reflect.Value
}

// leaves are the fields below v's type, by their names in JSON. Of lists it is the first element.
func leaves(t reflect.Type, path string, reach func(reflect.Value, bool) reflect.Value) (all []leaf) {
	switch {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && t.Elem() != reflect.TypeFor[corev1.ObjectReference]():
		return leaves(t.Elem(), path, func(o reflect.Value, make bool) reflect.Value {
			p := reach(o, make)
			if !p.IsValid() || p.IsNil() && !make {
				return reflect.Value{}
			}
			if p.IsNil() {
				p.Set(reflect.New(t.Elem()))
			}
			return p.Elem()
		})
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct, t == reflect.TypeFor[[]corev1.IPFamily](), path == "endpoints[].addresses":
		return leaves(t.Elem(), path+"[]", func(o reflect.Value, make bool) reflect.Value {
			list := reach(o, make)
			if !list.IsValid() || list.Len() == 0 && !make {
				return reflect.Value{}
			}
			if list.Len() == 0 {
				list.Set(reflect.MakeSlice(t, 1, 1))
			}
			return list.Index(0)
		})
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[intstr.IntOrString]() && path != "status":
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name == "" || name == "metadata" || name == "kind" || name == "apiVersion" {
				continue
			}
			all = append(all, leaves(t.Field(i).Type, strings.TrimPrefix(path+"."+name, "."), func(o reflect.Value, make bool) reflect.Value {
				s := reach(o, make)
				if !s.IsValid() {
					return s
				}
				return s.Field(i)
			})...)
		}
		return all
	}
	return []leaf{{path, reach}}
}

// fill gives a field a value that is not the zero one, and such as it can have.
func fill(v reflect.Value, path string) {
	special := map[string]any{
		"spec.clusterIP": "10.43.1.2", "spec.clusterIPs": []string{"10.43.1.2"}, "spec.type": corev1.ServiceTypeNodePort, "spec.externalName": "db.example.org",
		"spec.ports[].targetPort": intstr.FromString("web"), "addressType": discoveryv1.AddressTypeIPv4, "endpoints[].addresses[]": "10.42.0.9",
		"status": corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
	if value, ok := special[path]; ok {
		v.Set(reflect.ValueOf(value))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path+"*")
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}).Convert(v.Type()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path+"[]")
	case reflect.Struct:
		fill(v.Field(0), path+".0")
	default:
		panic(path + ": " + v.Kind().String())
	}
}

// becomes says what a field comes to.
func becomes(home, abroad reflect.Value) string {
	switch {
	case !abroad.IsValid() || abroad.IsZero():
		return leftOut
	case reflect.DeepEqual(home.Interface(), abroad.Interface()):
		return same
	}
	return other
}

// each sets each field of an object of the kind of base, by itself, and tells what it comes to.
func each[T Object](t *testing.T, base func(path string) T, to func(T, *There) (T, string)) map[string]string {
	t.Helper()
	there := &There{
		Twin: "shop-abc", Reaches: func(netip.Addr) bool { return true }, NodeOf: func(*discoveryv1.Endpoint) string { return "" },
		Seen: func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice { return s },
	}
	came := map[string]string{}
	all := leaves(reflect.TypeOf(base("")).Elem(), "", func(o reflect.Value, _ bool) reflect.Value { return o })
	for _, name := range []string{"Labels", "Annotations", "Finalizers", "OwnerReferences"} {
		all = append(all, leaf{"metadata." + strings.ToLower(name[:1]) + name[1:], func(o reflect.Value, _ bool) reflect.Value { return o.FieldByName(name) }})
	}
	for _, l := range all {
		home := base(l.path)
		set := l.reach(reflect.ValueOf(home).Elem(), true)
		fill(set, l.path)
		abroad, problem := to(home, there)
		if problem != "" {
			t.Errorf("%s: %s", l.path, problem)
			continue
		}
		came[l.path] = becomes(set, l.reach(reflect.ValueOf(abroad).Elem(), false))
	}
	return came
}

// TestEveryFieldIsAccountedFor sets each field that Kubernetes has of a Service and an EndpointSlice: what it comes to at a peer is what the table
// says, and docs/fields.md shows. A field that a later Kubernetes has, too, needs a line.
func TestEveryFieldIsAccountedFor(t *testing.T) {
	services := each(t, func(path string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.43.1.1", ClusterIPs: []string{"10.43.1.1"}}}
		if path == "spec.externalName" {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}
		}
		return s
	}, mapService)
	endpoints := each(t, func(string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1"},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.9"}}},
		}
	}, mapSlice)
	page := `# What of a Service is at a peer

A service goes wherever its namespace has a twin, with its EndpointSlices. This is what each of their fields is there.
<!-- Written by core/agree/kinds, TestEveryFieldIsAccountedFor (KITH_UPDATE=1), which sets each field. -->
`
	for _, table := range []struct {
		kind   string
		fields []field
		came   map[string]string
	}{{"Service", serviceFields, services}, {"EndpointSlice", sliceFields, endpoints}} {
		page += fmt.Sprintf("\n## %s\n\n| field | at the peer | |\n|---|---|---|\n", table.kind)
		for _, f := range table.fields {
			page += fmt.Sprintf("| `%s` | %s | %s |\n", f.path, f.is, f.why)
			if is, there := table.came[f.path]; !there || is != f.is {
				t.Errorf("%s: %s is %q, the table says %q", table.kind, f.path, is, f.is)
			}
			if (f.is != same) && f.why == "" {
				t.Errorf("%s: %s is %s, and nothing says why", table.kind, f.path, f.is)
			}
		}
		for path := range table.came {
			if !slices.ContainsFunc(table.fields, func(f field) bool { return f.path == path }) {
				t.Errorf("%s: no line for %s", table.kind, path)
			}
		}
	}
	if is, err := os.ReadFile(fieldsPage); err == nil && string(is) == page {
		return
	}
	if os.Getenv("KITH_UPDATE") == "" {
		t.Fatal("docs/fields.md is not what the table says (KITH_UPDATE=1 writes it)")
	}
	if err := os.WriteFile(fieldsPage, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}
