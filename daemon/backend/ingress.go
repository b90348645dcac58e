package backend

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
)

// annotationClass named the controller of an Ingress before IngressClasses did; some controllers still go by it.
const annotationClass = "kubernetes.io/ingress.class"

// mostIngresses bounds how many are looked at.
const mostIngresses = 250

// checkIngress tells of Ingresses that no controller answers: Kubernetes takes them, and nothing happens. Where Kith may not read them, as in a
// cluster of servers, it says nothing.
func (b *Backend) checkIngress(ctx context.Context, report func(api.Finding)) {
	if b.Engine == nil {
		return
	}
	c, err := b.directly()
	if err != nil {
		return
	}
	all, err := c.NetworkingV1().Ingresses("").List(ctx, metav1.ListOptions{Limit: mostIngresses})
	if err != nil || len(all.Items) == 0 {
		return
	}
	classes, err := c.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, i := range unanswered(all.Items, classes.Items) {
		why := "it names no IngressClass, and none is the default"
		if i.Spec.IngressClassName != nil {
			why = "there is no IngressClass " + *i.Spec.IngressClassName
		}
		report(api.Finding{
			Area: api.AreaEngine, Name: "ingress", State: api.CheckWarning, What: fmt.Sprintf("nobody answers the Ingress %s/%s", i.Namespace, i.Name), Why: why,
			Do: "install a controller, such as Traefik (docs/publish.md), or use a service of type LoadBalancer or NodePort",
		})
	}
}

// unanswered are the Ingresses that no controller can have taken for its own.
func unanswered(all []networkingv1.Ingress, classes []networkingv1.IngressClass) []networkingv1.Ingress {
	return slices.DeleteFunc(slices.Clone(all), func(i networkingv1.Ingress) bool {
		if len(i.Status.LoadBalancer.Ingress) > 0 || i.Annotations[annotationClass] != "" {
			return true
		}
		return slices.ContainsFunc(classes, func(c networkingv1.IngressClass) bool {
			if i.Spec.IngressClassName != nil {
				return c.Name == *i.Spec.IngressClassName
			}
			return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
		})
	})
}
