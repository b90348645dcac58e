package grants

import (
	"testing"

	"kith.dev/core/api/v1alpha1"
)

// A bound that cannot be read lets nothing in from home, instead of everything.
func TestARateThatCannotBeReadClosesTheWayFromHome(t *testing.T) {
	for rate, want := range map[string]ImageRules{"": {Home: true}, "5M": {Home: true, Rate: 5_000_000}, "fast": {}, "-1": {Rate: -1}, "0": {}} {
		rules := imageRulesOf(&v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Images: &v1alpha1.ImageRules{Rate: rate}}})
		if rules.Home != want.Home || rules.Rate != want.Rate {
			t.Errorf("%q: %+v", rate, rules)
		}
	}
}
