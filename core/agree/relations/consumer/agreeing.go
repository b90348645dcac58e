package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// agreement says whether an offer may be signed.
type agreement int

const (
	agreeWait agreement = iota // the owner has not said all that is needed
	agreeSign
	agreeNever // the request is taken back
)

// agree decides whether an accepted request may be signed. The owner must have confirmed the peer's key, and any terms that were not asked
// for. why is the reason of agreeNever; alarm: there may be a man in the middle.
//
// Whether the key is known never depends on anything that the peer sends.
func agree(peer *v1alpha1.Peer, terms []string) (a agreement, why string, alarm bool) {
	out, word := peer.Status.Outgoing, Word(peer)
	if why, alarm := objection(peer); why != "" {
		return agreeNever, why, alarm
	}
	known := sharing.Accepted(peer) || compared(peer)
	shown := out.Confirm
	switch {
	case !known && out.Code == "" && word.ID == "":
		return agreeNever, "there is no code to compare with " + peer.Name, false
	case shown != nil && len(shown.Terms) > 0 && !slices.Equal(shown.Terms, terms): // a yes on its way is to what was read
		return agreeNever, peer.Name + " changed its terms after they were shown here", false
	case len(terms) > 0 && word.Terms && shown == nil:
		return agreeNever, "the terms of " + peer.Name + " were agreed to before they were known", false
	case len(terms) > 0 && word.Terms && !slices.Equal(shown.Terms, terms):
		return agreeNever, peer.Name + " changed its terms after they were agreed to", false
	case !known || len(terms) > 0 && !word.Terms:
		return agreeWait, "", false
	}
	return agreeSign, "", false
}

// Word is the owner's confirmation of the pending request (spec.request.confirm); one of another attempt does not count.
func Word(peer *v1alpha1.Peer) v1alpha1.Confirm {
	if r := peer.Spec.Request; r != nil && r.Confirm != nil && r.Confirm.Attempt == peer.Status.Outgoing.Attempt {
		return *r.Confirm
	}
	return v1alpha1.Confirm{}
}

// objection says why the owner's confirmation ends the request; "" when it does not.
func objection(peer *v1alpha1.Peer) (why string, alarm bool) {
	out, word := peer.Status.Outgoing, Word(peer)
	switch {
	case word.Withdraw:
		return "it was withdrawn here", false
	case word.Reject:
		return "it was rejected here", !sharing.Accepted(peer)
	case word.ID != "" && word.ID != peer.Spec.ID:
		return fmt.Sprintf("the ID that was given is not that of %s: somebody may stand in between", peer.Name), true
	case word.Code != "" && out.Code != "" && word.Code != out.Code:
		return fmt.Sprintf("the codes differ (%s was given, here it is %s): somebody may stand in between",
			identity.Spaced(word.Code), identity.Spaced(out.Code)), true
	}
	return "", false
}

// compared says whether the owner compared the peer's key: its whole ID, or the code made from it.
func compared(peer *v1alpha1.Peer) bool {
	out, word := peer.Status.Outgoing, Word(peer)
	return word.ID != "" && word.ID == peer.Spec.ID || out.Code != "" && word.Code == out.Code
}

// maxClasses is how many storage classes a sentence names.
const maxClasses = 4

// beyond says in sentences what an offer has that was not asked for; what the contract in force says already was agreed to.
func beyond(terms contract.Terms, inForce *contract.Document) (sentences []string) {
	had := contract.Terms{}
	if inForce != nil {
		had = inForce.Terms
	}
	for _, name := range slices.Sorted(maps.Keys(terms.Prices)) {
		if had.Prices[name] != terms.Prices[name] {
			sentences = append(sentences, fmt.Sprintf("%s costs %s", api.Called(name), contract.PerHour(name, terms.Prices[name])))
		}
	}
	if terms.PodSecurity == contract.Privileged && had.PodSecurity != contract.Privileged {
		sentences = append(sentences, "pods may run privileged there")
	}
	if api.Lends(terms.Resources) && terms.Keeps() < had.Keeps() {
		sentences = append(sentences, fmt.Sprintf("volumes are kept there for %s after the end, and not for %s", api.Span(terms.Keeps()), api.Span(had.Keeps())))
	}
	if terms.Network == contract.NetworkNone && had.Network != contract.NetworkNone {
		sentences = append(sentences, "there is no network between the clusters: pods there reach nothing here, and nothing here reaches them")
	}
	var classes []string
	for _, class := range terms.StorageClasses {
		if !slices.Contains(had.StorageClasses, class) {
			classes = append(classes, class)
		}
	}
	if n := len(classes); n > maxClasses { // a sentence is for reading
		sentences = append(sentences, fmt.Sprintf("it names %d storage classes, beginning with %s", n, strings.Join(classes[:maxClasses], ", ")))
	} else if n > 0 {
		sentences = append(sentences, "it names storage classes: "+strings.Join(classes, ", "))
	}
	return sentences
}

// otherNetwork says why an offer is not signed for what it says of the network between the clusters; "" when nothing is in the way.
func (r *Consumer) otherNetwork(peer *v1alpha1.Peer, terms contract.Terms, asksNone bool, inForce *contract.Document) string {
	words := map[bool]string{true: "no network", false: "a network"}
	none := terms.Network == contract.NetworkNone
	switch {
	case asksNone && !none:
		return "it has a network between the clusters, and none was asked for; bring the Kith there up to date"
	case inForce != nil && (inForce.Network == contract.NetworkNone) != none:
		return fmt.Sprintf("it has %s between the clusters, and the contract in force has %s; end that first (kith unpeer %s), then ask again", words[none], words[!none], peer.Name)
	case sharing.OtherNetwork(r.Client.Now().With(peer.Name, v1alpha1.RoleProvider), terms.Network):
		return fmt.Sprintf("it has %s between the clusters, and the contract by which %s uses this one has %s; end that first (kith unpeer %[2]s), then ask again", words[none], peer.Name, words[!none])
	}
	return ""
}

// dearer says which price of an offer is beyond those that the owner agreed to beforehand; "" when none is. What these do not name has to be free, and what
// is in another currency is beyond them.
func dearer(prices map[string]string, most map[string]v1alpha1.UnitPrice) string {
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		price, err := contract.ParsePrice(prices[name])
		if err == nil && price.Amount.Sign() == 0 {
			continue
		}
		limit, named := most[name]
		if !named {
			return fmt.Sprintf("%s costs %s, and the most that is paid for it was not said", api.Called(name), contract.PerHour(name, prices[name]))
		}
		atMost, bad := contract.ParsePrice(string(limit))
		if err != nil || bad != nil || price.Currency != atMost.Currency || price.Amount.Cmp(atMost.Amount) > 0 {
			return fmt.Sprintf("%s costs %s, and at most %s is paid", api.Called(name), contract.PerHour(name, prices[name]), limit)
		}
	}
	return ""
}

// noMore takes what is offered above the amounts that were asked for out of the terms. What was not named is up to the
// provider.
func noMore(terms contract.Terms, asked map[string]string) (contract.Terms, error) {
	offered, err := record.Quantities(terms.Resources)
	if err != nil {
		return terms, err
	}
	limits, err := record.Quantities(asked)
	if err != nil {
		return terms, err
	}
	terms.Resources = maps.Clone(terms.Resources)
	for name, limit := range limits {
		if q, ok := offered[name]; ok && q.Cmp(limit) > 0 {
			terms.Resources[string(name)] = asked[string(name)]
		}
	}
	return terms, nil
}

// consider signs an offer if nothing (more) needs the owner's confirmation; else it shows in the status what does.
func (r *Consumer) consider(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, offer *peering.Offer) error {
	if err := tooShort(offer); err != nil {
		return r.over(ctx, peer, peering.EventDeclined, "nothing was signed with "+peer.Name, err.Error())
	}
	old := r.Client.Now().InForce(peer.Name, v1alpha1.RoleConsumer)
	var inForce *contract.Document
	if old != nil {
		doc, err := contract.Parse(old.Spec.Document)
		if err != nil {
			return fmt.Errorf("the contract with %s: %w", peer.Name, err)
		}
		inForce = &doc
	}
	asked := Wanted(peer, old)
	terms, err := noMore(offer.Terms, record.Amounts(asked))
	if err != nil {
		return r.over(ctx, peer, peering.EventDeclined, "the offer of "+peer.Name+" cannot be read", err.Error())
	}
	asksNone := peer.Spec.Request != nil && peer.Spec.Request.Network == v1alpha1.NetworkNone
	if why := r.otherNetwork(peer, terms, asksNone, inForce); why != "" {
		return r.over(ctx, peer, peering.EventDeclined, "the offer of "+peer.Name+" was not signed", why)
	}
	unsaid := terms // of what is offered, what the owner has said nothing of
	if request := peer.Spec.Request; request != nil && len(request.MaxPrices) > 0 {
		if why := dearer(terms.Prices, request.MaxPrices); why != "" {
			return r.over(ctx, peer, peering.EventDeclined, "the offer of "+peer.Name+" was not signed", why)
		}
		unsaid.Prices = nil
	}
	if asksNone {
		unsaid.Network = ""
	}
	sentences := beyond(unsaid, inForce)
	if tetherOf(peer) == peering.TetherCompany && len(terms.Prices) == 0 { // what its laptops permit costs a company nothing
		sentences = nil
	}
	switch a, why, alarm := agree(peer, sentences); a {
	case agreeNever:
		return r.takeBack(ctx, peer, why, alarm)
	case agreeWait:
		return r.showConfirm(ctx, peer, sentences)
	}
	if !sharing.Accepted(peer) {
		if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { record.AcceptKey(s, "OwnerConfirmed") }); err != nil {
			return err
		}
	}
	return r.sign(ctx, peer, to, old, asked, terms, offer)
}

// showConfirm writes into the status what the owner has to confirm, so that it survives a restart.
func (r *Consumer) showConfirm(ctx context.Context, peer *v1alpha1.Peer, terms []string) error {
	need := v1alpha1.Confirmation{Terms: terms}
	var ask []string
	if !sharing.Accepted(peer) && !compared(peer) {
		need.Code = peer.Status.Outgoing.Code
		ask = append(ask, fmt.Sprintf("compare the code %s with %s's screen and confirm (kith confirm %[2]s)", identity.Spaced(need.Code), peer.Name))
	}
	if len(terms) > 0 {
		ask = append(ask, fmt.Sprintf("agree to terms that were not asked for (kith confirm %s --terms): %s", peer.Name, strings.Join(terms, ", ")))
	}
	if now := peer.Status.Outgoing.Confirm; now != nil && now.Code == need.Code && slices.Equal(now.Terms, terms) {
		return nil
	}
	why := peer.Name + " accepted: " + strings.Join(ask, "; ")
	if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		s.Outgoing.Why, s.Outgoing.Confirm = why, &need
	}); err != nil {
		return err
	}
	r.Log.Info("peer accepted, the owner is asked to confirm", "peer", peer.Name, "request", peer.Status.Outgoing.RequestID, "terms", len(terms))
	r.Announce(api.Event{Type: api.EventConfirm, Severity: api.SeverityInfo, Peer: peer.Name, Message: why,
		Direction: api.Outgoing, State: api.StateRequested})
	return nil
}

// takeBack withdraws a request that the owner rejected. Nothing was signed.
func (r *Consumer) takeBack(ctx context.Context, peer *v1alpha1.Peer, why string, alarm bool) error {
	request := peer.Status.Outgoing.RequestID
	ended, err := r.close(ctx, peer, peering.EventDeclined, api.ReasonTakenBack, "the request to "+peer.Name+" was taken back", why)
	if ended && alarm {
		r.Announce(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: peer.Name,
			Message: "the request to " + peer.Name + " was taken back, and nothing was signed: " + why})
	}
	if ended {
		r.withdraw(ctx, peer, request, alarm)
	}
	return err
}

// pend goes on with a request that waits for the peer's answer, or for the owner's word on it.
func (r *Consumer) pend(ctx context.Context, peer *v1alpha1.Peer) error {
	out := peer.Status.Outgoing
	switch {
	case Asking(out) && r.isAsking(peer):
		return nil // a cache that is behind, or the question is out at this moment
	case Asking(out):
		return r.takeBack(ctx, peer, "kithd was restarted in the middle of the pairing; ask again", false)
	}
	if why, alarm := objection(peer); why != "" {
		return r.takeBack(ctx, peer, why, alarm)
	}
	r.await(peer)
	return nil
}

// Asking says whether the question is on its way: this side's nonce may be out, and the peer has not answered it.
func Asking(d v1alpha1.DirectionStatus) bool {
	return d.RequestID == "" && (d.Asking || d.State == v1alpha1.StateRequested) // an older Kith left the state alone
}

// Look says when to look again whether a request that waits for the owner's word still stands; 0 for never. Its expiry is a
// time of the peer's clock, so the peer is asked.
func Look(out v1alpha1.DirectionStatus, now time.Time) time.Duration {
	if out.Confirm == nil || out.Expires == nil {
		return 0
	}
	return max(out.Expires.Add(record.Afterwards).Sub(now), record.Afterwards) // never sooner than a minute
}
