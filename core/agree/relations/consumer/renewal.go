package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// How a contract is renewed, in parts of the time V that it runs. By the consumer's clock it is signed again when a third of
// V is left, tried at growing intervals of at most V/24. The provider refuses to sign again before V/12 is over since the last
// time: it may have signed a revision whose answer was lost. Its clock may be record.ClockSkew ahead, so that it takes the contract for
// over when the consumer thinks that as much is left. V/3 − V/12 (record.RenewalPause) − ClockSkew therefore is what is left for trying:
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
func (r *Consumer) dueIn(peer string, doc contract.Document) time.Duration {
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
func (r *Consumer) renew(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (again time.Duration, err error) {
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
		doc := record.Renewed(old, time.Now(), runs)
		if l := ctr.Status.Lowering; l != nil && !time.Now().Before(l.From.Time) { // no more is signed where it holds, signed or not
			doc.Resources = record.Amounts(ctr.Grants(time.Now()))
		}
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
		r.Log.Info("contract not renewed yet, will try again", "peer", peer.Name, "contract", old.ID, "until", old.NotAfter, "err", err)
	}
	if problem == nil || problem.Code == peering.CodeRateLimited {
		return again, nil
	}
	why := fmt.Sprintf("the contract runs until %s and %s does not renew it: %s", old.NotAfter.UTC().Format(time.RFC3339), peer.Name, problem.Message)
	return again, client.IgnoreNotFound(record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { s.Outgoing.Why = why }))
}

// NotRenewed reports whether a provider declined to sign its contract again as it is: its owner has other terms now, such as prices, and has to be asked.
func (r *Consumer) NotRenewed(peer string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.renewals[peer]
	return at != nil && at.declined
}

// signedBy has a peer sign a document that is a revision; see signWith.
func (r *Consumer) signedBy(ctx context.Context, peer *v1alpha1.Peer, doc *contract.Document) (contract.Signed, error) {
	to, err := r.Directory.Client(peer)
	if err != nil {
		return contract.Signed{}, err
	}
	return r.signWith(ctx, to, doc)
}

// tooShort says what is wrong with the time that an offer's contract would run; nil when it can work.
func tooShort(offer *peering.Offer) error {
	if runs := time.Duration(offer.ValidFor) * time.Second; runs < sharing.MinValidity {
		return fmt.Errorf("it offers a contract for %s, which could not be renewed in time: it must be for %s at least", runs, sharing.MinValidity)
	}
	return nil
}
