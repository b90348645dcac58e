package kinds

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kith.dev/core/api/v1alpha1"
)

var managed = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

func TestServicesOpenNoHostPortsAbroad(t *testing.T) {
	local, single := corev1.ServiceInternalTrafficPolicyLocal, corev1.IPFamilyPolicySingleStack
	port := corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30080, AppProtocol: new("h2c")}
	plain := port
	plain.NodePort = 0
	udp := corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(5353)}
	for name, c := range map[string]struct {
		home, want corev1.ServiceSpec
		problem    bool
	}{
		"ClusterIP": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.1.2", ClusterIPs: []string{"10.43.1.2"}, Ports: []corev1.ServicePort{plain, udp},
				Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: &single, SessionAffinity: corev1.ServiceAffinityClientIP, InternalTrafficPolicy: &local},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{plain, udp}, SessionAffinity: corev1.ServiceAffinityClientIP},
		},
		"headless": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", ClusterIPs: []string{"None"}, PublishNotReadyAddresses: true},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", ClusterIPs: []string{"None"}, PublishNotReadyAddresses: true},
		},
		"NodePort": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.43.1.2", ClusterIPs: []string{"10.43.1.2"}, Ports: []corev1.ServicePort{port}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{plain}},
		},
		"LoadBalancer": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.43.1.2", ClusterIPs: []string{"10.43.1.2"}, Ports: []corev1.ServicePort{port}, ExternalIPs: []string{"192.168.1.5"}, LoadBalancerIP: "192.168.1.6",
				LoadBalancerClass: new("x/y"), LoadBalancerSourceRanges: []string{"0.0.0.0/0"}, AllocateLoadBalancerNodePorts: new(true), HealthCheckNodePort: 31000},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{plain}},
		},
		"ExternalName": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.org"},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.org"},
		},
		"ExternalName of the same namespace": {
			home: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.shop.svc.cluster.local."},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.shop-abc.svc.cluster.local"},
		},
		"ExternalName of another namespace": {
			home:    corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.other.svc.cluster.local"},
			problem: true,
		},
		"ExternalName that is the host itself": {home: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "LocalHost"}, problem: true},
	} {
		t.Run(name, func(t *testing.T) {
			home := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}}, Spec: c.home}
			before := home.DeepCopy()
			got, problem := mapService(home, &There{Twin: "shop-abc"})
			if (problem != "") != c.problem {
				t.Fatalf("problem %q, want one: %v", problem, c.problem)
			}
			if !reflect.DeepEqual(home, before) {
				t.Error("the home object, which caches share, was changed")
			}
			if c.problem {
				return
			}
			if !reflect.DeepEqual(got.Spec, c.want) {
				t.Errorf("got  %+v\nwant %+v", got.Spec, c.want)
			}
			want := metav1.ObjectMeta{Name: "web", Namespace: "shop-abc", Labels: managed}
			if ip := c.home.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
				want.Annotations = map[string]string{AnnotationClusterIP: ip}
			}
			if !reflect.DeepEqual(got.ObjectMeta, want) {
				t.Errorf("metadata %+v, want %+v", got.ObjectMeta, want)
			}
		})
	}
}

// TestServicesTellTheirAddressAtHome: of each family, and have both there only where guests have both.
func TestServicesTellTheirAddressAtHome(t *testing.T) {
	const ipv4, ipv6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		ips       []string
		families  []corev1.IPFamily
		want, six string
		there     bool // the peer and its guests have IPv6
		dual      bool
	}{
		{[]string{"10.43.1.2"}, []corev1.IPFamily{ipv4}, "10.43.1.2", "", true, false},
		{[]string{"fd00::3", "10.43.1.3"}, []corev1.IPFamily{ipv6, ipv4}, "10.43.1.3", "fd00::3", true, true},
		{[]string{"fd00::3", "10.43.1.3"}, []corev1.IPFamily{ipv6, ipv4}, "10.43.1.3", "fd00::3", false, false},
		{[]string{"fd00::3"}, []corev1.IPFamily{ipv6}, "", "fd00::3", true, true},
		{[]string{"None"}, []corev1.IPFamily{ipv4, ipv6}, "", "", true, true},
	} {
		got, problem := mapService(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: c.ips[0], ClusterIPs: c.ips, IPFamilies: c.families, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack)}}, &There{Twin: "shop", IPv6: c.there})
		if problem != "" || got.Annotations[AnnotationClusterIP] != c.want || got.Annotations[AnnotationClusterIPv6] != c.six {
			t.Errorf("%v: %v, %q", c.ips, got.Annotations, problem)
		}
		if dual := got.Spec.IPFamilyPolicy != nil && *got.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack; dual != c.dual || got.Spec.IPFamilies != nil || !dual && got.Spec.IPFamilyPolicy != nil {
			t.Errorf("%v: %v, %v", c.ips, got.Spec.IPFamilyPolicy, got.Spec.IPFamilies)
		}
	}
}

// TestTheAPIServerOfHomeIsInEveryTwin, under a name that no namespace here has a use for.
func TestTheAPIServerOfHomeIsInEveryTwin(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.1", ClusterIPs: []string{"10.43.0.1"},
		Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(6443)}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.255.1"}}}}
	if !Service.Stays(service) || !EndpointSlice.Stays(slice) {
		t.Error("they go with the namespace default")
	}
	there := whole("shop-abc")
	s, _ := mapService(service, there)
	if s.Namespace != "shop-abc" || s.Name != APIServerAbroad || s.Annotations[AnnotationClusterIP] != "10.43.0.1" || s.Spec.ClusterIP != "" || s.Spec.Ports[0].Port != 443 {
		t.Errorf("service %+v", s)
	}
	e, _ := mapSlice(slice, there)
	if e.Name != APIServerAbroad || e.Labels[discoveryv1.LabelServiceName] != APIServerAbroad || len(e.Endpoints) != 1 || e.Endpoints[0].Addresses[0] != "10.42.255.1" {
		t.Errorf("slice %+v", e)
	}
	meta.Namespace = "shop" // of that name, but somebody's own
	s, _ = mapService(&corev1.Service{ObjectMeta: meta}, there)
	if s.Name != "kubernetes" {
		t.Errorf("another service of that name became %s", s.Name)
	}
}

// whole is a twin in which all of home means something: pods in 10.42/16, guests in 10.71.0/24 and 10.72.0/24.
func whole(twin string) *There {
	return &There{
		Twin: twin, NodeOf: func(*discoveryv1.Endpoint) string { return "" }, Seen: func(e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice { return e },
		Reaches: func(a netip.Addr) bool {
			return slices.ContainsFunc([]string{"10.42.0.0/16", "10.71.0.0/24", "10.72.0.0/24"}, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
		},
	}
}

func TestSlicesHoldWhatThePeerReaches(t *testing.T) {
	yes, no := true, false
	home := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-x1", Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.42.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}, NodeName: new("alice"), Zone: new("z"),
				Hostname: new("web-0"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}, Hints: &discoveryv1.EndpointHints{}},
			{Addresses: []string{"10.71.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}, NodeName: new("kith-bob"),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "1", ResourceVersion: "1"}},
			{Addresses: []string{"10.72.0.1", "192.168.1.9"}, NodeName: new("kith-carol")},
			{Addresses: []string{"192.168.1.7"}, NodeName: new("alice")},
			{Addresses: []string{"no address"}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	nodeOf := func(e *discoveryv1.Endpoint) string {
		if *e.NodeName == "kith-bob" {
			return "bob"
		}
		return ""
	}
	there := whole("shop")
	there.NodeOf = nodeOf
	before := home.DeepCopy()
	got, problem := mapSlice(home, there)
	if problem != "" || there.LeftOut != 2 {
		t.Errorf("left out %d, problem %q; want 2 and none", there.LeftOut, problem)
	}
	want := []discoveryv1.Endpoint{
		{Addresses: []string{"10.42.0.5"}, Conditions: home.Endpoints[0].Conditions, Hostname: new("web-0")},
		{Addresses: []string{"10.71.0.9"}, Conditions: home.Endpoints[1].Conditions, NodeName: new("bob"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"}},
		{Addresses: []string{"10.72.0.1"}},
	}
	if !reflect.DeepEqual(home, before) {
		t.Error("the home object, which caches share, was changed")
	}
	if !reflect.DeepEqual(got.Endpoints, want) {
		t.Errorf("got  %+v\nwant %+v", got.Endpoints, want)
	}
	if !reflect.DeepEqual(got.Ports, home.Ports) {
		t.Errorf("ports %+v", got.Ports)
	}
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "kith.dev"}
	if !reflect.DeepEqual(got.Labels, labels) {
		t.Errorf("labels %v, want %v", got.Labels, labels)
	}
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN} {
		if _, problem := mapSlice(&discoveryv1.EndpointSlice{AddressType: kind}, there); problem == "" {
			t.Errorf("addresses of type %s: no problem", kind)
		}
	}
	there.IPv6, there.Reaches = true, func(a netip.Addr) bool { return a == netip.MustParseAddr("fd00::5") }
	six := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::5"}}, {Addresses: []string{"2001:db8::5"}}}}
	six.Endpoints[0].NodeName, six.Endpoints[1].NodeName = new("alice"), new("alice")
	if got, problem := mapSlice(six, there); problem != "" || got.AddressType != discoveryv1.AddressTypeIPv6 || len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != "fd00::5" {
		t.Errorf("IPv6 where guests have it: %+v, %q", got, problem)
	}
}

func TestOnlyPlainSecretsKeepTheirType(t *testing.T) {
	for home, want := range map[corev1.SecretType]corev1.SecretType{
		corev1.SecretTypeOpaque: corev1.SecretTypeOpaque, corev1.SecretTypeTLS: corev1.SecretTypeTLS,
		corev1.SecretTypeDockerConfigJson: corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg: corev1.SecretTypeDockercfg,
		corev1.SecretTypeServiceAccountToken: corev1.SecretTypeOpaque, corev1.SecretTypeBootstrapToken: corev1.SecretTypeOpaque, "helm.sh/release.v1": corev1.SecretTypeOpaque,
	} {
		got, _ := mapSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{"reflector/reflects": "x"}}, Type: home, Immutable: new(true), Data: map[string][]byte{"k": []byte("v")}}, &There{Twin: "shop"})
		if got.Type != want || string(got.Data["k"]) != "v" || got.Immutable != nil || got.Annotations != nil {
			t.Errorf("%s became %+v, want type %s", home, got, want)
		}
	}
}

func TestWhatOthersAddedIsTakenOut(t *testing.T) {
	for name, c := range map[string]struct {
		want, got Object
		found     bool
	}{
		"the same ConfigMap": {&corev1.ConfigMap{Data: map[string]string{"a": "1"}}, &corev1.ConfigMap{Data: map[string]string{"a": "1"}}, false},
		"a key more":         {&corev1.ConfigMap{Data: map[string]string{"a": "1"}}, &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}, true},
		"made immutable":     {&corev1.Secret{}, &corev1.Secret{Immutable: new(true)}, true},
		"a secret more":      {&corev1.Secret{}, &corev1.Secret{Data: map[string][]byte{"a": nil}}, true},
		"a selector": {&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
			&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"a": "b"}}}, true},
		"what the peer allocates": {&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
			&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.9", IPFamilies: []corev1.IPFamily{"IPv4"}}}, false},
		"a port more": {&corev1.Service{}, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}, true},
	} {
		takeOut := kindOf(t, c.got).TakeOut
		if found := takeOut(c.got, c.want); found != c.found {
			t.Errorf("%s: found %v, want %v", name, found, c.found)
		}
		if takeOut(c.got, c.want) {
			t.Errorf("%s: it is still there", name)
		}
	}
}
