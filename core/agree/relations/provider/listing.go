package provider

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/listing"
)

// listed is for how long a listing is good. Somebody who looks at it may act on it meanwhile.
const listed = 15 * time.Minute

// errNotListed is the answer to whoever is named as a catalogue by no policy, and where there is nothing to list: it is not told which.
var errNotListed = peering.Refuse(peering.CodeNotFound, "nothing of this cluster is listed at the caller's", "")

// Listing is what the caller, as a catalogue, may show to its peers: what a policy that names it as one would offer now to somebody new. The error is
// a *peering.Problem with CodeNotFound when nothing is to be listed there.
func (p *Provider) Listing(ctx context.Context, caller identity.ID) (listing.Signed, error) {
	now := p.Client.Now()
	policy := sharing.ListedAt(now.Policies, asPeer(now, caller, ""))
	if policy == nil || p.NoGuests != "" || p.mayAsk(peering.Caller{ID: caller}, peering.TetherNone) != nil {
		return listing.Signed{}, errNotListed
	}
	in, err := p.under(ctx, now, policy)
	if err != nil {
		return listing.Signed{}, err
	}
	offer, _, no := sharing.Weigh(in)
	if no != nil {
		return listing.Signed{}, errNotListed
	}
	amounts, made := record.Amounts(offer), time.Now()
	return listing.Sign(listing.Document{
		Version:   listing.Version,
		Provider:  contract.Party{ID: p.Identity.ID(), Name: p.Name, Key: p.Identity.Public()},
		Resources: amounts, Prices: sharing.Prices(in.Policy, amounts),
		Created: made, NotAfter: made.Add(listed),
	}, p.Identity)
}

// under is what an offer under a policy to somebody new is made of.
func (p *Provider) under(ctx context.Context, now *ledger.Snapshot, policy *v1alpha1.SharingPolicy) (in sharing.OfferInput, err error) {
	somebody := new(v1alpha1.Peer)
	in.Policy, in.Now = policy, time.Now()
	in.SignedBy = in.Now.Add(holds)
	in.Asked = corev1.ResourceList{corev1.ResourceStorage: anyStorage}
	if policy.Spec.Only != nil {
		in.Laptop = p.Laptop()
	}
	if in.Supply, err = p.Supply(ctx); err != nil {
		return in, err
	}
	if err := p.addReoffered(ctx, now, &in, somebody); err != nil {
		return in, err
	}
	in.Supply.Granted, in.InForce, in.Peers = p.promised(ctx, now, policy, somebody)
	return in, nil
}
