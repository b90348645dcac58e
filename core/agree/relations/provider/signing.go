package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// Sign countersigns a contract that the caller signed, if it says what was offered to it.
func (p *Provider) Sign(ctx context.Context, caller peering.Caller, signed contract.Signed) (contract.Signed, error) {
	doc, err := signed.VerifyAs(contract.Consumer)
	if err != nil {
		return signed, peering.Refuse(peering.CodeBadRequest, err.Error(), "sign the document again")
	}
	if doc.Consumer.ID != caller.ID || doc.Provider.ID != p.Identity.ID() {
		return signed, peering.Refuse(peering.CodeBadRequest, "the contract is between other clusters", "name both as they are")
	}
	if company, joins := p.Mode.Company(); company != "" && (company != caller.ID.String() || !joins) {
		return signed, peering.Refuse(peering.CodeDeclined, tetheredElsewhere, "")
	}
	if again, ok := p.answered(caller, signed); ok {
		return again, nil
	}
	if _, err := p.groundsFor(p.Client.Now(), caller, doc); err != nil { // who has none waits for nobody, and nobody for him
		return signed, err
	}
	p.signing.Lock()
	defer p.signing.Unlock()
	now, err := ledger.Read(ctx, p.Fresh) // the API server: what was promised counts, whoever wrote it
	if err != nil {
		return signed, err
	}
	on, err := p.groundsFor(now, caller, doc)
	if err != nil {
		return signed, err
	}
	name := doc.Consumer.Name
	if on.request != nil {
		name = on.request.Spec.PeerName
	}
	if !on.lowers {
		if err := p.check(ctx, now, asPeer(now, caller.ID, name), on, doc); err != nil {
			return signed, err
		}
	}
	if err := signed.SignAs(contract.Provider, p.Identity); err != nil {
		return signed, err
	}
	err = p.keep(ctx, now, caller, on, signed, doc)
	if !on.lowers { // of those there is one for each time that the owner shares less
		p.signed.Set(caller.ID, time.Now(), record.Validity/record.RenewalPause)
	}
	if err != nil || on.request == nil {
		return signed, err
	}
	return signed, client.IgnoreNotFound(p.Client.Delete(ctx, on.request))
}

// acceptedRequest is what entitles a caller to a contract.
func acceptedRequest(now *ledger.Snapshot, id identity.ID) (*v1alpha1.PeeringRequest, error) {
	for _, r := range now.Requests {
		if !r.Spec.Tether && r.Spec.PeerID == id.String() && r.Status.Answer == v1alpha1.AnswerAccepted && time.Now().Before(r.Spec.Expires.Time) {
			return r, nil
		}
	}
	return nil, peering.Refuse(peering.CodeNoContract, "nothing was accepted that this contract could be about", "ask first")
}

// check holds a document against what the peer may have at this moment; see terms.
func (p *Provider) check(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, on grounds, doc contract.Document) error {
	offered, policy, err := p.terms(ctx, now, peer, on.request, 0)
	refusal, refused := errors.AsType[*sharing.Refusal](err)
	if on.request == nil && on.old.Status.Lowering != nil && (err == nil || refused && refusal.Of != "") { // by notice, and not by the renewal
		left, unread := p.leaves(ctx, now, peer, on.old)
		if unread != nil {
			return unread
		}
		if !refused || left == nil || len(left) > 0 { // else nothing is left, and it runs out
			offered, err, refused = on.old.Grants(time.Now()), nil, false
		}
	}
	if refused {
		return peering.Refuse(peering.CodeDeclined, refusal.Reason, "")
	}
	if err != nil {
		return err
	}
	want, err := record.Quantities(doc.Resources)
	if err != nil {
		return peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	if err := networkOf(now, peer, on, policy, doc.Network); err != nil {
		return err
	}
	if err := timely(doc, time.Now(), sharing.Validity(policy)); err != nil {
		return err
	}
	old := on.old
	if on.request != nil { // what it changes may end sooner
		old = nil
	}
	if err := withinHours(doc, time.Now(), policy, old); err != nil {
		return err
	}
	switch over := record.Exceeds(want, offered); {
	case over != "":
		q := offered[corev1.ResourceName(over)]
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract grants %s %s, the offer is %s", doc.Resources[over], over, q.String()), "ask again")
	case doc.PodSecurity != string(sharing.Level(policy)):
		return peering.Refuse(peering.CodeDeclined, "the contract's pod security level is not the offered "+string(sharing.Level(policy)), "ask again")
	case !mayKeep(doc, on.old, policy):
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract has volumes kept for %s, the offer is %s", doc.Keeps(), sharing.Keeps(policy)), "ask again")
	case !mayHaveNotice(doc, on.old, policy):
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract may be lowered with a notice of %s, the offer is %s", doc.NoticeTime(), sharing.Notice(policy)), "ask again")
	case !mayWake(doc, on.old, policy):
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract lets this laptop be woken %d times a day, the offer is %d", doc.Wake, sharing.Wake(policy)), "ask again")
	case doc.Reoffer && !sharing.Reoffer(policy): // that it is left out is for the consumer to say, as one does whose Kith does not know the term
		return peering.Refuse(peering.CodeDeclined, "the contract lets what it grants be offered on to others, and the offer does not", "ask again")
	case !maps.Equal(doc.Prices, sharing.Prices(policy, doc.Resources)): // an owner who changed them is not held to the old ones by a renewal
		return peering.Refuse(peering.CodeDeclined, "the contract's prices are not the offered ones", "ask again, and agree to the prices of now")
	case len(doc.StorageClasses) > 0:
		return peering.Refuse(peering.CodeDeclined, "the contract names storage classes that were not offered", "ask again")
	}
	return nil
}

// mayKeep reports whether volumes may be kept for as long as a document says: as is offered, as was signed, or as with a consumer whose Kith is from
// before there was such a term.
func mayKeep(doc contract.Document, old *v1alpha1.Contract, policy *v1alpha1.SharingPolicy) bool {
	if doc.KeepVolumes == contract.KeepFor(sharing.Keeps(policy)) {
		return true
	}
	if old == nil {
		return doc.KeepVolumes == 0
	}
	was, err := contract.Parse(old.Spec.Document)
	return err == nil && was.KeepVolumes == doc.KeepVolumes
}

// mayHaveNotice reports whether a document may say what it does of a notice: as is offered, as was signed, or nothing, as with a consumer whose Kith is
// from before there was such a term.
func mayHaveNotice(doc contract.Document, old *v1alpha1.Contract, policy *v1alpha1.SharingPolicy) bool {
	return doc.Notice == contract.NoticeOf(sharing.Notice(policy)) || doc.Notice == record.Notice(old)
}

// mayWake reports whether a document may say what it does of waking: no more than is offered, or as was signed, which the last word before a suspend may
// still refuse.
func mayWake(doc contract.Document, old *v1alpha1.Contract, policy *v1alpha1.SharingPolicy) bool {
	return doc.Wake <= contract.WakeOf(sharing.Wake(policy)) || doc.Wake == record.Wake(old)
}

// timely holds the times of a document against those offered, by this cluster's clock, which may be clockSkew away from
// the consumer's, either way.
func timely(doc contract.Document, now time.Time, runs time.Duration) error {
	switch {
	case !doc.InForce(now):
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract runs from %s to %s, and here it is %s",
			doc.NotBefore.UTC().Format(time.RFC3339), doc.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), "compare the clocks of both laptops")
	case doc.NotAfter.After(now.Add(runs + 2*record.ClockSkew)):
		return peering.Refuse(peering.CodeDeclined, "the contract runs longer than offered", "ask again")
	}
	return nil
}

// withinHours holds the end of a document against the policy's hours: it ends with them at the latest, whatever clocks say. old is the contract in force
// that it renews: nothing is signed that ends sooner, as a consumer tries that was refused the whole time.
func withinHours(doc contract.Document, now time.Time, policy *v1alpha1.SharingPolicy, old *v1alpha1.Contract) error {
	ends := sharing.Hours(policy, now).Changes
	if ends.IsZero() {
		return nil
	}
	if doc.NotAfter.After(ends) {
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract runs past the hours of SharingPolicy %s, which end %s", policy.Name, sharing.Clock(ends)), "ask again in its hours")
	}
	if old != nil && old.Spec.NotAfter != nil && !doc.NotAfter.After(old.Spec.NotAfter.Time) {
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract in force runs as long as that already; the hours of SharingPolicy %s end %s", policy.Name, sharing.Clock(ends)), "ask again in its hours")
	}
	return nil
}

// keep writes the signed contract down and makes the stranger a Peer.
func (p *Provider) keep(ctx context.Context, now *ledger.Snapshot, caller peering.Caller, on grounds, signed contract.Signed, doc contract.Document) error {
	name, endpoints := doc.Consumer.Name, []string(nil)
	if on.request != nil {
		name, endpoints = on.request.Spec.PeerName, on.request.Spec.Endpoints
	}
	peer, err := record.EnsurePeer(ctx, p.Client, caller.ID, name, endpoints, v1alpha1.SourceManual)
	if err != nil {
		return err
	}
	var woken []metav1.Time
	for _, old := range now.With(peer.Name, v1alpha1.RoleProvider) { // a consumer that lost its memory asks anew: what it had ends
		if is := old.Status.Wake; is != nil {
			woken = append(woken, is.Times...)
		}
		if on.old != nil && old.Name == on.old.Name {
			continue
		}
		if err := client.IgnoreNotFound(p.Client.Delete(ctx, old)); err != nil {
			return err
		}
	}
	ctr, err := record.NewContract(v1alpha1.RoleProvider, peer, signed, doc)
	if err != nil {
		return err
	}
	if err := record.PutContract(ctx, p.Client, on.old, ctr); err != nil {
		return fmt.Errorf("keep the contract with %s: %w", peer.Name, err)
	}
	if on.old == nil {
		if err := p.wokenAlready(ctx, ctr, woken); err != nil {
			return err
		}
		if err := p.welcome(ctx, peer, ctr); err != nil {
			return err
		}
	}
	if on.request != nil && !sharing.Accepted(peer) && p.ownersWord(ctx, on.request) {
		if err := record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) { record.AcceptKey(s, "OwnerAccepted") }); err != nil {
			return err
		}
	}
	p.Log.Info("contract signed", "peer", peer.Name, "contract", ctr.Spec.ID, "revision", ctr.Spec.Revision, "role", "provider")
	signedNow := api.Event{
		Type: api.EventContractSigned, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name,
		Message: fmt.Sprintf("%s may use %s", peer.Name, record.Granted(ctr.Spec.Resources)), Direction: api.Incoming,
	}
	switch {
	case on.lowers:
		signedNow.Reason = api.ReasonLowered
	case on.old != nil && on.request == nil && sharing.Same(on.old.Spec.Resources, ctr.Spec.Resources):
		signedNow.Reason = api.ReasonRenewed
	}
	p.Announce(signedNow)
	return nil
}

// wokenAlready has a new contract begin with how often its consumer woke this machine under those before it: who asks anew may not do so more often.
func (p *Provider) wokenAlready(ctx context.Context, ctr *v1alpha1.Contract, times []metav1.Time) error {
	now := time.Now()
	times = slices.DeleteFunc(times, func(t metav1.Time) bool { return now.Sub(t.Time) >= 24*time.Hour })
	if len(times) == 0 {
		return nil
	}
	slices.SortFunc(times, func(a, b metav1.Time) int { return a.Compare(b.Time) })
	before := ctr.DeepCopy()
	ctr.Status.Wake = &v1alpha1.WakeStatus{Times: slices.CompactFunc(times, func(a, b metav1.Time) bool { return a.Equal(&b) })}
	if over := len(ctr.Status.Wake.Times) - contract.MaxWake; over > 0 {
		ctr.Status.Wake.Times = ctr.Status.Wake.Times[over:]
	}
	if err := p.Client.Status().Patch(ctx, ctr, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("keep how often %s woke this laptop: %w", ctr.Spec.Peer, err)
	}
	return nil
}

// ownersWord says whether an accepted request means that the owner compared the key: by the code in it, or by the whole ID in
// the policy that answers. A policy that accepts whoever comes compares nothing.
func (p *Provider) ownersWord(ctx context.Context, r *v1alpha1.PeeringRequest) bool {
	name := record.AnsweringPolicy(r)
	if name == "" {
		return r.Spec.Code != ""
	}
	var policy v1alpha1.SharingPolicy
	return p.Client.Get(ctx, client.ObjectKey{Name: name}, &policy) == nil && slices.Contains(policy.Spec.Peers, r.Spec.PeerID)
}

// welcome notes where the new contract stands.
func (p *Provider) welcome(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	return record.PatchStatus(ctx, p.Client, peer, func(s *v1alpha1.PeerStatus) {
		s.Incoming = v1alpha1.DirectionStatus{}
		record.Step(&s.Incoming, peering.EventAsked, "")
		record.Step(&s.Incoming, peering.EventSigned, "signed, the link is being made")
		s.Incoming.Contract = ctr.Name
	})
}

// grounds are what a provider may sign a document on: a request that the owner accepted, or, for the next revision of
// a contract in force, what that grants already.
type grounds struct {
	request *v1alpha1.PeeringRequest // nil for a renewal
	old     *v1alpha1.Contract       // nil for a new contract
	lowers  bool                     // as its consumer was told
}

// groundsFor finds them; the error is a refusal when there are none.
func (p *Provider) groundsFor(now *ledger.Snapshot, caller peering.Caller, doc contract.Document) (g grounds, err error) {
	var old contract.Document
	if g.old, old, err = inForce(now, caller, doc); err != nil {
		return g, err
	}
	if g.old != nil && lowers(g.old, old, doc) {
		g.lowers = true
		return g, nil
	}
	g.request, err = acceptedRequest(now, caller.ID)
	var refusal *peering.Problem
	switch {
	case g.old == nil:
	case errors.As(err, &refusal):
		err = p.mayRenew(caller.ID, g.old, old, doc)
	case err == nil && beside(g.request, old, doc) && p.mayRenew(caller.ID, g.old, old, doc) == nil:
		g.request = nil
	}
	return g, err
}

// beside reports whether a document is a renewal of the old one while a request for other amounts is accepted.
func beside(request *v1alpha1.PeeringRequest, old, doc contract.Document) bool {
	says, err := record.Quantities(doc.Resources)
	if err != nil || !reflect.DeepEqual(old.Terms, doc.Terms) {
		return false
	}
	for name, asked := range request.Spec.Resources {
		if q, ok := says[name]; !ok || q.Cmp(asked) != 0 {
			return true
		}
	}
	return false
}

// ofNobodyElse refuses the ID of another's contract for a new one: consumers choose the IDs, and what is kept by them here,
// tenants and their pods, must not be another's.
func ofNobodyElse(now *ledger.Snapshot, peer, id string) error {
	if slices.ContainsFunc(now.Contracts, func(c *v1alpha1.Contract) bool { return c.Spec.ID == id && c.Spec.Peer != peer }) {
		return peering.Refuse(peering.CodeConflict, "there is a contract of that ID already", "draw another ID")
	}
	return nil
}

// contractWith is the contract under which the caller consumes, nil without one, and the name of its Peer.
func contractWith(now *ledger.Snapshot, caller peering.Caller) (peer string, ctr *v1alpha1.Contract) {
	of := now.Peer(caller.ID.String())
	if of == nil {
		return "", nil
	}
	return of.Name, now.InForce(of.Name, v1alpha1.RoleProvider)
}

// inForce is the contract that doc is a revision of, and what it says; nil when it is a new one.
func inForce(now *ledger.Snapshot, caller peering.Caller, doc contract.Document) (ctr *v1alpha1.Contract, old contract.Document, err error) {
	peer, ctr := contractWith(now, caller)
	if ctr == nil || ctr.Spec.ID != doc.ID {
		return nil, old, ofNobodyElse(now, peer, doc.ID)
	}
	if old, err = contract.Parse(ctr.Spec.Document); err != nil {
		return nil, old, err
	}
	if err := doc.Follows(old); err != nil {
		return nil, old, peering.Refuse(peering.CodeConflict, err.Error(), "")
	}
	return ctr, old, nil
}

// answered gives the contract in force again when it is the very document that the caller sent: the answer was lost, then.
func (p *Provider) answered(caller peering.Caller, sent contract.Signed) (contract.Signed, bool) {
	_, ctr := contractWith(p.Client.Now(), caller)
	if ctr == nil || !bytes.Equal(ctr.Spec.Document, sent.Document) || !bytes.Equal(ctr.Spec.ConsumerSignature, sent.ConsumerSignature) {
		return sent, false
	}
	sent.ProviderSignature = ctr.Spec.ProviderSignature
	return sent, true
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
	last, pause := p.lastSigned(consumer), record.RunsFor(old)/record.RenewalPause
	if left := pause - time.Since(last); !last.IsZero() && left > 0 {
		return peering.Refuse(peering.CodeRateLimited, fmt.Sprintf("the contract was signed %s ago, and it is renewed once in %s at most",
			time.Since(last).Round(time.Second), pause), fmt.Sprintf("try again in %s", left.Round(time.Second)+time.Second))
	}
	return nil
}
