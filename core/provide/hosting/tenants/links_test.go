package tenants

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/guests"
)

// TestVariablesTellWhereServicesAreAtHome, as a kubelet at home would.
func TestVariablesTellWhereServicesAreAtHome(t *testing.T) {
	web, silent, dns := serviceIn("shop", "my-web", "10.43.1.2", "10.43.9.3", 0), serviceIn("shop", "silent", "10.43.1.3", "10.43.9.4", 0), serviceIn("shop", "dns", "10.43.1.4", "10.43.9.5", 0)
	api := serviceIn("shop", kinds.APIServerAbroad, "10.43.0.1", "10.43.9.6", 0)
	web.Spec.Ports = []corev1.ServicePort{{Name: "http-x", Port: 80}, {Port: 443, Protocol: corev1.ProtocolTCP}}
	dns.Spec.Ports = []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}
	api.Spec.Ports = []corev1.ServicePort{{Port: 443}} // guests have its variables from home
	want := map[string]string{
		"MY_WEB_SERVICE_HOST": "10.43.1.2", "MY_WEB_SERVICE_PORT": "80", "MY_WEB_SERVICE_PORT_HTTP_X": "80", "MY_WEB_PORT": "tcp://10.43.1.2:80",
		"MY_WEB_PORT_80_TCP": "tcp://10.43.1.2:80", "MY_WEB_PORT_80_TCP_PROTO": "tcp", "MY_WEB_PORT_80_TCP_PORT": "80", "MY_WEB_PORT_80_TCP_ADDR": "10.43.1.2",
		"MY_WEB_PORT_443_TCP": "tcp://10.43.1.2:443", "MY_WEB_PORT_443_TCP_PROTO": "tcp", "MY_WEB_PORT_443_TCP_PORT": "443", "MY_WEB_PORT_443_TCP_ADDR": "10.43.1.2",
		"DNS_SERVICE_HOST": "10.43.1.4", "DNS_SERVICE_PORT": "53", "DNS_PORT": "udp://10.43.1.4:53",
		"DNS_PORT_53_UDP": "udp://10.43.1.4:53", "DNS_PORT_53_UDP_PROTO": "udp", "DNS_PORT_53_UDP_PORT": "53", "DNS_PORT_53_UDP_ADDR": "10.43.1.4",
	}
	if got := variables([]*corev1.Service{&web, &silent, &api, &dns}); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	var many []*corev1.Service
	for i := range 500 {
		s := serviceIn("shop", fmt.Sprintf("s-%03d", i), "10.43.1.2", "10.43.9.3", 0)
		for port := range int32(100) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: port + 1})
		}
		many = append(many, &s)
	}
	size := 0
	for name, value := range variables(many) {
		size += len(name) + len(value)
	}
	if size > maxLinks || size < maxLinks/2 {
		t.Errorf("%d bytes of variables", size)
	}
}

// TestVariablesFollowTheServices: written when they change, and not by the consumer.
func TestVariablesFollowTheServices(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	peer.Status.Network = &v1alpha1.NetworkStatus{GuestsHere: "10.71.0.0/24", Space: []string{"10.42.0.0/16"}, Services: "10.43.0.0/16"}
	contract := contractWith("bob", "contractb")
	p := newProvider(t, peer, contract)
	shop, err := p.ensure(contract, bob, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	s := &services{tenants: p.tenants, kernel: &kernel{}}
	told := func() (map[string]string, bool) {
		t.Helper()
		s.next = time.Time{}
		if _, err := s.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		var cm corev1.ConfigMap
		err := p.client.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: guests.Links}, &cm)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if cm.Labels[v1alpha1.LabelManagedBy] != "" {
			t.Error("the consumer may write it, and takes it for its own")
		}
		return cm.Data, !apierrors.IsNotFound(err)
	}
	if data, there := told(); there {
		t.Errorf("without services there is %v", data)
	}
	web := serviceIn(shop, "web", "10.43.1.2", "10.43.9.3", 0)
	web.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	if err := p.client.Create(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	if data, _ := told(); data["WEB_SERVICE_HOST"] != "10.43.1.2" || data["WEB_PORT"] != "tcp://10.43.1.2:80" {
		t.Errorf("told %v", data)
	}
	was := web.DeepCopy()
	web.Spec.Ports[0].Port = 8080
	if err := p.client.Update(t.Context(), &web); err != nil || !addressChanged(was, &web) {
		t.Fatal(err)
	}
	if data, _ := told(); data["WEB_SERVICE_PORT"] != "8080" || data["WEB_PORT_80_TCP"] != "" {
		t.Errorf("told %v", data)
	}
	if err := p.client.Delete(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	s = &services{tenants: p.tenants, kernel: &kernel{}} // while no daemon ran
	if data, there := told(); there {
		t.Errorf("the service is gone, told %v", data)
	}
	web.ResourceVersion = ""
	if err := p.client.Create(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	if data, _ := told(); data["WEB_SERVICE_PORT"] != "8080" {
		t.Errorf("told %v", data)
	}
	if err := p.client.Delete(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	if data, there := told(); there {
		t.Errorf("the service is gone again, told %v", data)
	}
}
