package sharing

import (
	"strings"
	"testing"

	"kith.dev/core/api/v1alpha1"
)

func TestReservedNames(t *testing.T) {
	all := Reserved([]v1alpha1.SharingPolicy{
		policy("none", nil),
		policy("one", func(s *v1alpha1.SharingPolicySpec) {
			s.Namespaces = &v1alpha1.GuestNamespaces{Reserved: []string{"prod-*", "books"}}
		}),
		policy("two", func(s *v1alpha1.SharingPolicySpec) {
			s.Namespaces = &v1alpha1.GuestNamespaces{Reserved: []string{"books", "*" + "-vault-*"}}
		}),
	})
	for name, want := range map[string]string{
		"default": "default", "kube-system": "*-system", "kube-x": "kube-*", "kith-bob": "kith-*", "openshift-dns": "openshift-*", "cert-manager": "cert-manager",
		"argocd": "argocd", "monitoring": "monitoring", "istio-ingress": "istio-*", "ingress-nginx": "ingress-*", "flux-system": "*-system", "my-operator": "*-operator",
		"prod-1": "prod-*", "books": "books", "the-vault-1": "*-vault-*",
		"shop": "", "books2": "", "prod": "", "defaults": "", "kubes": "", "system": "", "web-monitoring": "",
	} {
		if got := ReservedBy(all, name); got != want {
			t.Errorf("%s is reserved by %q, want %q", name, got, want)
		}
	}
	for _, pattern := range reserved {
		if !isPattern(pattern) {
			t.Errorf("%q is no pattern", pattern)
		}
	}
}

func TestMalformedPatternsAreRefused(t *testing.T) {
	for pattern, ok := range map[string]bool{"prod-*": true, "*": true, "a": true, "": false, "Prod": false, "a[b": false, "a?": false, "a.b": false, strings.Repeat("a", 64): false} {
		p := policy("p", func(s *v1alpha1.SharingPolicySpec) {
			s.Amounts = map[string]v1alpha1.Amount{"cpu": "1"}
			s.Namespaces = &v1alpha1.GuestNamespaces{Reserved: []string{"fine", pattern}}
		})
		err := Validate(&p)
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "spec.namespaces.reserved[1]") {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
