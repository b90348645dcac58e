package sharing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// DefaultName is the name of the policy a new cluster starts with. It is for every peer.
const DefaultName = "default"

// Select gives the policy that counts for the peer: of those that select it the one with the highest
// priority, then the first by name. Nil means the peer is offered nothing. A policy whose selector is
// malformed selects nobody; Validate says so to its author.
func Select(policies []v1alpha1.SharingPolicy, peer *v1alpha1.Peer) *v1alpha1.SharingPolicy {
	var best *v1alpha1.SharingPolicy
	for i := range policies {
		if by, _ := look(&policies[i], peer); by != "" && (best == nil || before(&policies[i], best)) {
			best = &policies[i]
		}
	}
	return best
}

// Look is how one policy looks at a peer: Select's, for people who ask why.
type Look struct {
	Policy *v1alpha1.SharingPolicy
	By     api.SelectedBy // "" when it does not select the peer
	Not    api.NotFor     // why it does not
}

// Looks are those of all policies, in the order in which they count: the first with a By is Select's.
func Looks(policies []v1alpha1.SharingPolicy, peer *v1alpha1.Peer) []Look {
	all := make([]Look, 0, len(policies))
	for i := range policies {
		by, not := look(&policies[i], peer)
		all = append(all, Look{&policies[i], by, not})
	}
	slices.SortFunc(all, func(a, b Look) int { return order(a.Policy, b.Policy) })
	return all
}

func look(p *v1alpha1.SharingPolicy, peer *v1alpha1.Peer) (api.SelectedBy, api.NotFor) {
	if !p.DeletionTimestamp.IsZero() {
		return "", api.NotForDeleted
	}
	return selectedBy(p.Spec.Peers, p.Spec.PeerSelector, peer)
}

func before(a, b *v1alpha1.SharingPolicy) bool { return order(a, b) < 0 }

func order(a, b *v1alpha1.SharingPolicy) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name))
}

// Selects reports whether a policy with these peers and this selector is for the peer. Both empty means everybody; else it is
// enough that one of them names the peer. A name is what a peer calls itself, so it counts for a Peer whose key the owner accepted
// and for nobody else; a stranger is named by its ID. Labels are on Peer objects, which strangers have none of: "not blocked" must
// not mean everybody who comes along.
func Selects(peers []string, selector *metav1.LabelSelector, peer *v1alpha1.Peer) bool {
	by, _ := selectedBy(peers, selector, peer)
	return by != ""
}

// selectedBy says by what, or why not.
func selectedBy(peers []string, selector *metav1.LabelSelector, peer *v1alpha1.Peer) (api.SelectedBy, api.NotFor) {
	if len(peers) == 0 && selector == nil {
		return api.SelectedEverybody, ""
	}
	not := api.NotForNotNamed
	for _, entry := range peers {
		switch {
		case NamesKey(entry, peer):
			return api.SelectedByID, ""
		case names(entry, peer):
			return api.SelectedByName, ""
		case peer != nil && entry == peer.Name:
			not = api.NotForNotAccepted
		}
	}
	switch {
	case selector == nil:
		return "", not
	case !kept(peer):
		return "", api.NotForStranger
	}
	switch s, err := metav1.LabelSelectorAsSelector(selector); {
	case err != nil:
		return "", api.NotForMalformed
	case s.Matches(labels.Set(peer.Labels)):
		return api.SelectedByLabels, ""
	}
	if not == api.NotForNotAccepted {
		return "", not
	}
	return "", api.NotForLabels
}

// ListedAt gives the policy of which the peer, as a catalogue, may list what it offers: of those that name it as one the first in the order in which
// they count. Nil means nothing. A name counts for a Peer whose key the owner accepted, as in Selects.
func ListedAt(policies []v1alpha1.SharingPolicy, peer *v1alpha1.Peer) (best *v1alpha1.SharingPolicy) {
	for i := range policies {
		p := &policies[i]
		if p.DeletionTimestamp.IsZero() && slices.ContainsFunc(p.Spec.Catalogues, func(entry string) bool { return names(entry, peer) }) && (best == nil || before(p, best)) {
			best = p
		}
	}
	return best
}

// names reports whether an entry of a policy's peers means the peer.
func names(entry string, peer *v1alpha1.Peer) bool {
	if _, err := identity.ParseID(entry); err == nil {
		return NamesKey(entry, peer)
	}
	return entry == peer.Name && Accepted(peer)
}

// NamesKey reports whether an entry of a policy's peers is the peer's ID. IDs are compared as keys, however they are spelled.
func NamesKey(entry string, peer *v1alpha1.Peer) bool {
	id, err := identity.ParseID(entry)
	if err != nil {
		return false
	}
	theirs, err := identity.ParseID(peer.Spec.ID)
	return err == nil && theirs == id
}

// Accepted reports whether the owner of this cluster accepted the key of the Peer, so that its name can be gone by.
func Accepted(peer *v1alpha1.Peer) bool {
	return kept(peer) && meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionAccepted)
}

// kept reports whether the Peer is an object here, not what a stranger would become.
func kept(peer *v1alpha1.Peer) bool { return peer != nil && peer.ResourceVersion != "" }

// Level is the pod security level guests are held to under the policy; without one, or when it names
// none, baseline: no host namespaces, no host paths, no privilege.
func Level(policy *v1alpha1.SharingPolicy) v1alpha1.PodSecurityLevel {
	if policy == nil || policy.Spec.PodSecurity == "" {
		return v1alpha1.PodSecurityBaseline
	}
	return policy.Spec.PodSecurity
}

// Bounds of how long a contract runs before it is signed again. A third of it is the time to renew it in; of the
// shortest, half of that third is taken by clocks that may be ten minutes apart, and ten minutes are left for trying.
const (
	MinValidity = time.Hour
	MaxValidity = 10 * 365 * 24 * time.Hour
)

// DefaultValidity is that of a policy that says nothing.
const DefaultValidity = 30 * 24 * time.Hour

// Validity is how long contracts under the policy run. One that was written down before there were bounds counts as the
// nearest that can work.
func Validity(policy *v1alpha1.SharingPolicy) time.Duration {
	if policy == nil || policy.Spec.ContractValidity == nil {
		return DefaultValidity
	}
	return min(max(policy.Spec.ContractValidity.Duration, MinValidity), MaxValidity)
}

// Keeps is how long the data of volumes is kept here after the end of a contract under the policy. A contract that was signed says it for itself.
func Keeps(policy *v1alpha1.SharingPolicy) time.Duration {
	if policy == nil || policy.Spec.KeepVolumes == nil {
		return contract.DefaultKeep
	}
	return min(max(policy.Spec.KeepVolumes.Duration, contract.MinKeep), contract.MaxKeep)
}

// Notice is how long before it a lowering of contracts under the policy is told; 0 where nothing is lowered. A contract that was signed says it for itself.
func Notice(policy *v1alpha1.SharingPolicy) time.Duration {
	if policy == nil || policy.Spec.Notice == nil {
		return 0
	}
	return min(max(policy.Spec.Notice.Duration, contract.MinNotice), contract.MaxNotice)
}

// Wake is how often a day a peer may wake this machine by a contract that is signed now; 0: never.
func Wake(policy *v1alpha1.SharingPolicy) int32 {
	if policy == nil || policy.Spec.Wake == nil {
		return 0
	}
	return min(max(*policy.Spec.Wake, 0), contract.MaxWake)
}

// Internet says whether guests under the policy may use this laptop's way to the internet; without a word on it,
// they may: pulling data is what most pods begin with.
func Internet(policy *v1alpha1.SharingPolicy) bool {
	return policy == nil || policy.Spec.Network == nil || policy.Spec.Network.Internet != v1alpha1.AccessDeny
}

// Direct says whether guests under the policy may meet those of their home at other providers without going by home. Without a word on it they may
// not: those providers then learn where this laptop is.
func Direct(policy *v1alpha1.SharingPolicy) bool {
	return policy != nil && policy.Spec.Network != nil && policy.Spec.Network.Direct == v1alpha1.AccessAllow
}

// Bandwidth is what guests under the policy get and send, all together, in bits a second; 0 is no bound. What is no rate is none: neither the API
// server nor Validate lets it in.
func Bandwidth(policy *v1alpha1.SharingPolicy) (ingress, egress uint64) {
	if policy == nil || policy.Spec.Network == nil || policy.Spec.Network.Bandwidth == nil {
		return 0, 0
	}
	b := policy.Spec.Network.Bandwidth
	ingress, _ = api.ParseBitRate(string(b.Ingress))
	egress, _ = api.ParseBitRate(string(b.Egress))
	return ingress, egress
}

// BandwidthLabels tell a peer of those bounds; they bind nobody.
func BandwidthLabels(policy *v1alpha1.SharingPolicy) map[string]string {
	labels := map[string]string{}
	ingress, egress := Bandwidth(policy)
	for name, bits := range map[string]uint64{v1alpha1.LabelIngress: ingress, v1alpha1.LabelEgress: egress} {
		if bits > 0 {
			labels[name] = strconv.FormatUint(bits, 10)
		}
	}
	return labels
}

// Default is the policy a new cluster starts with: percent of everything, for every peer, guests held to
// baseline, the owner asked each time. A percent outside 0 to 100 is taken as the nearest of the two.
func Default(percent int) *v1alpha1.SharingPolicy {
	share := v1alpha1.Amount(fmt.Sprintf("%d%%", min(max(percent, 0), 100)))
	return &v1alpha1.SharingPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SharingPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   DefaultName,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: v1alpha1.SharingPolicySpec{
			Amounts: map[string]v1alpha1.Amount{
				"cpu": share, "memory": share, "ephemeral-storage": share, "pods": share,
			},
			PodSecurity: v1alpha1.PodSecurityBaseline,
		},
	}
}
