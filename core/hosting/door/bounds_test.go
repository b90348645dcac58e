package door

import (
	"slices"
	"testing"
)

// What a consumer may write that the policies do not look at would not be bounded at all.
func TestEveryReflectedKindIsBounded(t *testing.T) {
	for _, rights := range ReflectedRules() {
		for _, resource := range rights.Resources {
			i := slices.IndexFunc(bounds, func(b bound) bool {
				return b.group == rights.APIGroups[0] && slices.Contains(b.resources, resource) && b.deletes
			})
			if i < 0 {
				t.Errorf("%s: no policy", resource)
				continue
			}
			p, binding := bounds[i].policy(), bounds[i].binding()
			if *p.Spec.FailurePolicy != "Fail" || len(p.Spec.Validations) != len(metadataRules) || binding.Spec.PolicyName != p.Name || !slices.Contains(binding.Spec.ValidationActions, "Deny") {
				t.Errorf("%s: %+v, %+v", resource, p.Spec, binding.Spec)
			}
		}
	}
}
