package exposure

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var lan = []netip.Addr{netip.MustParseAddr("192.0.2.11")}

// service is one of type LoadBalancer; age is in hours.
func service(name string, age int, change ...func(*corev1.Service)) corev1.Service {
	s := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-time.Duration(age) * time.Hour))},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func has(ip, by string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: new(corev1.LoadBalancerIPModeVIP)}}
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: by, Subresource: "status"}}
	}
}

func ofType(t corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = t }
}

func on(n int32, p corev1.Protocol) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: n, Protocol: p}} }
}

func class(s *corev1.Service)   { s.Spec.LoadBalancerClass = new("example.org/metal") }
func guestly(s *corev1.Service) { s.Namespace = "shop-mfzwi3d" }
func going(s *corev1.Service)   { s.DeletionTimestamp = new(metav1.Now()) }

func TestWhoGetsTheLaptopsAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		services  []corev1.Service
		addresses []netip.Addr
		want      string // steps: NAME=ADDRESSES, or NAME: part of the reason
	}{
		"a service that waits":               {[]corev1.Service{service("web", 1)}, lan, "web=192.0.2.11"},
		"one that has it":                    {[]corev1.Service{service("web", 1, has("192.0.2.11", owner))}, lan, ""},
		"the laptop moved":                   {[]corev1.Service{service("web", 1, has("198.51.100.7", owner))}, lan, "web=192.0.2.11"},
		"the laptop is nowhere":              {[]corev1.Service{service("web", 1, has("192.0.2.11", owner)), service("new", 1)}, nil, "web="},
		"the laptop is on two LANs":          {[]corev1.Service{service("web", 1)}, append(lan, netip.MustParseAddr("198.51.100.7")), "web=192.0.2.11,198.51.100.7"},
		"other types":                        {[]corev1.Service{service("a", 1, ofType(corev1.ServiceTypeClusterIP)), service("b", 1, ofType(corev1.ServiceTypeNodePort))}, lan, ""},
		"it is of another type now":          {[]corev1.Service{service("a", 1, ofType(corev1.ServiceTypeClusterIP), has("192.0.2.11", owner))}, lan, "a="},
		"another's class":                    {[]corev1.Service{service("web", 1, class)}, lan, ""},
		"it became another's":                {[]corev1.Service{service("web", 1, class, has("192.0.2.11", owner))}, lan, "web="},
		"what others gave":                   {[]corev1.Service{service("web", 1, has("203.0.113.9", "metallb"))}, lan, ""},
		"what others gave, exposing nothing": {[]corev1.Service{service("web", 1, has("203.0.113.9", "metallb"))}, nil, ""},
		"a namespace of guests":              {[]corev1.Service{service("web", 1, guestly)}, lan, "web: another cluster's"},
		"a namespace that became a guests'":  {[]corev1.Service{service("web", 1, guestly, has("192.0.2.11", owner))}, lan, "web: another cluster's"},
		"one that is going":                  {[]corev1.Service{service("web", 1, going)}, lan, ""},
		"two want one port":                  {[]corev1.Service{service("young", 1), service("old", 2)}, lan, "old=192.0.2.11 young: shop/old"},
		"who has a port keeps it":            {[]corev1.Service{service("young", 1, has("192.0.2.11", owner)), service("old", 2)}, lan, "old: shop/young"},
		"one number, two protocols":          {[]corev1.Service{service("a", 2), service("b", 1, on(80, corev1.ProtocolUDP))}, lan, "a=192.0.2.11 b=192.0.2.11"},
		"a port of the laptop's own":         {[]corev1.Service{service("ssh", 1, on(22, ""))}, lan, "ssh: 22/TCP of this laptop is in use"},
		"and it has it already":              {[]corev1.Service{service("ssh", 1, on(22, ""), has("192.0.2.11", owner))}, lan, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			steps := plan(tt.services, tt.addresses, func(namespace string) bool { return namespace == "shop-mfzwi3d" },
				func(p port) bool { return p == port{corev1.ProtocolTCP, 22} })
			for _, s := range steps {
				if s.refused != "" {
					if s.write && len(s.ingress) > 0 {
						t.Errorf("%s is refused, and gets %v", s.service.Name, s.ingress)
					}
					got = append(got, s.service.Name+": "+s.refused)
				} else if s.write {
					got = append(got, s.service.Name+"="+strings.Join(s.ingress, ","))
				}
			}
			slices.Sort(got)
			want := strings.Fields(tt.want)
			if strings.Contains(tt.want, ": ") {
				want = nil // its words are looked for below
			}
			if len(want) > 0 && !slices.Equal(got, want) || tt.want == "" && len(got) > 0 {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			if want == nil {
				all := strings.Join(got, " ")
				for part := range strings.SplitSeq(tt.want, ": ") {
					if !strings.Contains(all, part) {
						t.Errorf("got %q, want %q in it", all, part)
					}
				}
			}
		})
	}
}

func TestAPortThatAProgramListensOnIsBusy(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		p := port{corev1.ProtocolTCP, int32(l.Addr().(*net.TCPAddr).Port)}
		if !listens(at, p) {
			t.Errorf("%s: a program listens on %s, and it is taken for free", address, p)
		}
		l.Close()
		if listens(at, p) {
			t.Errorf("%s: nobody listens on %s any more, and it is taken for busy", address, p)
		}
	}
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if p := (port{corev1.ProtocolUDP, int32(u.LocalAddr().(*net.UDPAddr).Port)}); !listens(at, p) {
		t.Error(fmt.Sprint("UDP ", p, " is taken for free"))
	}
}
