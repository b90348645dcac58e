package backend

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// Offered says what a peer would be offered here now, and why no more. Whoever has not been met is meant by a whole ID.
func (b *Backend) Offered(ctx context.Context, ref string) (api.Offered, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Offered{}, err
	}
	name := ref
	id, stranger := identity.ParseID(ref)
	k, err := b.Directory.Find(ref)
	switch {
	case err == nil:
		id, name = k.ID, k.Name
	case stranger != nil:
		return api.Offered{}, err
	}
	e, err := c.Provider.Explain(ctx, id)
	if err != nil {
		return api.Offered{}, internal(err)
	}
	return offeredView(name, id, e), nil
}

func offeredView(name string, id identity.ID, e provider.Explained) api.Offered {
	in := e.Now.In
	v := api.Offered{Peer: name, ID: id.String(), Has: sharing.Words(in.Has)}
	for _, look := range e.Looks {
		p := api.PolicyLook{Name: look.Policy.Name, Priority: look.Policy.Spec.Priority, Selected: look.By, Not: look.Not, Applies: e.Applies(look.Policy)}
		if no := e.No[p.Name]; no != nil {
			p.Reason, p.Why = no.Why, no.Reason
		}
		v.Policies = append(v.Policies, p)
	}
	if in.Policy != nil {
		v.Policy, v.Peers = in.Policy.Name, in.Peers
		if most := in.Policy.Spec.MaxPeers; most != nil {
			v.MaxPeers = *most
		}
		if open := sharing.Hours(in.Policy, in.Now); open.Now {
			v.Closes = open.Changes
		} else {
			v.Opens = open.Changes
		}
	}
	if no := e.Now.No; no != nil {
		v.Reason, v.Resource, v.Why = no.Why, string(no.Of), no.Reason
	}
	if e.Now.No == nil {
		v.Prices = sharing.Prices(in.Policy, record.Amounts(e.Now.Offer))
	}
	for _, ctr := range slices.Concat(e.From, e.Left) {
		from := api.OfferedFrom{Peer: ctr.Spec.Peer, LeftOut: slices.Contains(e.Left, ctr)}
		if doc, err := contract.Parse(ctr.Spec.Document); err == nil {
			from.Prices = doc.Prices
		}
		v.From, v.Margin = append(v.From, from), in.Policy.Spec.Margin
	}
	parts := map[string]sharing.Part{}
	order := api.Resources{}
	for _, part := range e.Now.Parts {
		parts[string(part.Name)], order[string(part.Name)] = part, ""
	}
	for _, name := range order.Names() {
		v.Resources = append(v.Resources, resourceView(parts[name], in))
	}
	return v
}

func resourceView(part sharing.Part, in sharing.OfferInput) api.OfferedResource {
	name := string(part.Name)
	word := func(q resource.Quantity) string {
		if q.Sign() <= 0 {
			return "0"
		}
		return sharing.Words(corev1.ResourceList{part.Name: sharing.Readable(part.Name, q)})[name]
	}
	all, known := in.Supply.Nodes[part.Name]
	r := api.OfferedResource{
		Name: name, Offered: word(part.Offered), Bound: part.Bound, Policy: string(in.Policy.Spec.Amounts[name]), Amount: word(part.Amount),
		Others: word(in.Promised(part.Name)), OwnPods: word(in.Supply.Own[part.Name]), Granted: word(in.Supply.Promised(part.Name)),
	}
	if known {
		r.Allocatable = word(all)
	}
	if most, ok := sharing.PerPeer(in.Policy, in.Supply)[part.Name]; ok {
		r.PerPeer = word(most)
	}
	if kept, ok := sharing.Reserve(in.Policy, in.Supply)[part.Name]; ok {
		r.Reserve = word(kept)
	}
	if room := in.Supply.RoomFor(part.Name); room != nil {
		r.Disk = word(*room)
	}
	if has, ok := in.Has[part.Name]; ok {
		r.Has = word(has)
	}
	return r
}
