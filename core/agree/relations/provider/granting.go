package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// Grant is what accepting a request would grant now, computed like the contract itself.
func (p *Provider) Grant(ctx context.Context, r *v1alpha1.PeeringRequest) (v1alpha1.Grant, error) {
	id, err := identity.ParseID(r.Spec.PeerID)
	if err != nil {
		return v1alpha1.Grant{}, fmt.Errorf("request %s: %w", r.Name, err)
	}
	now := p.Client.Now()
	peer := asPeer(now, id, r.Spec.PeerName)
	if r.Spec.Tether {
		return p.tetherGrant(ctx, peer)
	}
	grant, _, _, err := p.grant(ctx, now, peer, r.Spec.Resources, r.Spec.Network)
	return grant, err
}

// WouldGive says what the caller would get if it asked for everything.
func (p *Provider) WouldGive(ctx context.Context, caller peering.Caller) (peering.Supply, error) {
	w, err := p.would(ctx, caller.ID)
	switch {
	case err != nil:
		return peering.Supply{}, err
	case w.No == nil:
		return peering.Supply{State: peering.SupplySome, Resources: record.Amounts(w.Offer)}, nil
	}
	nothing := peering.Supply{State: peering.SupplyNothing, Why: wire.Line(w.No.Reason, maxReason)}
	if w.No.Why == api.NoOfferPaused {
		nothing.State = peering.SupplyPaused
	}
	return nothing, nil
}

// anyStorage is more than anybody has.
var anyStorage = resource.MustParse("1Ei")

// grant also gives the refusal, nil where something is granted, and the contract that is in force with the peer, nil without one.
// What the peer says of it is not asked for.
func (p *Provider) grant(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, asked corev1.ResourceList, network v1alpha1.Network) (v1alpha1.Grant, *sharing.Refusal, *v1alpha1.Contract, error) {
	in, ctr, err := p.offerable(ctx, now, peer, network)
	if err != nil {
		return v1alpha1.Grant{}, nil, nil, err
	}
	in.Asked = asked
	grant, no := sharing.Grant(in)
	grant.Network = sharing.Network(networkFor(network, in.Policy))
	sayNetwork(&grant)
	return grant, no, ctr, nil
}

// weigh is grant for a question that has just come. One to change a contract that would change nothing is not put before the
// owner; who names none may have lost the one he had.
func (p *Provider) weigh(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, changes string, asked corev1.ResourceList, network v1alpha1.Network) (v1alpha1.Grant, *sharing.Refusal, error) {
	grant, no, ctr, err := p.grant(ctx, now, peer, asked, network)
	if err != nil || no != nil {
		return grant, no, err
	}
	changed := ctr
	if ctr != nil && ctr.Spec.ID != changes {
		changed = nil
	}
	if err := unmixed(now, peer, changed, sharing.NetworkTerm(grant.Network)); err != nil {
		return grant, nil, err
	}
	if ctr != nil && ctr.Spec.ID == changes && sharing.Same(grant.Resources, ctr.Spec.Resources) && p.worded(ctx, now, peer, ctr) {
		return grant, no, peering.Refuse(peering.CodeConflict, "nothing would change: it grants "+api.Change(nil, sharing.Words(ctr.Spec.Resources), nil)+
			" already, and no more of what was asked is free", "ask again when more is shared there")
	}
	return grant, no, err
}

// worded reports whether a contract says of prices, of whether it may be offered on, of a notice, and of waking, what the policy says; one that cannot be read is not asked about.
func (p *Provider) worded(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) bool {
	policy, err := p.policyFor(ctx, now, peer)
	doc, unreadable := contract.Parse(ctr.Spec.Document)
	if doc.Network != contract.NetworkNone { // else nothing of others is in it
		policy = sharing.WithMargin(policy, sharing.Reoffered(policy, peer, now.Peers, now.Contracts, time.Now()))
	}
	return err != nil || unreadable != nil || maps.Equal(doc.Prices, sharing.Prices(policy, doc.Resources)) &&
		doc.Reoffer == (sharing.Reoffer(policy) && doc.Network != contract.NetworkNone) && doc.Notice == contract.NoticeOf(sharing.Notice(policy)) && doc.Wake == contract.WakeOf(sharing.Wake(policy))
}

// Accept accepts a request, as a policy that answers by itself or, where that is "", as the owner. No more will be granted than would be at
// this moment, and not more than shown, which is what the one who accepts was shown; nil: nothing was. The error is a *sharing.Refusal when nothing can be granted.
func (p *Provider) Accept(ctx context.Context, r *v1alpha1.PeeringRequest, shown corev1.ResourceList, policy string) error {
	first := true
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !first { // keepGrant was first
			if err := p.Fresh.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
				return err
			}
		}
		if first = false; !Pending(r) {
			return errors.New("it cannot be answered any more")
		}
		grant, err := p.Grant(ctx, r)
		if err != nil {
			return err
		}
		if shown != nil {
			grant = atMost(grant, shown, r.Spec.Resources)
		}
		if grant.Refusal != "" {
			return &sharing.Refusal{Reason: grant.Refusal}
		}
		before := r.DeepCopy()
		r.Status.Answer, r.Status.Policy, r.Status.Grant = v1alpha1.AnswerAccepted, policy, &grant
		r.Status.AnsweredBy = record.AnsweredBy(r.Status.Answer, policy)
		return p.Client.Status().Patch(ctx, r, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("accept request %s: %w", r.Name, err)
	}
	return nil
}

// atMost takes out of a grant what is beyond what somebody was shown.
func atMost(grant v1alpha1.Grant, shown, asked corev1.ResourceList) v1alpha1.Grant {
	resources := corev1.ResourceList{}
	for name, q := range grant.Resources {
		if most := shown[name]; most.Cmp(q) < 0 {
			q = most
		}
		if q.Sign() > 0 {
			resources[name] = q
		}
	}
	grant.Resources = resources
	if grant.Refusal == "" {
		grant.Summary = api.Change(sharing.Words(grant.InForce, resources), sharing.Words(resources), sharing.Words(asked, resources))
		sayNetwork(&grant)
	}
	return grant
}

// sayNetwork adds to a summary that there would be no network.
func sayNetwork(grant *v1alpha1.Grant) {
	if grant.Network == v1alpha1.NetworkNone && grant.Refusal == "" {
		grant.Summary += ", with no network between the clusters"
	}
}

// keepGrant writes down what accepting would give, for those who look at the object. An answer that comes meanwhile is not
// given more by it: then the object is another one. What could be granted nothing of, as while the node of this laptop was starting, and now can,
// is answered by the policy that would have answered then.
func (p *Provider) keepGrant(ctx context.Context, r *v1alpha1.PeeringRequest) error {
	grant, err := p.Grant(ctx, r)
	if err != nil || equality.Semantic.DeepEqual(r.Status.Grant, &grant) {
		return err
	}
	waited := r.Status.Grant != nil && r.Status.Grant.Refusal != "" && grant.Refusal == ""
	err = p.putGrant(ctx, r, grant)
	if id, wrong := identity.ParseID(r.Spec.PeerID); err == nil && wrong == nil && waited && !r.Spec.Tether {
		now := p.Client.Now()
		p.byPolicy(ctx, now, asPeer(now, id, r.Spec.PeerName), r)
	}
	return err
}

func (p *Provider) putGrant(ctx context.Context, r *v1alpha1.PeeringRequest, grant v1alpha1.Grant) error {
	before := r.DeepCopy()
	r.Status.Grant = &grant
	return p.Client.Status().Patch(ctx, r, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// waiting are the requests that wait for an answer: what accepting them gives follows from policies, nodes and contracts.
func (p *Provider) waiting(context.Context, client.Object) (all []ctrl.Request) {
	for _, r := range p.Client.Now().Requests {
		if Pending(r) {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)})
		}
	}
	return all
}

// allocatable lets those events of nodes pass by which this machine has more or less to give than before.
var allocatable = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*corev1.Node)
	is, ok2 := e.ObjectNew.(*corev1.Node)
	return ok && ok2 && (v1alpha1.Fenced(was) != v1alpha1.Fenced(is) || !equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable))
}}

// promising lets those events of contracts pass by which more or less is promised than before.
var promising = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*v1alpha1.Contract)
	is, ok2 := e.ObjectNew.(*v1alpha1.Contract)
	return ok && ok2 && (was.Spec.Revision != is.Spec.Revision || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil))
}}

// Withdraw takes a request back that the caller made; one that is not there is no error.
func (p *Provider) Withdraw(ctx context.Context, caller peering.Caller, id string, mismatch bool) error {
	r, err := p.request(ctx, caller, id)
	if err != nil {
		if errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
			return nil
		}
		return err
	}
	if !Pending(r) && r.Status.Answer != v1alpha1.AnswerAccepted {
		return nil
	}
	if err := client.IgnoreNotFound(p.Client.Delete(ctx, r)); err != nil {
		return fmt.Errorf("take back request %s: %w", r.Name, err)
	}
	p.Log.Info("request withdrawn", "peer", r.Spec.PeerName, "request", r.Name)
	if mismatch {
		p.Announce(api.Event{
			Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: r.Spec.PeerName, Object: "request/" + r.Name,
			Message: r.Spec.PeerName + " took its request back: its owner found another code than the one here. Was it mistyped? Then have it ask again; else somebody may stand in between",
		})
	}
	p.Announce(api.Event{
		Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: r.Spec.PeerName, Object: "request/" + r.Name,
		Message: r.Spec.PeerName + " took its request back", Direction: api.Incoming, State: api.StateNone,
	})
	return nil
}
