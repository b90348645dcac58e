package relations

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/sharing"
	"kith.dev/core/supply"
)

// validity of a contract when neither side says otherwise, and the longest that this cluster signs as a consumer.
const validity = sharing.DefaultValidity

// contractsWith lists the contracts with a peer in one role, those that are ending too.
func contractsWith(ctx context.Context, c client.Reader, peer string, role v1alpha1.Role) ([]v1alpha1.Contract, error) {
	var list v1alpha1.ContractList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list the contracts with %s: %w", peer, err)
	}
	var with []v1alpha1.Contract
	for _, item := range list.Items {
		if item.Spec.Peer == peer && item.Spec.Role == role {
			with = append(with, item)
		}
	}
	return with, nil
}

// live is the contract of the list that is not being ended; nil when there is none.
func live(list []v1alpha1.Contract) *v1alpha1.Contract {
	for i := range list {
		if list[i].DeletionTimestamp == nil && list[i].Status.State != v1alpha1.StateEnding {
			return &list[i]
		}
	}
	return nil
}

// contractObject keeps signed bytes as an object. Its name tells kubectl users the direction: from-bob, to-alice.
func contractObject(role v1alpha1.Role, peer *v1alpha1.Peer, signed contract.Signed, doc contract.Document) (*v1alpha1.Contract, error) {
	resources, err := quantities(doc.Resources)
	if err != nil {
		return nil, err
	}
	prefix := "from-"
	if role == v1alpha1.RoleProvider {
		prefix = "to-"
	}
	return &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{
			Name:       prefix + peer.Name + "-" + doc.ID[:4],
			Finalizers: []string{v1alpha1.FinalizerContract},
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
				v1alpha1.LabelContract:  doc.ID,
			},
		},
		Spec: v1alpha1.ContractSpec{
			ID: doc.ID, Revision: doc.Revision, Role: role, Peer: peer.Name,
			Document: signed.Document, ConsumerSignature: signed.ConsumerSignature, ProviderSignature: signed.ProviderSignature,
			Resources: resources, NotAfter: &metav1.Time{Time: doc.NotAfter},
		},
	}, nil
}

// newDocument is the contract about an offer that this cluster, the consumer, signs.
func newDocument(me *identity.Identity, myName string, provider contract.Party, terms contract.Terms, validFor time.Duration) contract.Document {
	if validFor <= 0 || validFor > validity {
		validFor = validity
	}
	now := time.Now().UTC().Truncate(time.Second)
	return contract.Document{
		Version: contract.Version, ID: contract.NewID(), Revision: 1,
		Consumer: contract.Party{ID: me.ID(), Name: myName, Key: me.Public()},
		Provider: provider,
		Terms:    terms,
		// The provider's clock may be a few minutes behind.
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(validFor), Created: now,
	}
}

// clockSkew between two laptops that is put up with.
const clockSkew = 10 * time.Minute

// setContract writes the state of a contract.
func setContract(ctx context.Context, c client.Client, ctr *v1alpha1.Contract, state v1alpha1.RelationState, why string) error {
	if ctr.Status.State == state && ctr.Status.Why == why {
		return nil
	}
	before := ctr.DeepCopy()
	ctr.Status.State, ctr.Status.Why = state, why
	return client.IgnoreNotFound(c.Status().Patch(ctx, ctr, client.MergeFrom(before)))
}

// Supply is what there is to promise here, but for what is granted of it.
func Supply(ctx context.Context, c client.Reader) (there supply.Supply, err error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	// For each question: what is not meant is not copied.
	if err := c.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return there, fmt.Errorf("see what the nodes here can allocate: %w", err)
	}
	if err := c.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return there, fmt.Errorf("see what the pods here request: %w", err)
	}
	there.Nodes = supply.Nodes(nodes.Items)
	there.Own = supply.Own(pods.Items, there.Nodes)
	return there, nil
}
