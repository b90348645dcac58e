package record

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

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
	now := ctr.DeepCopy()
	now.Status.State, now.Status.Why = state, why
	return client.IgnoreNotFound(c.Status().Patch(ctx, now, client.MergeFrom(ctr)))
}

// PutContract makes a contract, or puts its next revision in the place of the old one.
func PutContract(ctx context.Context, c client.Client, old, ctr *v1alpha1.Contract) error {
	if old == nil {
		return c.Create(ctx, ctr)
	}
	now := old.DeepCopy()
	ctr.Name, now.Spec = old.Name, ctr.Spec
	return c.Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
}

// ended are the reasons in words. The peer's name stands before that of what it did.
var ended = map[v1alpha1.EndReason]string{
	v1alpha1.EndedByPeer: " ended the contract", v1alpha1.EndedHere: "ended here", v1alpha1.EndRanOut: "the contract ran out",
	v1alpha1.EndPeerForgotten: "the peer was forgotten", v1alpha1.EndUntethered: "this laptop was untethered",
	v1alpha1.EndUninstalled: "Kith is being removed here",
}

// Ended says in words why a contract with a peer ends.
func Ended(reason v1alpha1.EndReason, peer string) string {
	if reason == v1alpha1.EndedByPeer {
		return peer + ended[reason]
	}
	return ended[reason]
}

// Keeps is how long the data of volumes is kept after the end of a contract. One that cannot be read says nothing of it.
func Keeps(ctr *v1alpha1.Contract) time.Duration {
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return contract.DefaultKeep
	}
	return doc.Keeps()
}

// Notice is the term of a contract by which it may be lowered, in seconds; 0, that is never, of none, and of one that cannot be read.
func Notice(ctr *v1alpha1.Contract) int64 {
	if ctr == nil {
		return 0
	}
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return 0
	}
	return doc.Notice
}

// Wake is how often a day the consumer of a contract may wake the provider's machine; 0, that is never, of none, and of one that cannot be read.
func Wake(ctr *v1alpha1.Contract) int64 {
	if ctr == nil {
		return 0
	}
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return 0
	}
	return doc.Wake
}

// EndReason is why a contract that is ending ends. One that began to before there were reasons has the words alone.
func EndReason(ctr *v1alpha1.Contract) v1alpha1.EndReason {
	if ctr.Status.EndReason != "" {
		return ctr.Status.EndReason
	}
	for reason := range ended {
		if ctr.Status.Why == Ended(reason, ctr.Spec.Peer) { //outcome:older
			return reason
		}
	}
	return v1alpha1.EndedHere
}

// EndContract has a contract end; its reconciler does the rest.
func EndContract(ctx context.Context, c client.Client, ctr *v1alpha1.Contract, reason v1alpha1.EndReason) error {
	if ctr.Status.State != v1alpha1.StateEnding || ctr.Status.EndReason != reason {
		now := ctr.DeepCopy()
		now.Status.State, now.Status.EndReason, now.Status.Why = v1alpha1.StateEnding, reason, Ended(reason, ctr.Spec.Peer)
		if err := client.IgnoreNotFound(c.Status().Patch(ctx, now, client.MergeFrom(ctr))); err != nil {
			return err
		}
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

// Quantities reads amounts that came from a peer.
func Quantities(amounts map[string]string) (corev1.ResourceList, error) {
	// First the bounds: "1e999999999999" would keep the quantity parser busy for ever.
	if err := contract.CheckResources(amounts); err != nil {
		return nil, err
	}
	list := make(corev1.ResourceList, len(amounts))
	for name, text := range amounts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

// Amounts turns a list of resources into the strings that cross between clusters.
func Amounts(list corev1.ResourceList) map[string]string {
	m := make(map[string]string, len(list))
	for name, quantity := range list {
		m[string(name)] = quantity.String()
	}
	return m
}

// Exceeds names a resource of which want has more than have; empty when there is none.
func Exceeds(want, have corev1.ResourceList) string {
	for name, q := range want {
		if limit, ok := have[name]; !ok && q.Sign() > 0 || ok && q.Cmp(limit) > 0 {
			return string(name)
		}
	}
	return ""
}

// Validity of a contract when neither side says otherwise, and the longest that this cluster signs as a consumer.
const Validity = sharing.DefaultValidity

// ClockSkew between two laptops that is put up with.
const ClockSkew = 10 * time.Minute

// RunsFor is how long a contract runs from the moment it was signed. Its beginning is earlier, for clocks that are behind.
func RunsFor(doc contract.Document) time.Duration {
	return min(max(doc.NotAfter.Sub(doc.Created), sharing.MinValidity), Validity)
}

// Young contracts of a provider may not be in the consumer's books yet: it writes them down last.
const Young = 30 * time.Second

// RenewalPause: of the time that a contract runs, this part is between two revisions at the provider, at least.
const RenewalPause = 12

// Afterwards is how long an answered or expired request stays, so that the peer can still fetch the answer.
const Afterwards = time.Minute

// NewDocument is the contract about an offer that this cluster, the consumer, signs.
func NewDocument(me *identity.Identity, myName string, provider contract.Party, terms contract.Terms, validFor time.Duration) contract.Document {
	if validFor <= 0 || validFor > Validity {
		validFor = Validity
	}
	now := time.Now().UTC().Truncate(time.Second)
	return contract.Document{
		Version: terms.DocumentVersion(), ID: contract.NewID(), Revision: 1,
		Consumer: contract.Party{ID: me.ID(), Name: myName, Key: me.Public()},
		Provider: provider,
		Terms:    terms,
		// The provider's clock may be a few minutes behind.
		NotBefore: now.Add(-ClockSkew), NotAfter: now.Add(validFor), Created: now,
	}
}

// Renewed is the next revision of a document: the same amounts, from now, for so long.
func Renewed(old contract.Document, now time.Time, runs time.Duration) contract.Document {
	doc := old
	now = now.UTC().Truncate(time.Second)
	doc.Revision++
	doc.Created, doc.NotBefore, doc.NotAfter = now, now.Add(-ClockSkew), now.Add(runs)
	return doc
}
