package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// Want has a Peer asked for what the request says, whatever it was asked before; the reconciler puts the question. The request has the NextAttempt, and
// id is that of the peer if its owner gave it to this one: then the key is compared with it, and no code is needed.
func Want(ctx context.Context, c client.Client, peer *v1alpha1.Peer, request v1alpha1.ResourceRequest, id string) error {
	before := peer.DeepCopy()
	if id != "" {
		request.Confirm = &v1alpha1.Confirm{Attempt: request.Attempt, ID: id}
	}
	peer.Spec.Request = &request
	if err := c.Patch(ctx, peer, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("ask %s: %w", peer.Name, err)
	}
	return nil
}

// Network is what a Peer was asked for last, which holds until its owner says otherwise, whoever asks again.
func Network(peer *v1alpha1.Peer) v1alpha1.Network {
	if peer.Spec.Request == nil {
		return ""
	}
	return peer.Spec.Request.Network
}

// NextAttempt is that of a question put now: the time in milliseconds, or more, since the clock may have been put back.
func NextAttempt(peer *v1alpha1.Peer, now time.Time) int64 {
	return max(now.UnixMilli(), peer.Status.Outgoing.Attempt+1)
}

// question tells one question from another.
type question struct {
	peer    types.UID // of the Peer
	attempt int64
}

// ask sends the request to the peer, once, and remembers what to wait for. It must not be sent again because the cache does not show the new
// status yet: the peer would take that for a new request and drop the first.
//
// Once this side's nonce was sent the attempt is over, whatever the outcome: repeating it automatically would let a man in the middle try one
// pairing code after another (identity.Commit). So the status records the attempt before the nonce is sent.
func (r *Consumer) ask(ctx context.Context, peer *v1alpha1.Peer) error {
	if r.isAsking(peer) {
		return nil
	}
	var now v1alpha1.Peer
	if err := r.Fresh.Get(ctx, client.ObjectKeyFromObject(peer), &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.Spec.Request == nil || now.Status.Outgoing.Attempt >= now.Spec.Request.Attempt {
		return nil
	}
	r.stopWaiting(peer.Name) // the peer ends the question before this one
	err := r.put(ctx, &now)
	if err != nil { // when the nonce was out, what is written down says that the attempt is over
		r.setAsking(peer, question{})
	}
	return err
}

// isAsking says whether this process put the question that the Peer wants.
func (r *Consumer) isAsking(peer *v1alpha1.Peer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return peer.Spec.Request != nil && r.asked[peer.Name] == question{peer.UID, peer.Spec.Request.Attempt}
}

func (r *Consumer) setAsking(peer *v1alpha1.Peer, q question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[peer.Name] = q
}

func (r *Consumer) put(ctx context.Context, peer *v1alpha1.Peer) error {
	to, err := r.Directory.Client(peer)
	if err != nil {
		return err
	}
	inForce := InForce(r.Client.Now(), peer)
	attempt, known := peer.Spec.Request.Attempt, sharing.Accepted(peer)
	wanted := Wanted(peer, inForce)
	if why := r.pointless(peer, wanted, inForce); why != "" {
		r.setAsking(peer, question{peer.UID, attempt})
		return r.unasked(ctx, peer, why)
	}
	ask := peering.Question{Name: r.Name, Resources: record.Amounts(wanted), Endpoints: r.Endpoints(), Attempt: attempt, Network: sharing.NetworkTerm(peer.Spec.Request.Network), Tether: tetherOf(peer)}
	if inForce != nil {
		if sharing.NoNetwork(inForce) { // it stays so, whatever is not said
			ask.Network = contract.NetworkNone
		}
		ask.Contract = inForce.Spec.ID
	}
	asked, err := to.Ask(ctx, ask, !known, func() error {
		if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
			record.Step(&s.Outgoing, peering.EventAsked, "asking the owner of "+peer.Name)
			settle(&s.Outgoing)
			s.Outgoing.Attempt, s.Outgoing.Asking = attempt, true
		}); err != nil {
			return err
		}
		r.setAsking(peer, question{peer.UID, attempt})
		return nil
	})
	var problem *peering.Problem
	var broken *peering.BrokenOffError
	switch {
	case errors.As(err, &broken) && !errors.As(err, &problem):
		return r.brokenOff(ctx, peer, broken)
	case errors.As(err, &broken):
		if err := r.takenBack(ctx, peer, problem); err != nil {
			return err
		}
		return r.over(ctx, peer, peering.EventDeclined, peer.Name+" refused", problem.Error())
	case errors.As(err, &problem):
		r.setAsking(peer, question{peer.UID, attempt})
		return r.refused(ctx, peer, problem)
	case err != nil:
		why := fmt.Sprintf("%s could not be asked: %v", peer.Name, err)
		return errors.Join(record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) { s.Outgoing.Why = why }), err)
	}
	code := asked.Code
	if known && !asked.Compare {
		code = ""
	}
	expires := metav1.NewTime(asked.Expires)
	if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		record.Step(&s.Outgoing, peering.EventAsked, "waiting for the owner of "+peer.Name)
		s.Outgoing.Asking = false
		s.Outgoing.RequestID, s.Outgoing.Code, s.Outgoing.Expires = asked.RequestID, code, &expires
	}); err != nil {
		return err
	}
	r.Log.Info("asked", "peer", peer.Name, "request", asked.RequestID)
	r.await(peer)
	return nil
}

// pointless says why an attempt is not sent to the peer at all; "" when it is.
func (r *Consumer) pointless(peer *v1alpha1.Peer, wanted corev1.ResourceList, inForce *v1alpha1.Contract) (why string) {
	if why := r.unfit(peer); why != "" {
		return why
	}
	if err := api.CheckAsked("spec.request.resources", sharing.Words(peer.Spec.Request.Resources)); err != nil {
		return err.Error()
	}
	if inForce != nil && peer.Spec.Request.Network == v1alpha1.NetworkNone && !sharing.NoNetwork(inForce) {
		return "the contract in force has a network between the clusters; end it first (kith unpeer " + peer.Name + "), then ask again"
	}
	if inForce != nil && tetherOf(peer) == peering.TetherNone && sharing.Same(wanted, inForce.Grants(time.Now())) {
		return nothingChanges
	}
	return ""
}

// nothingChanges is why an attempt that asks for what is granted already is not put to the peer.
const nothingChanges = "nothing changes"

// unasked notes that an attempt is over without a question.
func (r *Consumer) unasked(ctx context.Context, peer *v1alpha1.Peer, why string) error {
	attempt, state := peer.Spec.Request.Attempt, api.StateDeclined
	text := peer.Name + " was not asked: " + why
	err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		settle(&s.Outgoing)
		s.Outgoing.Attempt = attempt
		if why == nothingChanges {
			state, s.Outgoing.Why = api.StateNone, ""
			return
		}
		record.Step(&s.Outgoing, peering.EventAsked, "")
		record.Step(&s.Outgoing, peering.EventDeclined, text)
	})
	if err == nil {
		r.Announce(api.Event{Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: peer.Name, Message: text,
			Direction: api.Outgoing, State: state})
	}
	return err
}

// withdraw tells the peer that a question is taken back. One that does not hear it has it lapse.
func (r *Consumer) withdraw(ctx context.Context, peer *v1alpha1.Peer, request string, mismatch bool) {
	if request == "" || !r.Directory.Contact(peer).Reachable() {
		return
	}
	to, err := r.Directory.Client(peer)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	if err := to.Withdraw(ctx, request, mismatch); err != nil {
		r.Log.Info("the peer will find out later that the request was taken back", "peer", peer.Name, "request", request, "err", err)
	}
}

// settle clears the fields of a request from a direction's status, except its state.
func settle(d *v1alpha1.DirectionStatus) {
	d.Code, d.RequestID, d.Expires, d.Confirm = "", "", nil, nil
}

// refused notes that the peer refused the request itself, without asking its owner.
func (r *Consumer) refused(ctx context.Context, peer *v1alpha1.Peer, problem *peering.Problem) error {
	attempt := peer.Spec.Request.Attempt
	why := fmt.Sprintf("%s refused: %s", peer.Name, problem)
	if problem.Code == peering.CodeVersion {
		why = problem.Error()
	}
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		record.Step(&s.Outgoing, peering.EventAsked, "")
		record.Step(&s.Outgoing, peering.EventDeclined, why)
		settle(&s.Outgoing)
		s.Outgoing.Attempt = attempt
	})
}

// brokenOff notes that the peer took this side's nonce and did not reveal its own.
func (r *Consumer) brokenOff(ctx context.Context, peer *v1alpha1.Peer, broken *peering.BrokenOffError) error {
	why := fmt.Sprintf("%s broke off the pairing; ask again", peer.Name)
	if errors.Is(broken, identity.ErrCommitment) {
		r.Announce(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: peer.Name, Message: peer.Name + ": " + broken.Err.Error()})
	}
	return r.over(ctx, peer, peering.EventDeclined, why, broken.Err.Error())
}

// conclude acts on the answer to a request, unless another one was made since.
func (r *Consumer) conclude(ctx context.Context, name, request string, to *peering.Client, outcome peering.Outcome) error {
	var peer v1alpha1.Peer
	if err := r.Fresh.Get(ctx, types.NamespacedName{Name: name}, &peer); err != nil { // the code to compare may not be in the cache yet
		return client.IgnoreNotFound(err)
	}
	if peer.Status.Outgoing.RequestID != request {
		return nil
	}
	switch outcome.State {
	case peering.OutcomeDeclined:
		return r.over(ctx, &peer, peering.EventDeclined, "the owner of "+name+" declined", outcome.Reason)
	case peering.OutcomeExpired:
		why := "nobody at " + name + " answered in time"
		if peer.Status.Outgoing.Confirm != nil {
			why = "what " + name + " accepted was not confirmed here in time"
		}
		return r.over(ctx, &peer, peering.EventExpired, why, outcome.Reason)
	}
	switch {
	case another(&peer, outcome):
		return r.over(ctx, &peer, peering.EventDeclined, name+" answered another question than was asked", "")
	case outcome.Tether != nil:
		return r.considerTether(ctx, &peer, outcome.Tether)
	}
	return r.consider(ctx, &peer, to, outcome.Offer)
}

func (r *Consumer) over(ctx context.Context, peer *v1alpha1.Peer, e peering.Event, why, reason string) error {
	_, err := r.close(ctx, peer, e, "", why, reason)
	return err
}

// close ends a request, once: the owner's word and the peer's answer may arrive together. ended says that it was this call
// that did.
func (r *Consumer) close(ctx context.Context, peer *v1alpha1.Peer, e peering.Event, of api.EventReason, why, reason string) (ended bool, err error) {
	if reason != "" {
		why += ": " + reason
	}
	r.closing.Lock()
	defer r.closing.Unlock()
	was := peer.Status.Outgoing
	if err := r.Fresh.Get(ctx, client.ObjectKeyFromObject(peer), peer); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if now := peer.Status.Outgoing; now.RequestID != was.RequestID || now.Attempt != was.Attempt || now.RequestID == "" && !Asking(now) {
		return false, nil
	}
	if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		record.Step(&s.Outgoing, e, why)
		settle(&s.Outgoing)
	}); err != nil {
		return false, err
	}
	became := api.StateDeclined
	switch {
	case e == peering.EventExpired:
		became = api.StateExpired
	case Word(peer).Withdraw: // its owner need not be told
		became = api.StateNone
	}
	r.Announce(api.Event{Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: peer.Name, Message: why, Reason: of,
		Direction: api.Outgoing, State: became})
	return true, nil
}

// sign turns terms that the owner agreed to into a contract that both signed.
func (r *Consumer) sign(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, old *v1alpha1.Contract, asked corev1.ResourceList, terms contract.Terms, offer *peering.Offer) error {
	id, key := to.Peer() // known since the answer came
	doc := record.NewDocument(r.Identity, r.Name, contract.Party{ID: id, Name: cmp.Or(peer.Spec.DisplayName, record.Label(peer.Name)), Key: key},
		terms, time.Duration(offer.ValidFor)*time.Second)
	if old != nil { // other amounts: the next revision of what is in force
		doc.ID, doc.Revision = old.Spec.ID, old.Spec.Revision+1
	}
	signed, err := r.signWith(ctx, to, &doc)
	if problem, ok := errors.AsType[*peering.Problem](err); ok {
		return r.over(ctx, peer, peering.EventDeclined, peer.Name+" did not sign", problem.Error())
	}
	if err != nil {
		return fmt.Errorf("have %s sign the contract: %w", peer.Name, err)
	}
	if err := r.advertised(ctx, peer, doc, offer); err != nil { // first: the contract's node has its labels
		return err
	}
	return r.record(ctx, peer, old, signed, doc, &asked)
}

// answersLost bounds how many revisions the provider may be ahead, after answers to earlier signatures were lost.
const answersLost = 5

// signWith has a document signed by both sides; what comes back was verified. A provider may hold revisions that this
// side never got, when answers were lost on the way: then this one is the next after those.
func (r *Consumer) signWith(ctx context.Context, to *peering.Client, doc *contract.Document) (contract.Signed, error) {
	first := doc.Revision
	for {
		signed, err := r.signOnce(ctx, to, *doc)
		if first == 1 || doc.Revision == first+answersLost || !errors.Is(err, &peering.Problem{Code: peering.CodeConflict}) {
			return signed, err
		}
		doc.Revision++
	}
}

func (r *Consumer) signOnce(ctx context.Context, to *peering.Client, doc contract.Document) (contract.Signed, error) {
	mine, err := contract.New(doc)
	if err != nil {
		return mine, fmt.Errorf("the offer cannot become a contract: %w", err)
	}
	if err := mine.SignAs(contract.Consumer, r.Identity); err != nil {
		return mine, err
	}
	return to.Sign(ctx, mine)
}

// record keeps what was signed, as a new contract or as the next revision of the old one; the reconciler goes on from it. The
// question that is pending is over if this answers it: then asked is what was asked for, and nil if it is a renewal.
func (r *Consumer) record(ctx context.Context, peer *v1alpha1.Peer, old *v1alpha1.Contract, signed contract.Signed, doc contract.Document, asked *corev1.ResourceList) error {
	ctr, err := record.NewContract(v1alpha1.RoleConsumer, peer, signed, doc)
	if err != nil {
		return err
	}
	if err := record.PutContract(ctx, r.Client, old, ctr); err != nil {
		return fmt.Errorf("keep the contract with %s: %w", peer.Name, err)
	}
	r.Log.Info("contract signed", "peer", peer.Name, "contract", ctr.Spec.ID, "revision", ctr.Spec.Revision, "role", "consumer")
	less := ""
	if asked != nil {
		less = sharing.Less(*asked, ctr.Spec.Resources)
	}
	text := fmt.Sprintf("%s grants %s", peer.Name, record.Granted(ctr.Spec.Resources))
	if less != "" {
		text += " (" + less + ")"
	}
	e := api.Event{Type: api.EventContractSigned, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name, Message: text, Direction: api.Outgoing}
	switch {
	case old == nil:
	case old.Status.Lowering != nil && sharing.Same(old.Status.Lowering.Resources, ctr.Spec.Resources):
		e.Reason = api.ReasonLowered
	case asked == nil && sharing.Same(old.Spec.Resources, ctr.Spec.Resources):
		e.Reason = api.ReasonRenewed
	}
	r.Announce(e)
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		s.Outgoing.Contract = ctr.Name
		if asked != nil {
			inFull(s, less)
		} else if s.Outgoing.RequestID != "" || Asking(s.Outgoing) {
			return // a renewal; the question stands
		}
		why := "signed, the link is being made"
		if record.StateOf(s.Outgoing) == v1alpha1.StateConnected {
			why = ""
		}
		record.Step(&s.Outgoing, peering.EventSigned, why)
		settle(&s.Outgoing)
	})
}

// inFull notes whether all is granted that was asked for; less says what is not.
func inFull(s *v1alpha1.PeerStatus, less string) {
	c := metav1.Condition{Type: v1alpha1.ConditionGrantedInFull, Status: metav1.ConditionTrue, Reason: "AsAsked", Message: "all that was asked for is granted"}
	if less != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "LessIsShared", less
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// advertised shows the offer as it was received.
func (r *Consumer) advertised(ctx context.Context, peer *v1alpha1.Peer, doc contract.Document, offer *peering.Offer) error {
	resources, err := record.Quantities(doc.Resources)
	if err != nil {
		return err
	}
	adv := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: peer.Name}}
	none := r.Fresh.Get(ctx, client.ObjectKeyFromObject(adv), adv) // a cache may not have the one of a moment ago
	if client.IgnoreNotFound(none) != nil {
		return fmt.Errorf("see which offer of %s is kept: %w", peer.Name, none)
	}
	adv.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	adv.Spec = v1alpha1.AdvertisementSpec{
		Peer: peer.Name, Resources: resources, StorageClasses: offer.StorageClasses, NodeLabels: offer.NodeLabels,
		PodSecurity: v1alpha1.PodSecurityLevel(offer.PodSecurity), Prices: offer.Prices, ValidUntil: metav1.NewTime(offer.ValidUntil),
	}
	if api.Lends(offer.Resources) {
		adv.Spec.KeepVolumes = &metav1.Duration{Duration: offer.Keeps()}
	}
	adv.Spec.Reoffer, adv.Spec.Network = offer.Reoffer, sharing.Network(offer.Network)
	if offer.Notice != 0 {
		adv.Spec.Notice = &metav1.Duration{Duration: offer.NoticeTime()}
	}
	adv.Spec.Wake = int32(offer.Wake)
	if none != nil {
		err = r.Client.Create(ctx, adv)
	} else {
		err = r.Client.Update(ctx, adv)
	}
	if err != nil {
		return fmt.Errorf("keep the offer of %s: %w", peer.Name, err)
	}
	return nil
}
