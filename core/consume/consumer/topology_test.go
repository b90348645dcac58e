package consumer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api/v1alpha1"
)

func TestWhereAPeerIsInTheTopology(t *testing.T) {
	const id = "P5QHIFI-AAAAAAA-AAAAAAA-AAAAAAA-AAAAAAA-AAAAAAA-AAAAAAA-AAAAAAA"
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		name         string
		source       v1alpha1.Source
		endpoints    []string
		domains      []string
		zone, region string
	}{
		{"bob", v1alpha1.SourceLAN, []string{"192.0.2.12:6450"}, []string{"kith.example.org"}, "bob", "lan"},
		{"alice", v1alpha1.SourceLAN, nil, nil, "alice_p5qhifi", "lan"}, // as this cluster is called
		{"bob", v1alpha1.SourceDNS, []string{"192.0.2.12:6450", "Bob.Kith.Example.org.:6450"}, nil, "bob", "kith.example.org"},
		{"bob", v1alpha1.SourceDNS, []string{"192.0.2.12:6450"}, []string{"Kith.example.org."}, "bob", "kith.example.org"},
		{"bob", v1alpha1.SourceDNS, []string{"192.0.2.12:6450"}, []string{"a.example.org", "b.example.org"}, "bob", "dns"},
		{"bob", v1alpha1.SourceManual, []string{"[2001:db8::1]:6450", "no port"}, []string{"kith.example.org"}, "bob", "manual"},
		{"bob", v1alpha1.SourceManual, []string{"bob:6450"}, nil, "bob", "manual"},
		{"bob", v1alpha1.SourceManual, []string{"bob." + long + "." + long + ":6450"}, nil, "bob", "manual"},
		{"bob", "", nil, nil, "bob", ""},
	} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: v1alpha1.PeerSpec{ID: id, Source: c.source, Endpoints: c.endpoints}}
		if zone, region := zoneOf(peer, "alice"), regionOf(peer, c.domains); zone != c.zone || region != c.region {
			t.Errorf("%s by %s at %v: zone %q, region %q, want %q, %q", c.name, c.source, c.endpoints, zone, region, c.zone, c.region)
		}
	}
	for name, want := range map[string]string{"corp.Example.org": "example.org", "bob.example.org:7000": "example.org", "bob": "manual"} {
		peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{DNSName: name, Source: v1alpha1.SourceManual, Endpoints: []string{"192.0.2.12:6450"}}}
		if region := regionOf(peer, nil); region != want {
			t.Errorf("added as %s: %q", name, region)
		}
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: long}, Spec: v1alpha1.PeerSpec{ID: id}}
	if zone := zoneOf(peer, long); zone == long || len(validation.IsValidLabelValue(zone)) > 0 {
		t.Errorf("zone %q", zone)
	}
}
