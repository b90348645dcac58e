package backend

import (
	"testing"

	"kith.dev/core/api/v1alpha1"
)

func TestANamespaceIsToldWhichOfItsPeersProvideNothing(t *testing.T) {
	contracts := []*v1alpha1.Contract{{Spec: v1alpha1.ContractSpec{Role: v1alpha1.RoleConsumer, Peer: "bob"}}, {Spec: v1alpha1.ContractSpec{Role: v1alpha1.RoleProvider, Peer: "carol"}}}
	for want, peers := range map[string][]string{
		"": {"bob"}, "of the peers it may go to, these provide nothing: carol": {"bob", "carol"},
		"none of the peers it may go to provides anything: carol, dave": {"carol", "dave"},
	} {
		if got := noneOf(peers, contracts); got != want {
			t.Errorf("%v: %q, want %q", peers, got, want)
		}
	}
}
