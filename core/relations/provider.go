package relations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
	"kith.dev/core/sharing"
)

// Host is the provider's machinery behind contracts.
type Host interface {
	// EndContract clears away everything under the contract; it may be called again until it gives nil.
	EndContract(ctx context.Context, ctr *v1alpha1.Contract) error
}

// Provider answers the peers that want something of this cluster. It does the work of the peering server's Desk,
// and is the reconciler of PeeringRequests and of contracts in which this cluster provides.
type Provider struct {
	client   client.Client
	fresh    client.Reader // past the cache, which may be behind what this very process wrote
	me       *identity.Identity
	name     string
	patience time.Duration // how long a question waits for an answer
	host     Host
	linker   *link.Linker
	notices  *Notices
	announce func(api.Event)
	log      *slog.Logger

	answers Bell // rings whenever a PeeringRequest changed
	// signing is held while an offer becomes a contract: two peers must not be promised the same core.
	signing sync.Mutex
	// asking is held while a request takes one of the places there are.
	asking sync.Mutex

	mu    sync.Mutex
	made  map[string]made               // requests of the last moments, by name
	last  map[identity.ID]time.Time     // when something was signed with a consumer last; see mayRenew
	books map[identity.ID]*rate.Limiter // of Contracts, for peers that are known
}

// NewProvider makes a Provider; patience is how long a question waits for an answer.
func NewProvider(c client.Client, fresh client.Reader, me *identity.Identity, name string, patience time.Duration, host Host, linker *link.Linker, notices *Notices, announce func(api.Event), log *slog.Logger) *Provider {
	return &Provider{
		client: c, fresh: fresh, me: me, name: name, patience: patience, host: host, linker: linker, notices: notices, announce: announce, log: log,
		made: map[string]made{}, last: map[identity.ID]time.Time{}, books: map[identity.ID]*rate.Limiter{},
	}
}

// Recognise says whether the caller is somebody here: its key was compared, or a contract with it is in force.
func (p *Provider) Recognise(ctx context.Context, caller peering.Caller) bool {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	if err != nil || peer == nil {
		return false
	}
	has := func(d v1alpha1.DirectionStatus) bool { return peering.HasContract(peering.State(record.StateOf(d))) }
	return sharing.Accepted(peer) || has(peer.Status.Incoming) || has(peer.Status.Outgoing)
}

// Compared says whether the owner compared the caller's key.
func (p *Provider) Compared(ctx context.Context, caller peering.Caller) bool {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	return err == nil && sharing.Accepted(peer)
}

// Ask puts the caller's question before the owner. A newer question of the same peer takes the older one's place. The owner
// is shown the code unless this cluster's own record knows the key; to one that it knows, also when the asker's owner is.
func (p *Provider) Ask(ctx context.Context, caller peering.Caller, q peering.Question, code string, compare bool) (string, time.Time, error) {
	resources, err := record.Quantities(q.Resources)
	if err != nil {
		return "", time.Time{}, err
	}
	peer, err := p.callerAsPeer(ctx, caller, q.Name)
	if err != nil {
		return "", time.Time{}, err
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	grant, err := p.weigh(ctx, peer, q.Contract, resources)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := p.makeRoom(ctx, caller); err != nil {
		return "", time.Time{}, err
	}
	if sharing.Accepted(peer) && !compare {
		code = ""
	}
	request := &v1alpha1.PeeringRequest{
		ObjectMeta: metav1.ObjectMeta{Name: requestName(peer.Name), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: v1alpha1.PeeringRequestSpec{
			PeerID: caller.ID.String(), PeerName: peer.Name, Resources: resources, Code: code,
			Expires: metav1.NewTime(time.Now().Add(p.patience).Truncate(time.Second)), Endpoints: reachableAt(caller.Addr.Addr(), q.Endpoints),
			Address: from(caller),
		},
	}
	if err := p.client.Create(ctx, request); err != nil {
		return "", time.Time{}, fmt.Errorf("keep the request of %s: %w", peer.Name, err)
	}
	p.remember(request.Name, caller.ID)
	p.log.Info("request received", "peer", peer.Name, "id", caller.ID.String(), "request", request.Name, "grant", grant.Summary)
	p.announce(api.Event{
		Type: api.EventRequestReceived, Severity: api.SeverityInfo, Peer: peer.Name, Object: "request/" + request.Name,
		Message: received(peer.Name, request, grant),
	})
	if policy, err := p.policyFor(ctx, peer); err == nil && policy != nil && policy.Spec.AutoAccept && !policy.Spec.Paused {
		if err := p.byPolicy(ctx, request, policy); err != nil {
			p.log.Warn("policy could not answer", "peer", peer.Name, "err", err)
		}
	}
	return request.Name, request.Spec.Expires.Time, nil
}

// byPolicy answers a request as the policy says; what can be granted nothing of is declined with the reason.
func (p *Provider) byPolicy(ctx context.Context, request *v1alpha1.PeeringRequest, policy *v1alpha1.SharingPolicy) error {
	err := p.Accept(ctx, request, nil, policyName+policy.Name)
	var nothing *sharing.Refusal
	if errors.As(err, &nothing) {
		return answer(ctx, p.client, request, v1alpha1.AnswerDeclined, policyName+policy.Name, nothing.Reason)
	}
	return err
}

func received(peer string, r *v1alpha1.PeeringRequest, grant v1alpha1.Grant) string {
	asks := "asks to use this laptop"
	if len(grant.InForce) > 0 {
		asks = "asks to change what it uses of this laptop"
	}
	text := fmt.Sprintf("%s %s, and would get %s", peer, asks, grant.Summary)
	if r.Spec.Code != "" {
		text += "; code " + r.Spec.Code
	}
	return text
}

// requestName is short enough to type: the peer's name and four letters.
func requestName(peer string) string { return peer + "-" + contract.NewID()[:4] }

// callerAsPeer is the caller's Peer, or, for a stranger, what it would be: strangers leave no object here
// before the owner accepted them.
func (p *Provider) callerAsPeer(ctx context.Context, caller peering.Caller, name string) (*v1alpha1.Peer, error) {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	if peer != nil || err != nil {
		return peer, err
	}
	var list v1alpha1.PeerList
	if err := p.client.List(ctx, &list); err != nil {
		return nil, err
	}
	taken := func(n string) bool {
		for _, other := range list.Items {
			if other.Name == n {
				return true
			}
		}
		return false
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: record.NameFor(caller.ID, name, taken)}, Spec: v1alpha1.PeerSpec{ID: caller.ID.String()}}, nil
}

// Outcome waits for the answer to a request of the caller.
func (p *Provider) Outcome(ctx context.Context, caller peering.Caller, id string) (peering.Outcome, error) {
	for {
		rung := p.answers.Wait()
		request, err := p.request(ctx, caller, id)
		if err != nil {
			return peering.Outcome{}, err
		}
		switch {
		case request.Status.Answer == v1alpha1.AnswerAccepted:
			return p.offer(ctx, caller, request)
		case request.Status.Answer == v1alpha1.AnswerDeclined:
			return peering.Outcome{State: peering.OutcomeDeclined, Reason: request.Status.Reason}, nil
		case !Pending(request):
			return peering.Outcome{State: peering.OutcomeExpired, Reason: "nobody answered in time"}, nil
		}
		select {
		case <-rung:
		case <-time.After(time.Until(request.Spec.Expires.Time)):
		case <-ctx.Done():
			return peering.Outcome{State: peering.OutcomePending}, nil
		}
	}
}

// request reads a request of the caller; those of others do not exist for it.
func (p *Provider) request(ctx context.Context, caller peering.Caller, id string) (*v1alpha1.PeeringRequest, error) {
	var request v1alpha1.PeeringRequest
	key := client.ObjectKey{Name: id}
	err := p.client.Get(ctx, key, &request)
	if apierrors.IsNotFound(err) && p.madeLately(id, caller.ID) {
		err = p.fresh.Get(ctx, key, &request)
	}
	if apierrors.IsNotFound(err) || err == nil && request.Spec.PeerID != caller.ID.String() {
		return nil, peering.Refuse(peering.CodeNotFound, "there is no request "+id+" here", "ask again")
	}
	return &request, err
}

func (p *Provider) offer(ctx context.Context, caller peering.Caller, request *v1alpha1.PeeringRequest) (peering.Outcome, error) {
	peer, err := p.callerAsPeer(ctx, caller, request.Spec.PeerName)
	if err != nil {
		return peering.Outcome{}, err
	}
	resources, policy, err := p.terms(ctx, peer, request)
	var refusal *sharing.Refusal
	if errors.As(err, &refusal) {
		return peering.Outcome{State: peering.OutcomeDeclined, Reason: refusal.Reason}, nil
	}
	if err != nil {
		return peering.Outcome{}, err
	}
	return peering.Outcome{State: peering.OutcomeAccepted, Offer: &peering.Offer{
		Terms:      contract.Terms{Resources: record.Amounts(resources), PodSecurity: string(sharing.Level(policy))},
		NodeLabels: p.nodeLabels(ctx),
		ValidUntil: request.Spec.Expires.Time,
		ValidFor:   int64(sharing.Validity(policy) / time.Second),
	}}, nil
}

// nodeLabels are what a scheduler elsewhere needs to know of the machine.
func (p *Provider) nodeLabels(ctx context.Context) map[string]string {
	labels := map[string]string{}
	var nodes corev1.NodeList
	if p.client.List(ctx, &nodes) != nil {
		return labels
	}
	for _, node := range nodes.Items {
		if _, virtual := node.Labels[v1alpha1.LabelPeer]; virtual {
			continue
		}
		for _, key := range []string{corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			if v := node.Labels[key]; v != "" {
				labels[key] = v
			}
		}
	}
	return labels
}

// terms is what the peer can have now, and under which policy: by a request that the owner accepted, or, without one, by a
// renewal. That is nothing new, so a policy that is paused lets it pass.
func (p *Provider) terms(ctx context.Context, peer *v1alpha1.Peer, request *v1alpha1.PeeringRequest) (corev1.ResourceList, *v1alpha1.SharingPolicy, error) {
	in, _, err := p.offerable(ctx, peer)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case request != nil:
		in.Asked = request.Spec.Resources
		if grant := request.Status.Grant; grant != nil { // what the owner started since his yes takes nothing of it back
			in.Most, in.Supply.Own = &grant.Resources, nil
		}
	case in.Policy != nil && in.Policy.Spec.Paused:
		in.Policy = in.Policy.DeepCopy()
		in.Policy.Spec.Paused = false
	}
	resources, err := sharing.Offer(in)
	return resources, in.Policy, err
}

// offerable is what an offer to the peer follows from, but for what it asks, and the contract in force with it; nil without one.
func (p *Provider) offerable(ctx context.Context, peer *v1alpha1.Peer) (in sharing.OfferInput, ctr *v1alpha1.Contract, err error) {
	if in.Policy, err = p.policyFor(ctx, peer); err != nil {
		return in, nil, err
	}
	contracts, err := record.Contracts(ctx, p.client, peer.Name, v1alpha1.RoleProvider)
	if err != nil {
		return in, nil, err
	}
	ctr = record.Live(slices.DeleteFunc(contracts, func(ctr v1alpha1.Contract) bool { return record.OfAnotherKey(&ctr, peer) }))
	if ctr != nil {
		in.Has = ctr.Spec.Resources
	}
	if in.Supply, err = Supply(ctx, p.client); err != nil || in.Policy == nil {
		return in, ctr, err
	}
	in.Supply.Granted, in.InForce, err = p.promised(ctx, in.Policy, peer)
	return in, ctr, err
}

func (p *Provider) policyFor(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.SharingPolicy, error) {
	var policies v1alpha1.SharingPolicyList
	if err := p.client.List(ctx, &policies); err != nil {
		return nil, fmt.Errorf("read the sharing policies: %w", err)
	}
	return sharing.Select(policies.Items, peer), nil
}

// promised are the amounts of contracts with other peers: all, and those under the same policy.
func (p *Provider) promised(ctx context.Context, policy *v1alpha1.SharingPolicy, peer *v1alpha1.Peer) (all, same []corev1.ResourceList, err error) {
	var contracts v1alpha1.ContractList
	if err := p.client.List(ctx, &contracts); err != nil {
		return nil, nil, err
	}
	for _, ctr := range contracts.Items {
		if ctr.Spec.Role != v1alpha1.RoleProvider || ctr.Spec.Peer == peer.Name {
			continue
		}
		all = append(all, ctr.Spec.Resources)
		var other v1alpha1.Peer
		if err := p.client.Get(ctx, client.ObjectKey{Name: ctr.Spec.Peer}, &other); client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
		if used, err := p.policyFor(ctx, &other); err != nil || used == nil || used.Name != policy.Name {
			continue
		}
		same = append(same, ctr.Spec.Resources)
	}
	return all, same, nil
}

// Sign countersigns a contract that the caller signed, if it says what was offered to it.
func (p *Provider) Sign(ctx context.Context, caller peering.Caller, signed contract.Signed) (contract.Signed, error) {
	doc, err := signed.VerifyAs(contract.Consumer)
	if err != nil {
		return signed, peering.Refuse(peering.CodeBadRequest, err.Error(), "sign the document again")
	}
	if doc.Consumer.ID != caller.ID || doc.Provider.ID != p.me.ID() {
		return signed, peering.Refuse(peering.CodeBadRequest, "the contract is between other clusters", "name both as they are")
	}
	if again, ok := p.answered(ctx, caller, signed); ok {
		return again, nil
	}
	if _, err := p.groundsFor(ctx, caller, doc); err != nil { // who has none waits for nobody, and nobody for him
		return signed, err
	}
	p.signing.Lock()
	defer p.signing.Unlock()
	on, err := p.groundsFor(ctx, caller, doc)
	if err != nil {
		return signed, err
	}
	name := doc.Consumer.Name
	if on.request != nil {
		name = on.request.Spec.PeerName
	}
	stranger, err := p.callerAsPeer(ctx, caller, name)
	if err != nil {
		return signed, err
	}
	if err := p.check(ctx, stranger, on.request, doc); err != nil {
		return signed, err
	}
	if err := signed.SignAs(contract.Provider, p.me); err != nil {
		return signed, err
	}
	err = p.keep(ctx, caller, on, signed, doc)
	p.signedWith(caller.ID)
	if err != nil || on.request == nil {
		return signed, err
	}
	return signed, client.IgnoreNotFound(p.client.Delete(ctx, on.request))
}

// acceptedRequest is what entitles a caller to a contract.
func (p *Provider) acceptedRequest(ctx context.Context, id identity.ID) (*v1alpha1.PeeringRequest, error) {
	var list v1alpha1.PeeringRequestList
	if err := p.client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.PeerID == id.String() && r.Status.Answer == v1alpha1.AnswerAccepted && time.Now().Before(r.Spec.Expires.Time) {
			return r, nil
		}
	}
	return nil, peering.Refuse(peering.CodeNoContract, "nothing was accepted that this contract could be about", "ask first")
}

// check holds a document against what the peer may have at this moment; see terms.
func (p *Provider) check(ctx context.Context, peer *v1alpha1.Peer, request *v1alpha1.PeeringRequest, doc contract.Document) error {
	offered, policy, err := p.terms(ctx, peer, request)
	var refusal *sharing.Refusal
	if errors.As(err, &refusal) {
		return peering.Refuse(peering.CodeDeclined, refusal.Reason, "")
	}
	if err != nil {
		return err
	}
	want, err := record.Quantities(doc.Resources)
	if err != nil {
		return peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	if err := timely(doc, time.Now(), sharing.Validity(policy)); err != nil {
		return err
	}
	switch over := record.Exceeds(want, offered); {
	case over != "":
		q := offered[corev1.ResourceName(over)]
		return peering.Refuse(peering.CodeDeclined, fmt.Sprintf("the contract grants %s %s, the offer is %s", doc.Resources[over], over, q.String()), "ask again")
	case doc.PodSecurity != string(sharing.Level(policy)):
		return peering.Refuse(peering.CodeDeclined, "the contract's pod security level is not the offered "+string(sharing.Level(policy)), "ask again")
	case len(doc.Prices) > 0 || len(doc.StorageClasses) > 0:
		return peering.Refuse(peering.CodeDeclined, "the contract names prices or storage classes that were not offered", "ask again")
	}
	return nil
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

// keep writes the signed contract down and makes the stranger a Peer.
func (p *Provider) keep(ctx context.Context, caller peering.Caller, on grounds, signed contract.Signed, doc contract.Document) error {
	name, endpoints := doc.Consumer.Name, []string(nil)
	if on.request != nil {
		name, endpoints = on.request.Spec.PeerName, on.request.Spec.Endpoints
	}
	peer, err := record.EnsurePeer(ctx, p.client, caller.ID, name, endpoints, v1alpha1.SourceManual)
	if err != nil {
		return err
	}
	old, err := record.Contracts(ctx, p.client, peer.Name, v1alpha1.RoleProvider)
	if err != nil {
		return err
	}
	for i := range old { // a consumer that lost its memory asks anew: what it had ends
		if on.old != nil && old[i].Name == on.old.Name {
			continue
		}
		if err := client.IgnoreNotFound(p.client.Delete(ctx, &old[i])); err != nil {
			return err
		}
	}
	ctr, err := record.NewContract(v1alpha1.RoleProvider, peer, signed, doc)
	if err != nil {
		return err
	}
	if err := record.PutContract(ctx, p.client, on.old, ctr); err != nil {
		return fmt.Errorf("keep the contract with %s: %w", peer.Name, err)
	}
	if on.old == nil {
		if err := p.welcome(ctx, peer, ctr); err != nil {
			return err
		}
	}
	if on.request != nil && !sharing.Accepted(peer) && p.ownersWord(ctx, on.request) {
		if err := record.PatchStatus(ctx, p.client, peer, func(s *v1alpha1.PeerStatus) { record.AcceptKey(s, "OwnerAccepted") }); err != nil {
			return err
		}
	}
	p.log.Info("contract signed", "peer", peer.Name, "contract", ctr.Spec.ID, "revision", ctr.Spec.Revision, "role", "provider")
	p.announce(api.Event{
		Type: api.EventContractSigned, Severity: api.SeverityInfo, Peer: peer.Name, Object: "contract/" + ctr.Name,
		Message: fmt.Sprintf("%s may use %s", peer.Name, record.Granted(ctr.Spec.Resources)), Direction: api.Incoming,
	})
	return nil
}

// policyName begins the answeredBy of a request that a SharingPolicy answered.
const policyName = "policy "

// ownersWord says whether an accepted request means that the owner compared the key: by the code in it, or by the whole ID in
// the policy that answers. A policy that accepts whoever comes compares nothing.
func (p *Provider) ownersWord(ctx context.Context, r *v1alpha1.PeeringRequest) bool {
	name, auto := strings.CutPrefix(r.Status.AnsweredBy, policyName)
	if !auto {
		return r.Spec.Code != ""
	}
	var policy v1alpha1.SharingPolicy
	return p.client.Get(ctx, client.ObjectKey{Name: name}, &policy) == nil && slices.Contains(policy.Spec.Peers, r.Spec.PeerID)
}

// welcome notes where the new contract stands.
func (p *Provider) welcome(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) error {
	return record.PatchStatus(ctx, p.client, peer, func(s *v1alpha1.PeerStatus) {
		s.Incoming = v1alpha1.DirectionStatus{}
		record.Step(&s.Incoming, peering.EventAsked, "")
		record.Step(&s.Incoming, peering.EventSigned, "signed, the link is being made")
		s.Incoming.Contract = ctr.Name
	})
}

// Contracts are the contracts with the caller, those that are ending too, for comparing the books.
func (p *Provider) Contracts(ctx context.Context, caller peering.Caller) ([]peering.ContractRef, error) {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	lately := peer == nil && p.signedLately(caller.ID) // its Peer may be younger than the cache: not to know it ends the contract
	if err != nil || peer == nil && !lately {
		return nil, err
	}
	if !p.mayCompare(caller.ID) {
		return nil, peering.Refuse(peering.CodeRateLimited, "the contracts were asked for too often", "wait a second")
	}
	if lately {
		if peer, err = record.PeerByID(ctx, p.fresh, caller.ID); err != nil || peer == nil {
			return nil, err
		}
	}
	var list v1alpha1.ContractList
	if err := p.fresh.List(ctx, &list); err != nil { // a cache that is behind would end a contract signed just now
		return nil, err
	}
	var refs []peering.ContractRef
	for _, ctr := range list.Items {
		if ctr.Spec.Peer != peer.Name {
			continue
		}
		role := contract.Provider
		if ctr.Spec.Role == v1alpha1.RoleConsumer {
			role = contract.Consumer
		}
		state := peering.State(ctr.Status.State)
		switch {
		case ctr.DeletionTimestamp != nil: // not cleared away yet
			state = peering.Ending
		case state == "":
			state = peering.Contracted
		}
		refs = append(refs, peering.ContractRef{ID: ctr.Spec.ID, Revision: ctr.Spec.Revision, Role: role, State: state})
	}
	return refs, nil
}

// End ends a contract with the caller, whichever side it is on; what is not there has ended.
func (p *Provider) End(ctx context.Context, caller peering.Caller, id string) error {
	peer, err := record.PeerByID(ctx, p.client, caller.ID)
	if err != nil || peer == nil {
		return err
	}
	var list v1alpha1.ContractList
	if err := p.client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		ctr := &list.Items[i]
		if ctr.Spec.Peer != peer.Name || ctr.Spec.ID != id || ctr.DeletionTimestamp != nil {
			continue
		}
		p.log.Info("peer ended the contract", "peer", peer.Name, "contract", id)
		if err := record.SetContract(ctx, p.client, ctr, v1alpha1.StateEnding, record.EndedBy(peer.Name)); err != nil {
			return err
		}
		return client.IgnoreNotFound(p.client.Delete(ctx, ctr))
	}
	return nil
}

// Link agrees on the network with the caller.
func (p *Provider) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return p.linker.Answer(ctx, caller, theirs)
}
