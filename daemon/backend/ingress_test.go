package backend

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnIngressWithoutAControllerIsNamed(t *testing.T) {
	ingress := func(name string, change func(*networkingv1.Ingress)) networkingv1.Ingress {
		i := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		change(&i)
		return i
	}
	class := func(name, isDefault string) networkingv1.IngressClass {
		return networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}}}
	}
	all := []networkingv1.Ingress{
		ingress("plain", func(*networkingv1.Ingress) {}),
		ingress("nginx", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") }),
		ingress("old", func(i *networkingv1.Ingress) { i.Annotations = map[string]string{annotationClass: "nginx"} }),
		ingress("has", func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		}),
	}
	for name, c := range map[string]struct {
		classes []networkingv1.IngressClass
		want    []string
	}{
		"no controller":          {nil, []string{"plain", "nginx"}},
		"one that is none's own": {[]networkingv1.IngressClass{class("traefik", "")}, []string{"plain", "nginx"}},
		"the default one":        {[]networkingv1.IngressClass{class("traefik", "true")}, []string{"nginx"}},
		"the named one":          {[]networkingv1.IngressClass{class("nginx", "false")}, []string{"plain"}},
		"both":                   {[]networkingv1.IngressClass{class("nginx", ""), class("traefik", "true")}, nil},
	} {
		var got []string
		for _, i := range unanswered(all, c.classes) {
			got = append(got, i.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
