package hosting

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// What a consumer may write that the policies do not look at would not be bounded at all.
func TestEveryReflectedKindIsBounded(t *testing.T) {
	for _, rights := range reflectedRules() {
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

func TestAddressesToldToThePolicy(t *testing.T) {
	pods := []corev1.Pod{
		{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.42.0.9"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "waits"}},
		{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.42.0.5"}, {IP: "fd00::5"}}}},
	}
	if got := addresses(pods); got != "10.42.0.5,10.42.0.9,fd00::5" {
		t.Errorf("guests: %s", got)
	}
	peer := &v1alpha1.Peer{}
	if got := aliasesOf(peer); got != "" {
		t.Errorf("ranges without a link: %s", got)
	}
	peer.Status.Network = &v1alpha1.NetworkStatus{Theirs: []v1alpha1.RangeAlias{{Name: "pods", Real: "10.42.0.0/16", Alias: "10.76.0.0/16"}, {Name: "more", Real: "10.1.0.0/24", Alias: "10.3.0.0/24"}}}
	if got := aliasesOf(peer); got != "10.3.0.0/24,10.76.0.0/16" {
		t.Errorf("ranges: %s", got)
	}
}
