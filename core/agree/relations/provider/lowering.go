package provider

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// lower gives notice to a consumer when the owner shares less than the contract in force grants, if its terms let it be lowered, and takes that back when
// it is shared again. Once the time has come no more is granted than was told (Contract.Grants), whether the consumer signed it or not.
func (p *Provider) lower(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	doc, err := contract.Parse(ctr.Spec.Document)
	if err != nil { // one that cannot be read is granted as its object says
		return nil
	}
	if doc.Notice == 0 {
		if ctr.Status.Lowering != nil { // of a revision before this one, that had the term
			_, err = record.SetLowering(ctx, p.Client, ctr, nil, time.Now())
		}
		return err
	}
	was, now := ctr.Status.Lowering, p.Client.Now()
	to, err := p.leaves(ctx, now, peer, ctr)
	if err != nil {
		return err
	}
	at := time.Now()
	is := sharing.Notify(was, to, doc.NoticeTime(), at)
	if is != nil && (was == nil || !is.From.Equal(&was.From)) { // a memory that is behind would give notice in the owner's name
		if now, err = ledger.Read(ctx, p.Fresh); err != nil {
			return err
		}
		if to, err = p.leaves(ctx, now, peer, ctr); err != nil {
			return err
		}
		is = sharing.Notify(was, to, doc.NoticeTime(), at)
	}
	if is != nil && record.Exceeds(ctr.Spec.Resources, is.Resources) == "" { // that, or less, was signed
		is = nil
	}
	changed, err := record.SetLowering(ctx, p.Client, ctr, is, at)
	if err != nil || !changed {
		return err
	}
	p.tellLowering(peer, ctr.Spec.ID)
	e := api.Event{Type: api.EventLowering, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name, Direction: api.Incoming}
	switch {
	case is != nil:
		lowered := ctr.DeepCopy()
		lowered.Status.Lowering = is
		e.Message = fmt.Sprintf("%s is told that what it may use is lowered: %s", peer.Name, record.Lowered(lowered))
	case sharing.Same(ctr.Spec.Resources, was.Resources): // it was signed
		return nil
	default:
		e.Reason, e.Message = api.ReasonTakenBack, fmt.Sprintf("%s is told that it may use what was signed after all", peer.Name)
	}
	p.Log.Info("notice of a lowering", "peer", peer.Name, "contract", ctr.Spec.ID, "lowered", is != nil)
	p.Announce(e)
	return nil
}

// tellLowering has the consumer look at what its contracts are lowered to.
func (p *Provider) tellLowering(peer *v1alpha1.Peer, id string) {
	if key, err := identity.ParseID(peer.Spec.ID); err == nil {
		p.Notices.Send(key, peering.Notice{Type: peering.NoticeContractLowered, Contract: id})
	}
}

// leaves is what the policy that applies to a peer now leaves of its contract; nil when that is all, and an empty list when it is nothing, as for a peer
// that no policy is for: its contract runs out.
func (p *Provider) leaves(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (corev1.ResourceList, error) {
	if p.tetheredTo(peer.Spec.ID) {
		return nil, nil
	}
	choose := sharing.NewChooser(now.Policies)
	in := sharing.OfferInput{Policy: choose.Of(peer), Now: time.Now()}
	if in.Policy == nil {
		return corev1.ResourceList{}, nil
	}
	var err error
	if in.Supply, _, err = p.nodes(ctx); err != nil {
		return nil, err
	}
	if !sharing.NoNetwork(ctr) { // guests go on by a network
		if err := p.addReoffered(ctx, now, &in, peer); err != nil {
			return nil, err
		}
	}
	all, place := under(now, choose, in.Policy, ctr)
	return sharing.Lower(in.Policy, in.Supply, ctr.Spec.Resources, all, place, ctr.Status.Used), nil
}

// under are the amounts of the other contracts in force under a policy, the oldest first, and how many are older than ctr.
func under(now *ledger.Snapshot, choose *sharing.Chooser, policy *v1alpha1.SharingPolicy, ctr *v1alpha1.Contract) (amounts []corev1.ResourceList, place int) {
	age := func(a, b *v1alpha1.Contract) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}
	all := slices.DeleteFunc(slices.Clone(now.Contracts), func(other *v1alpha1.Contract) bool {
		if other.Name == ctr.Name || other.Spec.Role != v1alpha1.RoleProvider || ledger.Live([]*v1alpha1.Contract{other}) == nil {
			return true
		}
		peer := now.PeerNamed(other.Spec.Peer)
		if peer == nil {
			return true
		}
		applies := choose.Of(peer)
		return applies == nil || applies.Name != policy.Name
	})
	slices.SortFunc(all, age)
	for _, other := range all {
		if amounts = append(amounts, other.Spec.Resources); age(other, ctr) < 0 {
			place++
		}
	}
	return amounts, place
}

// told is what a consumer is told of the lowering of its contract; nil for nothing. What holds already comes first.
func told(ctr *v1alpha1.Contract, now time.Time) *peering.Lowering {
	l := ctr.Status.Lowering
	switch {
	case l == nil:
		return nil
	case l.Until != nil && now.Before(l.From.Time) && !sharing.Same(l.Until, ctr.Spec.Resources):
		return &peering.Lowering{Resources: record.Amounts(l.Until)}
	}
	return &peering.Lowering{Resources: record.Amounts(l.Resources), In: int64(max(0, l.From.Sub(now)) / time.Second)}
}

// lowers reports whether a document is the revision by which a contract is lowered, as the consumer was told: the contract in force in all but the amounts.
// It is signed whatever else the policy says by now: prices and other terms wait for the renewal.
func lowers(ctr *v1alpha1.Contract, old, doc contract.Document) bool {
	l := ctr.Status.Lowering
	if l == nil {
		return false
	}
	amounts, err := record.Quantities(doc.Resources)
	if err != nil || record.Exceeds(amounts, ctr.Spec.Resources) != "" || sharing.Same(amounts, ctr.Spec.Resources) { // nothing is lowered by it, however often
		return false
	}
	if !sharing.Same(amounts, l.Resources) && (l.Until == nil || !sharing.Same(amounts, l.Until)) {
		return false
	}
	want := record.LoweredDocument(old, doc.Resources)
	want.Revision = doc.Revision
	a, err := contract.Canonical(want)
	b, err2 := contract.Canonical(doc)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}
