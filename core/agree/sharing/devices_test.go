package sharing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
)

// Devices are offered when they are named, as far as a node has them; what every machine has is offered beside them as ever.
func TestDevicesAreOfferedAsTheNodesHaveThem(t *testing.T) {
	node := list("cpu", "8", "memory", "16Gi", "pods", "110", "ephemeral-storage", "100Gi", "nvidia.com/gpu", "4", "example.com/gone", "0")
	for _, c := range []struct {
		amounts map[string]v1alpha1.Amount
		in      OfferInput
		want    corev1.ResourceList
	}{
		{nil, OfferInput{}, list()},
		{nil, OfferInput{Asked: list("nvidia.com/gpu", "1")}, list()},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "1"}, OfferInput{}, list("nvidia.com/gpu", "1")},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "9"}, OfferInput{}, list("nvidia.com/gpu", "4")},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "30%"}, OfferInput{}, list("nvidia.com/gpu", "1")},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "3"}, OfferInput{Asked: list("nvidia.com/gpu", "2")}, list("nvidia.com/gpu", "2")},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "3"}, OfferInput{InForce: []corev1.ResourceList{list("nvidia.com/gpu", "2")}}, list("nvidia.com/gpu", "1")},
		{map[string]v1alpha1.Amount{"nvidia.com/gpu": "3"}, OfferInput{Supply: supply.Supply{Own: list("nvidia.com/gpu", "4")}}, list()},
		{map[string]v1alpha1.Amount{"example.com/gone": "1", "example.com/never": "2", "example.com/none": "50%"}, OfferInput{}, list()},
	} {
		policy := Default(50)
		for name, amount := range c.amounts {
			policy.Spec.Amounts[name] = amount
		}
		c.in.Policy, c.in.Supply.Nodes = policy, node
		offer, err := Offer(c.in)
		if err != nil {
			t.Errorf("%v: %v", c.amounts, err)
		}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage"} {
			if _, there := offer[name]; !there {
				t.Errorf("%v: no %s", c.amounts, name)
			}
			delete(offer, name)
		}
		if !Same(offer, c.want) || len(offer) != len(c.want) {
			t.Errorf("%v %+v: %v, want %v", c.amounts, c.in, offer, c.want)
		}
	}
}
