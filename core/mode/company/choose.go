package company

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Names under which the API server knows the users of laptops.
const (
	UserPrefix = "kith:laptop:" // followed by the laptop's ID, in its compact form
	Group      = "kith:laptops"
)

// noPolicy is why a laptop is not run.
const noPolicy = "no TetherPolicy there is for this laptop"

// Select gives the policy that counts for a laptop: of those that select it the one with the highest priority, then the first by name.
// Nil means that it may not be tethered.
func Select(policies []v1alpha1.TetherPolicy, peer *v1alpha1.Peer) *v1alpha1.TetherPolicy {
	var best *v1alpha1.TetherPolicy
	for i := range policies {
		p := &policies[i]
		if p.DeletionTimestamp.IsZero() && sharing.Selects(p.Spec.Peers, p.Spec.PeerSelector, peer) && (best == nil || before(p, best)) {
			best = p
		}
	}
	return best
}

func before(a, b *v1alpha1.TetherPolicy) bool {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name)) < 0
}

// answer is how a policy, which may be nil, answers a laptop's request to be tethered.
func answer(policy *v1alpha1.TetherPolicy, peer *v1alpha1.Peer) (answer peering.TetherAnswer, why string) {
	switch {
	case policy == nil:
		return peering.TetherNo, noPolicy
	case policy.Spec.AutoAccept && (sharing.Accepted(peer) || namesKey(policy, peer)):
		return peering.TetherYes, ""
	}
	return peering.TetherAsks, ""
}

// namesKey reports whether a policy lists the laptop's ID, the hash of its key: whoever wrote it has verified the key.
func namesKey(policy *v1alpha1.TetherPolicy, peer *v1alpha1.Peer) bool {
	return slices.ContainsFunc(policy.Spec.Peers, func(entry string) bool { return sharing.NamesKey(entry, peer) })
}

// user is the user name under which this API server knows the users of a laptop; "" for a malformed ID.
func user(id string) string {
	parsed, err := identity.ParseID(id)
	if err != nil {
		return ""
	}
	return UserPrefix + parsed.Compact()
}

// place is a namespace in which the users of a laptop may work.
type place struct {
	namespace, role string
	quota           corev1.ResourceList
	offload         bool
	policy          string
	// own: the namespace's name contains the laptop's. Laptops choose their names, so the namespace must also be labelled as this one's.
	own bool
}

const laptopWord = "{laptop}"

// roleOf is the ClusterRole of a namespace; the API server fills in the same where a policy names none.
func roleOf(n v1alpha1.LaptopNamespace) string { return cmp.Or(n.ClusterRole, "edit") }

// maxPlaces bounds the namespaces of one laptop, by what a message to it can list.
const maxPlaces = 64

// places are those that a policy, which may be nil, gives to the users of a laptop; left says in sentences which it cannot give.
func places(policy *v1alpha1.TetherPolicy, peer *v1alpha1.Peer) (all []place, left []string) {
	if policy == nil {
		return nil, nil
	}
	seen := map[string]bool{}
	for _, n := range policy.Spec.Namespaces {
		p := place{
			namespace: strings.ReplaceAll(n.Name, laptopWord, peer.Name), role: roleOf(n), quota: n.Quota,
			offload: n.Offload == nil || *n.Offload, policy: policy.Name, own: strings.Contains(n.Name, laptopWord),
		}
		switch {
		case p.own && peer.Name == "":
			continue // a stranger has no name yet
		case len(validation.IsDNS1123Label(p.namespace)) > 0:
			left = append(left, fmt.Sprintf("%q is not the name of a namespace", p.namespace))
		case v1alpha1.SystemNamespace(p.namespace): // of a policy that was stored before admission refused it
			left = append(left, fmt.Sprintf("the namespace %s is Kubernetes' or Kith's own, and not for laptops", p.namespace))
		case p.own && sharing.ReservedBy(sharing.Reserved(nil), p.namespace) != "":
			left = append(left, fmt.Sprintf("the namespace %s is not given away for the name of a laptop", p.namespace))
		case seen[p.namespace]:
			left = append(left, fmt.Sprintf("the namespace %s is named twice", p.namespace))
		case len(all) == maxPlaces:
			left = append(left, fmt.Sprintf("more than %d namespaces", maxPlaces))
			return all, left
		default:
			seen[p.namespace] = true
			all = append(all, p)
		}
	}
	return all, left
}
