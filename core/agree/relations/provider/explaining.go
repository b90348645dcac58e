package provider

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Would is what a peer would be offered now, and what that follows from.
type Would struct {
	In    sharing.OfferInput // with the policy that applies
	Offer corev1.ResourceList
	Parts []sharing.Part
	No    *sharing.Refusal // nil when something is offered
}

// would is what the peer would be offered if it asked for everything. It is what an offer is made of; see terms.
func (p *Provider) would(ctx context.Context, id identity.ID) (w Would, err error) {
	now := p.Client.Now()
	if w.In, _, err = p.offerable(ctx, now, asPeer(now, id, ""), ""); err != nil {
		return w, err
	}
	w.In.Asked = corev1.ResourceList{corev1.ResourceStorage: anyStorage} // which only those get who ask for it
	if w.In.Policy != nil {
		for name := range w.In.Policy.Spec.Amounts {
			if _, storage := api.StorageClass(name); storage {
				w.In.Asked[corev1.ResourceName(name)] = anyStorage
			}
		}
	}
	w.Offer, w.Parts, w.No = sharing.Weigh(w.In)
	if err := p.mayAsk(peering.Caller{ID: id}, peering.TetherNone); err != nil {
		w.No = &sharing.Refusal{Why: api.NoOfferTethered, Reason: err.Error()}
	}
	if p.NoGuests != "" {
		w.No = &sharing.Refusal{Why: api.NoOfferGuests, Reason: "it can take no guests in: " + p.NoGuests}
	}
	return w, nil
}

// Explained is how each policy looks at a peer, in the order in which they count, and what each that selects it would offer if it applied.
type Explained struct {
	Looks []sharing.Look
	No    map[string]*sharing.Refusal // by policy that selects the peer and would offer nothing
	Now   Would

	From, Left []*v1alpha1.Contract // of providers whose grants are offered on to the peer, and that are left out for their prices
}

// Explain says what a peer would be offered now, and why no more.
func (p *Provider) Explain(ctx context.Context, id identity.ID) (e Explained, err error) {
	if e.Now, err = p.would(ctx, id); err != nil {
		return e, err
	}
	now := p.Client.Now()
	peer := asPeer(now, id, "")
	e.From = sharing.Reoffered(e.Now.In.Policy, peer, now.Peers, now.Contracts, e.Now.In.Now)
	e.Left = sharing.NotPayable(e.Now.In.Policy, peer, now.Peers, now.Contracts, e.Now.In.Now)
	e.Looks, e.No = sharing.Looks(now.Policies, peer), map[string]*sharing.Refusal{}
	for _, look := range e.Looks {
		if look.By == "" {
			continue
		}
		in := e.Now.In
		in.Policy, in.Laptop = look.Policy, p.Laptop()
		in.Supply.Granted, in.InForce, in.Peers = p.promised(ctx, now, in.Policy, peer)
		if _, _, no := sharing.Weigh(in); no != nil {
			e.No[look.Policy.Name] = no
		}
	}
	return e, nil
}

// Applies reports whether the policy is the one by which an offer to the peer is made.
func (e Explained) Applies(policy *v1alpha1.SharingPolicy) bool {
	return e.Now.In.Policy != nil && e.Now.In.Policy.Name == policy.Name
}
