package door

import (
	"slices"
	"testing"

	"kith.dev/core/kinds"
)

// A policy that lets through what it cannot judge, or that is not bound, holds nobody.
func TestEveryPolicyDenies(t *testing.T) {
	for _, b := range kinds.Bounds() {
		p, binding := policyOf(b), bindingOf(b)
		if *p.Spec.FailurePolicy != "Fail" || len(p.Spec.Validations) != len(b.Rules) || binding.Spec.PolicyName != p.Name || !slices.Contains(binding.Spec.ValidationActions, "Deny") {
			t.Errorf("%s: %+v, %+v", b.Name, p.Spec, binding.Spec)
		}
	}
}
