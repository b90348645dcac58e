package provider

import (
	"fmt"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// networkFor is what a contract that is signed now says of the network: none where either side wants none.
func networkFor(asked v1alpha1.Network, policy *v1alpha1.SharingPolicy) string {
	if asked == v1alpha1.NetworkNone || sharing.NoTunnel(policy) {
		return contract.NetworkNone
	}
	return ""
}

// wantsNetwork is what an accepted request is for: what the owner said yes to without a network stays so, whatever his policy says by now.
func wantsNetwork(r *v1alpha1.PeeringRequest) v1alpha1.Network {
	if r.Status.Grant != nil && r.Status.Grant.Network == v1alpha1.NetworkNone {
		return v1alpha1.NetworkNone
	}
	return r.Spec.Network
}

// networkWords are those of a term.
func networkWords(term string) string {
	if term == contract.NetworkNone {
		return "no network"
	}
	return "a network"
}

// networkOf holds what a document says of the network against what is offered: a renewal says what was signed, and one with a tunnel is none where the owner
// has no more of them.
func networkOf(now *ledger.Snapshot, peer *v1alpha1.Peer, on grounds, policy *v1alpha1.SharingPolicy, says string) error {
	var offered string
	switch {
	case on.request != nil:
		offered = networkFor(wantsNetwork(on.request), policy)
	case sharing.NoTunnel(policy), on.old != nil && sharing.NoNetwork(on.old):
		offered = contract.NetworkNone
	}
	if says != offered {
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract has %s between the clusters, the offer %s", networkWords(says), networkWords(offered)),
			"bring the Kith of both up to date; end a contract in force; then ask again")
	}
	return unmixed(now, peer, on.old, says)
}

// unmixed refuses what says otherwise of the network than the contract that it changes, or the one in the other direction: there is one tunnel between
// two clusters, or none, and pods that began with one do not lose it.
func unmixed(now *ledger.Snapshot, peer *v1alpha1.Peer, old *v1alpha1.Contract, says string) error {
	none := says == contract.NetworkNone
	switch {
	case old != nil && sharing.NoNetwork(old) != none:
		return peering.Refuse(peering.CodeConflict, fmt.Sprintf("the contract in force is not one with %s between the clusters, and it stays so while it is in force", networkWords(says)),
			"end it (kith unpeer), then ask again")
	case sharing.OtherNetwork(now.With(peer.Name, v1alpha1.RoleConsumer), says):
		return peering.Refuse(peering.CodeConflict, fmt.Sprintf("the contract in the other direction is not one with %s between the clusters, and both have the same", networkWords(says)),
			"end that first (kith unpeer), then ask again")
	}
	return nil
}
