package sharing

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Chooser gives for many peers the policies that Select gives. What the policies say is read once, and not for each of them.
type Chooser struct{ all []choice }

// choice is a policy, and whom it selects.
type choice struct {
	policy    *v1alpha1.SharingPolicy
	everybody bool
	ids       map[identity.ID]bool
	names     map[string]bool
	labels    labels.Selector // nil: nobody by these
}

// NewChooser reads policies, which must not be changed afterwards.
func NewChooser(policies []v1alpha1.SharingPolicy) *Chooser {
	c := new(Chooser)
	for i := range policies {
		p := &policies[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		one := choice{policy: p, everybody: len(p.Spec.Peers) == 0 && p.Spec.PeerSelector == nil, ids: map[identity.ID]bool{}, names: map[string]bool{}}
		for _, entry := range p.Spec.Peers {
			if id, err := identity.ParseID(entry); err == nil {
				one.ids[id] = true
			} else {
				one.names[entry] = true
			}
		}
		if p.Spec.PeerSelector != nil {
			if s, err := metav1.LabelSelectorAsSelector(p.Spec.PeerSelector); err == nil {
				one.labels = s
			}
		}
		c.all = append(c.all, one)
	}
	slices.SortFunc(c.all, func(a, b choice) int { return order(a.policy, b.policy) })
	return c
}

// Of gives the policy that counts for the peer; nil for none.
func (c *Chooser) Of(peer *v1alpha1.Peer) *v1alpha1.SharingPolicy {
	id, err := identity.ParseID(peer.Spec.ID)
	for _, one := range c.all {
		switch {
		case one.everybody, err == nil && one.ids[id], one.names[peer.Name] && Accepted(peer):
			return one.policy
		case one.labels != nil && kept(peer) && one.labels.Matches(labels.Set(peer.Labels)):
			return one.policy
		}
	}
	return nil
}
