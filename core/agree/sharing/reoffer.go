package sharing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/supply"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
)

// Reoffer reports whether a peer may offer on what it is granted by a contract that is signed now. What this cluster has of others itself goes on no
// further: else nobody could say how far a pod is from its home, and two that offer each other's on would add them up for ever.
func Reoffer(policy *v1alpha1.SharingPolicy) bool {
	return policy != nil && policy.Spec.Reoffer == v1alpha1.AccessAllow && !NoTunnel(policy) && len(policy.Spec.ReofferFrom) == 0
}

// MayReoffer reports whether the consumer of a contract may offer on to others what it grants, by the word that both signed.
func MayReoffer(ctr *v1alpha1.Contract) bool {
	doc, err := contract.Parse(ctr.Spec.Document)
	return err == nil && doc.Reoffer
}

// Reoffered are the contracts by which this cluster has what it offers on to a peer under the policy: of providers that the policy names, that allow it
// by the contract, and are not the peer itself. There are no more than guests of one home may go on to; those to which they may already come first, then
// the first by name. Those whose prices do not go with the policy's margin are left out, see NotPayable.
func Reoffered(policy *v1alpha1.SharingPolicy, to *v1alpha1.Peer, peers []*v1alpha1.Peer, contracts []*v1alpha1.Contract, now time.Time) []*v1alpha1.Contract {
	list, _ := reoffered(policy, to, peers, contracts, now)
	return list[:min(len(list), netplan.MaxRelayed)]
}

// NotPayable are the contracts that Reoffered leaves out because of their prices: in another currency, or too high to be a price with the margin.
func NotPayable(policy *v1alpha1.SharingPolicy, to *v1alpha1.Peer, peers []*v1alpha1.Peer, contracts []*v1alpha1.Contract, now time.Time) []*v1alpha1.Contract {
	_, left := reoffered(policy, to, peers, contracts, now)
	return left
}

func reoffered(policy *v1alpha1.SharingPolicy, to *v1alpha1.Peer, peers []*v1alpha1.Peer, contracts []*v1alpha1.Contract, now time.Time) (list, left []*v1alpha1.Contract) {
	if policy == nil || len(policy.Spec.ReofferFrom) == 0 {
		return nil, nil
	}
	ids := map[string]string{} // of providers, by the Peer's name
	for _, p := range peers {
		if p.Spec.ID != to.Spec.ID && slices.ContainsFunc(policy.Spec.ReofferFrom, func(entry string) bool { return entry == AllProviders || names(entry, p) }) {
			ids[p.Name] = p.Spec.ID
		}
	}
	for _, ctr := range contracts {
		if ids[ctr.Spec.Peer] != "" && ctr.Spec.Role == v1alpha1.RoleConsumer && ctr.DeletionTimestamp == nil && (ctr.Spec.NotAfter == nil || now.Before(ctr.Spec.NotAfter.Time)) && MayReoffer(ctr) {
			list = append(list, ctr)
		}
	}
	goes := func(ctr *v1alpha1.Contract) int {
		if n := to.Status.Network; n != nil && slices.ContainsFunc(n.Relayed, func(r v1alpha1.RelayedRange) bool { return r.ID == ids[ctr.Spec.Peer] }) {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b *v1alpha1.Contract) int {
		return cmp.Or(goes(a)-goes(b), cmp.Compare(a.Spec.Peer, b.Spec.Peer), cmp.Compare(a.Name, b.Name))
	})
	return payable(policy, slices.CompactFunc(list, func(a, b *v1alpha1.Contract) bool { return a.Spec.Peer == b.Spec.Peer }))
}

// WithReoffered is what there is with what contracts grant now of what is offered on.
func WithReoffered(there supply.Supply, from []*v1alpha1.Contract, now time.Time) supply.Supply {
	there.Nodes = maps.Clone(there.Nodes)
	for _, ctr := range from {
		for _, name := range OfferedOn {
			sum := there.Nodes[name].DeepCopy()
			sum.Add(ctr.Grants(now)[name])
			there.Nodes[name] = sum
		}
		there.Scratch.Add(ctr.Grants(now)[corev1.ResourceEphemeralStorage])
	}
	return there
}
