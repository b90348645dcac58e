package sharing

import (
	"errors"
	"maps"
	"testing"

	"kith.dev/core/api/v1alpha1"
)

func TestPricesOfAnOffer(t *testing.T) {
	policy := Default(50)
	policy.Spec.Prices = map[string]v1alpha1.UnitPrice{"cpu": "0.02 EUR", "nvidia.com/gpu": "1 EUR", "pods": "1 EUR"}
	if got := Prices(policy, map[string]string{"cpu": "2", "memory": "1Gi", "pods": "5"}); !maps.Equal(got, map[string]string{"cpu": "0.02 EUR"}) {
		t.Errorf("%v", got)
	}
	policy.Spec.Prices["network"] = "0.01 EUR" // of which nothing is granted
	if got := Prices(policy, map[string]string{"memory": "1Gi"}); !maps.Equal(got, map[string]string{"network": "0.01 EUR"}) {
		t.Errorf("%v", got)
	}
	delete(policy.Spec.Prices, "network")
	if Prices(policy, map[string]string{"memory": "1Gi"}) != nil || Prices(nil, map[string]string{"cpu": "1"}) != nil {
		t.Error("what has no price is priced")
	}
}

func TestPricesThatCannotBeMeant(t *testing.T) {
	for name, prices := range map[string]map[string]v1alpha1.UnitPrice{
		"of pods": {"pods": "1 EUR"}, "of nothing": {"a//b": "1 EUR"}, "no number": {"cpu": "cheap"}, "no currency": {"cpu": "1"}, "two currencies": {"cpu": "1 EUR", "memory": "1 USD"},
	} {
		policy := Default(50)
		policy.Spec.Prices = prices
		var field *FieldError
		if err := Validate(policy); !errors.As(err, &field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	policy := Default(50)
	policy.Spec.Prices = map[string]v1alpha1.UnitPrice{"cpu": "0.02 credits", "storage": "0.0001 credits", "nvidia.com/gpu": "1 credits", "network": "0.01 credits"}
	if err := Validate(policy); err != nil {
		t.Error(err)
	}
}
