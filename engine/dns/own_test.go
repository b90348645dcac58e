package dns

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// TestATwinsNameMeansItsNamespaceAtHome: a pod at a peer tells its host's name in full as it is there.
func TestATwinsNameMeansItsNamespaceAtHome(t *testing.T) {
	id := "mfzwi3dabcdefg" + strings.Repeat("x", 42)
	l := &lan{records: map[string][]string{
		"s-0.s.shop.svc.cluster.local. A":       {"s-0.s.shop.svc.cluster.local. 5 IN A 10.76.0.9"},
		"web.shop-aaaaaaa.svc.cluster.local. A": {"web.shop-aaaaaaa.svc.cluster.local. 5 IN A 10.43.0.3"},
		"alias.shop.svc.cluster.local. A":       {"alias.shop.svc.cluster.local. 5 IN CNAME nas.fritz.box.", "nas.fritz.box. 5 IN A 192.168.1.5"},
	}}
	p := tenants{next: l.handler(t), known: guestBook{}, id: id}
	for name, want := range map[string]string{
		"s-0.s.shop.svc.cluster.local.":                "10.76.0.9",
		"s-0.s.shop-mfzwi3d.svc.cluster.local.":        "10.76.0.9",
		"S-0.s.Shop-mfzwi3d.svc.cluster.local.":        "10.76.0.9",
		"s-0.s.shop-mfzwi3dabcdefg.svc.cluster.local.": "10.76.0.9",
		"web.shop-aaaaaaa.svc.cluster.local.":          "10.43.0.3",
		"alias.shop-mfzwi3d.svc.cluster.local.":        "192.168.1.5", // the owner's own
		"s-0.s.shop-aaaaaaa.svc.cluster.local.":        "",
		"s-0.s.-mfzwi3d.svc.cluster.local.":            "",
		"shop-mfzwi3d.":                                "",
	} {
		a := &client{from: "10.42.0.5"}
		_, err := serve(t.Context(), p, a, new(dns.Msg).SetQuestion(name, dns.TypeA))
		must(t, err)
		got := ""
		if n := len(a.got.Answer); n > 0 {
			got = a.got.Answer[n-1].(*dns.A).A.String()
			if a.got.Answer[0].Header().Name != name {
				t.Errorf("%s: an answer about %s", name, a.got.Answer[0].Header().Name)
			}
		}
		if got != want || a.got.Question[0].Name != name {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestOnlyNamespacesThatKithMadeAreTwins(t *testing.T) {
	long := strings.Repeat("a", 60)
	for name, c := range map[string]struct {
		home, consumer, manager string
		want                    bool
	}{
		"shop-aaaaaaa":                        {"shop", "aaaaaaabbbbbbbc", "", true},
		"shop-aaaaaaabbbbbbb":                 {"shop", "aaaaaaabbbbbbbc", "", true},
		"shop-bbbbbbb":                        {"shop", "aaaaaaabbbbbbbc", "", false},
		"vault-aaaaaaa":                       {"shop", "aaaaaaabbbbbbbc", "", false},
		"monitoring":                          {"shop", "aaaaaaabbbbbbbc", "", false},
		"shop":                                {"shop", "aaaaaaabbbbbbbc", "kubectl-label", false},
		"lab":                                 {"lab", "aaaaaaabbbbbbbc", "kith", true},
		"none":                                {"", "", "kith", false},
		v1alpha1.TwinName(long, "aaaaaaa"):    {long, "aaaaaaabbbbbbbc", "", true},
		long[:46] + "-1a2b3c4d-aaaaaaa":       {long, "aaaaaaabbbbbbbc", "", false},
		"b" + long[:45] + "-1a2b3c4d-aaaaaaa": {long, "aaaaaaabbbbbbbc", "", false},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelHomeNamespace: c.home, v1alpha1.LabelConsumer: c.consumer},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: c.manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kith.dev/consumer":{}}}}`)}}}}
		o, err := essence(ns)
		must(t, err)
		if got := o.(*corev1.Namespace).Labels[v1alpha1.LabelHomeNamespace] != ""; got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
