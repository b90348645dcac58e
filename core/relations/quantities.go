package relations

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
)

// quantities reads amounts that came from a peer.
func quantities(amounts map[string]string) (corev1.ResourceList, error) {
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

// exceeds names a resource of which want has more than have; empty when there is none.
func exceeds(want, have corev1.ResourceList) string {
	for name, q := range want {
		if limit, ok := have[name]; !ok && q.Sign() > 0 || ok && q.Cmp(limit) > 0 {
			return string(name)
		}
	}
	return ""
}

func equalStatus(a, b *v1alpha1.PeerStatus) bool { return equality.Semantic.DeepEqual(a, b) }
