package sharing

import (
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// NoTunnel reports whether the owner has no tunnels to peers under the policy.
func NoTunnel(policy *v1alpha1.SharingPolicy) bool {
	return policy != nil && policy.Spec.Tunnel == v1alpha1.AccessDeny
}

// NoNetwork reports whether there is no network between the clusters of a contract, by the word that both signed.
func NoNetwork(ctr *v1alpha1.Contract) bool {
	doc, err := contract.Parse(ctr.Spec.Document)
	return err == nil && doc.Network == contract.NetworkNone
}

// MayLink reports whether both signed that there is a network. By a contract that cannot be read there is none.
func MayLink(ctr *v1alpha1.Contract) bool {
	doc, err := contract.Parse(ctr.Spec.Document)
	return err == nil && doc.Network != contract.NetworkNone
}

// Network is a term of a contract as objects have it.
func Network(term string) v1alpha1.Network {
	if term == contract.NetworkNone {
		return v1alpha1.NetworkNone
	}
	return ""
}

// NetworkTerm is what an object says of the network as contracts have it.
func NetworkTerm(n v1alpha1.Network) string {
	if n == v1alpha1.NetworkNone {
		return contract.NetworkNone
	}
	return ""
}

// OtherNetwork reports whether a contract in the other direction says otherwise of the network than one that is to be signed: there is one tunnel, or none,
// for both. Those that end count as well: their guests still use it.
func OtherNetwork(opposite []*v1alpha1.Contract, term string) bool {
	for _, ctr := range opposite {
		if NoNetwork(ctr) != (term == contract.NetworkNone) {
			return true
		}
	}
	return false
}
