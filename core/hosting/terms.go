package hosting

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/sharing"
)

// Consumer is a peer as hosting needs it.
type Consumer struct {
	ID      string // identity.ID.String
	Compact string // identity.ID.Compact
	Name    string // name of the Peer object here
}

// ConsumerOf reads a Peer. The error says that its ID is malformed.
func ConsumerOf(peer *v1alpha1.Peer) (Consumer, error) {
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return Consumer{}, fmt.Errorf("peer %s: %w", peer.Name, err)
	}
	return Consumer{ID: id.String(), Compact: id.Compact(), Name: peer.Name}, nil
}

// terms is what hosting holds a consumer to under one contract.
type terms struct {
	contract string // spec.id
	object   string // name of the Contract object
	consumer Consumer
	level    v1alpha1.PodSecurityLevel
	limit    corev1.ResourceList
	images   imageRules
	userns   bool      // guests can have user namespaces of their own here
	aliases  string    // the consumer's ranges as seen here, comma-separated
	notAfter time.Time // zero: no end
	why      string    // why it is not in force; empty when it is

	keepsNames bool     // its namespaces may be called here as at home
	reserved   []string // but not like these
}

// whyNot says why no pod may run under the contract at this moment; empty when they may: this cluster provides, both
// signed, it has not run out, and nobody is ending it. A consumer that cannot be reached changes nothing.
func whyNot(contract *v1alpha1.Contract, now time.Time) string {
	spec := &contract.Spec
	switch state := contract.Status.State; {
	case spec.Role != v1alpha1.RoleProvider:
		return "this cluster is not the provider"
	case len(spec.ConsumerSignature) == 0 || len(spec.ProviderSignature) == 0:
		return "it is not signed by both"
	case !contract.DeletionTimestamp.IsZero(), state == v1alpha1.StateEnding:
		return "it is ending"
	case spec.NotAfter != nil && !now.Before(spec.NotAfter.Time):
		return "it ran out at " + spec.NotAfter.UTC().Format(time.RFC3339)
	case state != "" && state != v1alpha1.StateContracted && state != v1alpha1.StateConnected && state != v1alpha1.StateUnreachable:
		return "its state is " + string(state)
	}
	return ""
}

func termsOf(contract *v1alpha1.Contract, peer *v1alpha1.Peer, policies []v1alpha1.SharingPolicy, now time.Time) (*terms, error) {
	consumer, err := ConsumerOf(peer)
	if err != nil {
		return nil, err
	}
	if signedBy, ok := consumerIn(contract.Spec.Document); ok && signedBy != consumer.ID {
		return nil, fmt.Errorf("it was signed by %s, and the peer %s has another key now: %s", signedBy, peer.Name, consumer.ID)
	}
	policy := sharing.Select(policies, peer)
	t := &terms{
		contract: contract.Spec.ID, object: contract.Name, consumer: consumer,
		level:   sharing.Level(policy),
		images:  imageRulesOf(policy),
		limit:   contract.Spec.Resources,
		aliases: aliasesOf(peer),
		why:     whyNot(contract, now),

		keepsNames: sharing.SameName(policy), reserved: sharing.Reserved(policies),
	}
	if contract.Spec.NotAfter != nil {
		t.notAfter = contract.Spec.NotAfter.Time
	}
	return t, nil
}

// inForce asks again about the end, which comes without anybody writing anything.
func (t *terms) inForce(now time.Time) bool {
	return t != nil && t.why == "" && (t.notAfter.IsZero() || now.Before(t.notAfter))
}

func (t *terms) equal(u *terms) bool {
	return t != nil && u != nil && t.object == u.object && t.consumer == u.consumer && t.level == u.level &&
		t.aliases == u.aliases && t.why == u.why && t.notAfter.Equal(u.notAfter) && equality.Semantic.DeepEqual(t.limit, u.limit) &&
		t.keepsNames == u.keepsNames && slices.Equal(t.reserved, u.reserved) &&
		t.images.equal(u.images) && t.userns == u.userns
}

// aliasesOf lists the ranges of a consumer as they are seen here.
func aliasesOf(peer *v1alpha1.Peer) string {
	if peer.Status.Network == nil {
		return ""
	}
	var ranges []string
	for _, r := range peer.Status.Network.Theirs {
		ranges = append(ranges, r.Alias)
	}
	slices.Sort(ranges)
	return strings.Join(ranges, ",")
}
