package grants

import (
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// maxChain is how many clusters a pod may have come by before the consumer: with its contract and the next one that is two contracts, and no broker
// has pods of another broker's.
const maxChain = 1

// ForAnother says why a consumer may not have here what it has for others, nil when it may: its contract must say so, the way must not be longer than
// one broker's, and must not lead back to where it comes from. A consumer that says nothing of it cannot be told from one that has it for itself.
func ForAnother(t *Terms, chain []v1alpha1.ChainLink) *Refusal {
	if len(chain) == 0 {
		return nil
	}
	if !t.Reoffer {
		return Refused(ReasonNotReoffered, "contract %s does not let what it grants be offered on to others, and this is for %.128s", t.Contract, chain[0].Cluster)
	}
	if len(chain) > maxChain {
		return Refused(ReasonNotReoffered, "it came by %d clusters, and what is granted here is offered on once", len(chain)+1)
	}
	for _, link := range chain {
		id, err := identity.ParseID(link.Cluster)
		switch {
		case err != nil:
			return Refused(ReasonInvalid, "spec.chain: %.128q is not the ID of a cluster", link.Cluster)
		case id.String() == t.Consumer.ID, id.String() == t.Provider:
			return Refused(ReasonNotReoffered, "it came by %s, and would be where it was already", id)
		}
	}
	return nil
}
