package record

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/contract"
)

// Quantities reads amounts that came from a peer.
func Quantities(amounts map[string]string) (corev1.ResourceList, error) {
	// First the bounds: "1e999999999999" would keep the quantity parser busy for ever.
	if err := contract.CheckResources(amounts); err != nil {
		return nil, err
	}
	list := make(corev1.ResourceList, len(amounts))
	for name, text := range amounts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

// Amounts turns a list of resources into the strings that cross between clusters.
func Amounts(list corev1.ResourceList) map[string]string {
	m := make(map[string]string, len(list))
	for name, quantity := range list {
		m[string(name)] = quantity.String()
	}
	return m
}

// Exceeds names a resource of which want has more than have; empty when there is none.
func Exceeds(want, have corev1.ResourceList) string {
	for name, q := range want {
		if limit, ok := have[name]; !ok && q.Sign() > 0 || ok && q.Cmp(limit) > 0 {
			return string(name)
		}
	}
	return ""
}
