package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// Of two notices of the same amounts, seconds apart is how a call may be late, and minutes how clocks are set and laptops sleep.
const (
	sameMoment = 2 * time.Second
	sameNotice = 5 * time.Minute
)

// It is tried to sign a lowering so often, and ever less the longer it cannot be.
const (
	lowerEvery = 10 * time.Second
	lowerMost  = 5 * time.Minute
)

// Told notes what a provider says of the lowering of a contract with it. What the contract does not let it lower, and what would be more than was signed,
// is passed over.
func (r *Consumer) Told(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, ref peering.ContractRef) error {
	if ctr.Spec.Role != v1alpha1.RoleConsumer || ref.Role != contract.Provider {
		return nil
	}
	was := ctr.Status.Lowering
	if ref.Lowering == nil && (was == nil || ref.Revision > ctr.Spec.Revision) { // it signed what was told, and its answer was lost: that is fetched again
		return nil
	}
	now := time.Now()
	is := lowering(ctr, ref.Lowering, now)
	same := is != nil && was != nil && sharing.Same(is.Resources, was.Resources)
	if same && (is.From.Sub(was.From.Time).Abs() <= sameMoment || !now.Before(was.From.Time) && is.From.Sub(now) <= sameNotice) { // what has begun does not begin again
		is = was
	}
	same = same && is.From.Sub(was.From.Time).Abs() <= sameNotice
	changed, err := record.SetLowering(ctx, r.Client, ctr, is, now)
	if err != nil || !changed || same {
		return err
	}
	ctr = ctr.DeepCopy()
	ctr.Status.Lowering = is
	e := api.Event{Type: api.EventLowering, Severity: api.SeverityWarning, Peer: peer.Name, Object: "contract/" + ctr.Name, Direction: api.Outgoing}
	switch {
	case is != nil:
		e.Message = fmt.Sprintf("%s lowers what it grants: %s", peer.Name, record.Lowered(ctr))
	case sharing.Same(ctr.Spec.Resources, was.Resources): // it was signed
		return nil
	default:
		e.Severity, e.Reason, e.Message = api.SeverityInfo, api.ReasonTakenBack, fmt.Sprintf("%s does not lower what it grants after all: %s", peer.Name, record.Granted(ctr.Spec.Resources))
	}
	r.Log.Info("notice of a lowering", "peer", peer.Name, "contract", ctr.Spec.ID, "lowered", is != nil)
	r.Announce(e)
	return nil
}

// lowering is what is meant by what a provider says; nil for nothing.
func lowering(ctr *v1alpha1.Contract, told *peering.Lowering, now time.Time) *v1alpha1.Lowering {
	if told == nil || record.Notice(ctr) == 0 {
		return nil
	}
	amounts, err := record.Quantities(told.Resources)
	if err != nil {
		return nil
	}
	left := corev1.ResourceList{}
	for name, has := range ctr.Spec.Resources {
		if is := amounts[name]; is.Cmp(has) < 0 {
			has = is
		}
		if has.Sign() > 0 {
			left[name] = has
		}
	}
	if sharing.Same(left, ctr.Spec.Resources) {
		return nil
	}
	return &v1alpha1.Lowering{Resources: left, From: metav1.NewTime(now.Add(time.Duration(told.In) * time.Second).Truncate(time.Second))}
}

// lower signs the revision by which a provider lowers a contract: the time has come that was told. again is when to look next. That it cannot be signed
// changes nothing about what is granted, and it is tried again; meanwhile the contract is renewed when that is due.
func (r *Consumer) lower(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, l *v1alpha1.Lowering) (again time.Duration, err error) {
	now := time.Now()
	if _, err := record.SetLowering(ctx, r.Client, ctr, l, now); err != nil { // its condition: signed or not, it is so
		return 0, err
	}
	every := min(max(now.Sub(l.From.Time)/8, lowerEvery), lowerMost)
	wait := r.mayLower(peer.Name, now, every)
	if wait == 0 {
		if err = r.signLowered(ctx, peer, ctr); err != nil {
			r.Log.Debug("the lowering is signed later", "peer", peer.Name, "contract", ctr.Spec.ID, "err", err)
			wait = every
		}
	}
	if wait > 0 {
		again, err = r.renew(ctx, peer, ctr)
		if again > 0 {
			wait = min(wait, again)
		}
		return wait, err
	}
	if ctr = InForce(r.Client.Now(), peer); ctr == nil || ctr.Status.Lowering == nil {
		return 0, nil
	}
	ref, err := r.says(ctx, peer, ctr) // there may be more to it
	if err != nil {
		return lowerEvery, nil
	}
	return lowerEvery, r.Told(ctx, peer, ctr, ref)
}

// signLowered signs what the provider says at this moment: word that it changed its mind may be lost.
func (r *Consumer) signLowered(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	l := ctr.Status.Lowering
	ref, err := r.says(ctx, peer, ctr)
	if err != nil {
		return err
	}
	if is := lowering(ctr, ref.Lowering, time.Now()); ref.Revision <= ctr.Spec.Revision && (is == nil || !sharing.Same(is.Resources, l.Resources)) {
		return r.Told(ctx, peer, ctr, ref)
	}
	old, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return err
	}
	doc := record.LoweredDocument(old, record.Amounts(l.Resources))
	if ref.Lowering != nil { // else it was signed, and the very same has its answer again
		doc.Revision = max(doc.Revision, ref.Revision+1)
	}
	signed, err := r.signedOnce(ctx, peer, doc)
	if err != nil { // also where revisions were signed whose answers were lost: then the renewal is of what is granted
		return err
	}
	if err := r.record(ctx, peer, ctr, signed, doc, nil); err != nil {
		return err
	}
	request := peer.Spec.Request
	if request == nil {
		return nil
	}
	less := sharing.Less(request.Resources, l.Resources)
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { inFull(s, less) })
}

// mayLower bounds how often it is tried to sign lowerings of a peer; it gives how long to wait, and counts a try where that is nothing.
func (r *Consumer) mayLower(peer string, now time.Time, every time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.lowered[peer].Sub(now); wait > 0 {
		return wait
	}
	r.lowered[peer] = now.Add(every)
	return 0
}

// says is what the provider says of a contract now.
func (r *Consumer) says(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (peering.ContractRef, error) {
	refs, err := r.books(ctx, peer)
	if err != nil {
		return peering.ContractRef{}, err
	}
	if i := slices.IndexFunc(refs, func(ref peering.ContractRef) bool { return ref.ID == ctr.Spec.ID && ref.Role == contract.Provider }); i >= 0 {
		return refs[i], nil
	}
	return peering.ContractRef{}, fmt.Errorf("%s does not name the contract %s", peer.Name, ctr.Spec.ID)
}

// booksOf asks a peer for its books.
func (r *Consumer) booksOf(ctx context.Context, peer *v1alpha1.Peer) ([]peering.ContractRef, error) {
	to, err := r.Directory.Client(peer)
	if err != nil {
		return nil, err
	}
	return to.Contracts(ctx)
}

// signedAs has a peer sign a document, of that revision and no other.
func (r *Consumer) signedAs(ctx context.Context, peer *v1alpha1.Peer, doc contract.Document) (contract.Signed, error) {
	to, err := r.Directory.Client(peer)
	if err != nil {
		return contract.Signed{}, err
	}
	return r.signOnce(ctx, to, doc)
}
