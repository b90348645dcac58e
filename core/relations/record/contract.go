package record

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
)

// Contracts lists the contracts with a peer in one role, those that are ending too.
func Contracts(ctx context.Context, c client.Reader, peer string, role v1alpha1.Role) ([]v1alpha1.Contract, error) {
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

// Live is the contract of the list that is not being ended; nil when there is none.
func Live(list []v1alpha1.Contract) *v1alpha1.Contract {
	for i := range list {
		if list[i].DeletionTimestamp == nil && list[i].Status.State != v1alpha1.StateEnding {
			return &list[i]
		}
	}
	return nil
}

// NewContract keeps signed bytes as an object. Its name tells kubectl users the direction: from-bob, to-alice.
func NewContract(role v1alpha1.Role, peer *v1alpha1.Peer, signed contract.Signed, doc contract.Document) (*v1alpha1.Contract, error) {
	resources, err := Quantities(doc.Resources)
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

// SetContract writes the state of a contract.
func SetContract(ctx context.Context, c client.Client, ctr *v1alpha1.Contract, state v1alpha1.RelationState, why string) error {
	if ctr.Status.State == state && ctr.Status.Why == why {
		return nil
	}
	before := ctr.DeepCopy()
	ctr.Status.State, ctr.Status.Why = state, why
	return client.IgnoreNotFound(c.Status().Patch(ctx, ctr, client.MergeFrom(before)))
}

// PutContract makes a contract, or puts its next revision in the place of the old one.
func PutContract(ctx context.Context, c client.Client, old, ctr *v1alpha1.Contract) error {
	if old == nil {
		return c.Create(ctx, ctr)
	}
	before := old.DeepCopy()
	ctr.Name, old.Spec = old.Name, ctr.Spec
	return c.Patch(ctx, old, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// EndedBy is why a contract ends that the peer has ended.
func EndedBy(peer string) string { return peer + " ended the contract" }

// EndContract has a contract end; its reconciler does the rest.
func EndContract(ctx context.Context, c client.Client, ctr *v1alpha1.Contract, why string) error {
	if err := SetContract(ctx, c, ctr, v1alpha1.StateEnding, why); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.Delete(ctx, ctr))
}

// OfAnotherKey reports whether a contract is with somebody who had the name of the Peer before it: he was forgotten, and another
// of his name came before what was with him was cleared away.
func OfAnotherKey(ctr *v1alpha1.Contract, peer *v1alpha1.Peer) bool {
	was := ForgottenPeer(ctr).Spec.ID
	return was != "" && was != peer.Spec.ID
}

// ForgottenPeer is what the contract still knows of a Peer that was deleted.
func ForgottenPeer(ctr *v1alpha1.Contract) v1alpha1.Peer {
	peer := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: ctr.Spec.Peer}}
	if doc, err := contract.Parse(ctr.Spec.Document); err == nil {
		peer.Spec.ID = doc.Provider.ID.String()
		if ctr.Spec.Role == v1alpha1.RoleProvider {
			peer.Spec.ID = doc.Consumer.ID.String()
		}
	}
	return peer
}

func Granted(resources corev1.ResourceList) string {
	var parts []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := resources[name]; ok {
			parts = append(parts, q.String()+" "+string(name))
		}
	}
	return strings.Join(parts, ", ")
}
