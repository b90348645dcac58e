package relations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/record"
	"kith.dev/core/sharing"
)

// How a contract is renewed, in parts of the time V that it runs. By the consumer's clock it is signed again when a third of
// V is left, tried at growing intervals of at most V/24. The provider refuses to sign again before V/12 is over since the last
// time: it may have signed a revision whose answer was lost. Its clock may be clockSkew ahead, so that it takes the contract for
// over when the consumer thinks that clockSkew is left. V/3 − V/12 − clockSkew therefore is what is left for trying:
// with the shortest V, sharing.MinValidity, five minutes, which is twice V/24.
const (
	renewalBegins = 3  // V/3 before the end
	renewalRetry  = 24 // V/24 between two tries, at most
	renewalSpread = 30 // V/30: not everybody begins in the same moment
	retryFirst    = 30 * time.Second
	retryMax      = time.Hour
)

// renewal is where the consumer stands with the next revision of a contract.
type renewal struct {
	contract string
	revision int64
	tries    int
	next     time.Time
	declined bool               // by the provider; else it could not be asked
	doc      *contract.Document // sent, and no answer came: it may be signed already
}

// firstTry is when the renewal of a contract begins; spread, of 0 to 1, sets it apart from those of others.
func firstTry(doc contract.Document, spread float64) time.Time {
	runs := record.RunsFor(doc)
	return doc.NotAfter.Add(-runs / renewalBegins).Add(-time.Duration(spread * float64(runs/renewalSpread)))
}

// nextTry is how long to wait after so many tries; spread, of 0 to 1, takes up to half of it away.
func nextTry(doc contract.Document, tries int, spread float64) time.Duration {
	most := min(max(record.RunsFor(doc)/renewalRetry, retryFirst), retryMax)
	wait := most
	if tries < 16 { // 30 s doubled so often is beyond any bound
		wait = min(retryFirst<<max(tries-1, 0), most)
	}
	return wait - time.Duration(spread*float64(wait)/2)
}

// dueIn says when the contract is to be renewed; zero or less is now.
func (r *PeerReconciler) dueIn(peer string, doc contract.Document) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.renewals[peer]
	if at == nil || at.contract != doc.ID || at.revision != doc.Revision {
		at = &renewal{contract: doc.ID, revision: doc.Revision, next: firstTry(doc, rand.Float64())}
		r.renewals[peer] = at
	}
	return time.Until(at.next)
}

// renew signs the contract again when that is due, and says when to look at it next. A try that fails is no error of the
// relation: the contract is in force, and there is time for more.
func (r *PeerReconciler) renew(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (again time.Duration, err error) {
	old, err := contract.Parse(ctr.Spec.Document)
	if err != nil {
		return 0, fmt.Errorf("the contract with %s: %w", peer.Name, err)
	}
	if due := r.dueIn(peer.Name, old); due > 0 {
		return due, nil
	}
	r.mu.Lock()
	at := r.renewals[peer.Name]
	at.tries++
	at.next = time.Now().Add(nextTry(old, at.tries, rand.Float64()))
	runs := record.RunsFor(old)
	if at.declined { // the owner there may have chosen a shorter time since; the shortest is nowhere too long
		runs = sharing.MinValidity
	}
	if at.doc == nil || time.Since(at.doc.Created) > runs/record.RenewalPause {
		doc := renewed(old, time.Now(), runs)
		at.doc = &doc
	}
	tries, doc := at.tries, *at.doc
	again = time.Until(at.next)
	r.mu.Unlock()

	signed, err := r.countersigned(ctx, peer, &doc)
	if err == nil {
		return 0, r.record(ctx, peer, ctr, signed, doc, nil)
	}
	var problem *peering.Problem
	r.mu.Lock()
	if at.doc = &doc; errors.As(err, &problem) {
		at.doc, at.declined = nil, problem.Code == peering.CodeDeclined
	}
	r.mu.Unlock()
	if tries == 1 {
		r.log.Info("contract not renewed yet, will try again", "peer", peer.Name, "contract", old.ID, "until", old.NotAfter, "err", err)
	}
	if problem == nil || problem.Code == peering.CodeRateLimited {
		return again, nil
	}
	why := fmt.Sprintf("the contract runs until %s and %s does not renew it: %s", old.NotAfter.UTC().Format(time.RFC3339), peer.Name, problem.Message)
	return again, client.IgnoreNotFound(record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) { s.Outgoing.Why = why }))
}

// signedBy has a peer sign a document that is a revision; see signWith.
func (r *PeerReconciler) signedBy(ctx context.Context, peer *v1alpha1.Peer, doc *contract.Document) (contract.Signed, error) {
	to, err := r.directory.Client(peer)
	if err != nil {
		return contract.Signed{}, err
	}
	return r.signWith(ctx, to, doc)
}

// renewed is the next revision of a document: the same amounts, from now, for so long.
func renewed(old contract.Document, now time.Time, runs time.Duration) contract.Document {
	doc := old
	now = now.UTC().Truncate(time.Second)
	doc.Revision++
	doc.Created, doc.NotBefore, doc.NotAfter = now, now.Add(-record.ClockSkew), now.Add(runs)
	return doc
}

// tooShort says what is wrong with the time that an offer's contract would run; nil when it can work.
func tooShort(offer *peering.Offer) error {
	if runs := time.Duration(offer.ValidFor) * time.Second; runs < sharing.MinValidity {
		return fmt.Errorf("it offers a contract for %s, which could not be renewed in time: it must be for %s at least", runs, sharing.MinValidity)
	}
	return nil
}

// answered gives the contract in force again when it is the very document that the caller sent: the answer was lost, then.
func (p *Provider) answered(ctx context.Context, caller peering.Caller, sent contract.Signed) (contract.Signed, bool) {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	if err != nil || peer == nil {
		return sent, false
	}
	contracts, err := record.Contracts(ctx, p.client, peer.Name, v1alpha1.RoleProvider)
	ctr := record.Live(contracts)
	if err != nil || ctr == nil || !bytes.Equal(ctr.Spec.Document, sent.Document) || !bytes.Equal(ctr.Spec.ConsumerSignature, sent.ConsumerSignature) {
		return sent, false
	}
	sent.ProviderSignature = ctr.Spec.ProviderSignature
	return sent, true
}

// signedWith notes that something was signed with a consumer.
func (p *Provider) signedWith(consumer identity.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, at := range p.last {
		if now.Sub(at) > record.Validity/record.RenewalPause {
			delete(p.last, other)
		}
	}
	p.last[consumer] = now
}

// signedLately reports whether something was signed with a consumer so short a time ago that a cache may not have it yet.
func (p *Provider) signedLately(consumer identity.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.last[consumer]
	return ok && time.Since(at) < record.Young
}

// mayRenew lets a contract go on without a question as long as nobody gets more by it, and not again and again: each revision
// is written down on both sides.
func (p *Provider) mayRenew(consumer identity.ID, ctr *v1alpha1.Contract, old, doc contract.Document) error {
	want, err := record.Quantities(doc.Resources)
	if err != nil {
		return peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	if over := record.Exceeds(want, ctr.Spec.Resources); over != "" {
		return peering.Refuse(peering.CodeNoContract, "the revision grants more "+over+" than the contract, and nothing more was accepted", "ask first")
	}
	p.mu.Lock()
	last, pause := p.last[consumer], record.RunsFor(old)/record.RenewalPause
	p.mu.Unlock()
	if left := pause - time.Since(last); !last.IsZero() && left > 0 {
		return peering.Refuse(peering.CodeRateLimited, fmt.Sprintf("the contract was signed %s ago, and it is renewed once in %s at most",
			time.Since(last).Round(time.Second), pause), fmt.Sprintf("try again in %s", left.Round(time.Second)+time.Second))
	}
	return nil
}
