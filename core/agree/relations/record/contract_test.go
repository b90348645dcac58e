package record

import (
	"testing"

	"kith.dev/core/api/v1alpha1"
)

// A contract that began to end under an older Kith says why in words alone.
func TestWhyAContractEndsIsReadFromTheWordsOfOlderOnes(t *testing.T) {
	for why, want := range map[string]v1alpha1.EndReason{
		"bob ended the contract": v1alpha1.EndedByPeer, "the contract ran out": v1alpha1.EndRanOut, "this laptop was untethered": v1alpha1.EndUntethered,
		"the peer was forgotten": v1alpha1.EndPeerForgotten, "ended here": v1alpha1.EndedHere, "carol ended the contract": v1alpha1.EndedHere, "": v1alpha1.EndedHere,
	} {
		old := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Peer: "bob"}, Status: v1alpha1.ContractStatus{State: v1alpha1.StateEnding, Why: why}}
		if got := EndReason(old); got != want {
			t.Errorf("%q: %s, want %s", why, got, want)
		}
		if old.Status.EndReason = v1alpha1.EndUninstalled; EndReason(old) != v1alpha1.EndUninstalled {
			t.Errorf("%q counts although there is a reason", why)
		}
	}
}
