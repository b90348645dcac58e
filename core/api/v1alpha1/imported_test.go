package v1alpha1

import "testing"

func TestNamesOfAClustersetAreThoseOfImports(t *testing.T) {
	web := ImportedService("web")
	if web == ImportedService("web", "0") || web == ImportedService("web0") || len(web) > 63 {
		t.Error(web)
	}
	for name, want := range map[string]string{
		"web.shop.svc.clusterset.local.":              web + ".shop.svc.cluster.local.",
		"web-0.abc.web.shop.svc.clusterset.local.":    "web-0." + web + ".shop.svc.cluster.local.",
		"_http._tcp.web.shop.svc.clusterset.local.":   "_http._tcp." + web + ".shop.svc.cluster.local.",
		"10-127-3-200.web.shop.svc.clusterset.local.": "10-127-3-200." + web + ".shop.svc.cluster.local.",
		"web.shop.svc.cluster.local.":                 "",
		"shop.svc.clusterset.local.":                  "",
		"svc.clusterset.local.":                       "",
		"web.shop.svc.clusterset.local.example.com.":  "",
	} {
		if got, ok := ImportedName(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
