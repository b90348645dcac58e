package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/agree/supply"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/base/power"
	"kith.dev/core/base/thermal"
	"kith.dev/core/trust/identity"
)

// Host is the provider's machinery behind contracts.
type Host interface {
	// EndContract clears away everything under the contract; it may be called again until it gives nil.
	EndContract(ctx context.Context, ctr *v1alpha1.Contract) error
	// SetHome tells whether a consumer answers, whose pods run here as guests; called again with the same it does nothing.
	SetHome(peer *v1alpha1.Peer, there presence.Presence)
}

// Config is what a Provider needs.
type Config struct {
	Client   *ledger.Ledger
	Fresh    client.Reader // the API server, for what is countersigned
	Identity *identity.Identity
	Name     string        // of this cluster
	Patience time.Duration // how long a question waits for an answer
	Host     Host
	Disk     supply.Disk
	Laptop   func() sharing.Laptop // how this machine is used; nil: on mains, and nothing else is known
	NoGuests string                // why guests cannot be taken in here; empty: they can
	Company  Company               // nil: no laptop is run
	Mode     Mode                  // nil: always autonomous
	Linker   *link.Linker
	Notices  *Notices
	Announce func(api.Event)
	Log      *slog.Logger
}

// Provider answers the peers that want something of this cluster. It does the work of the peering server's Handler, keeps the direction
// in which this cluster provides, and is the reconciler of PeeringRequests.
type Provider struct {
	Config

	answers notify.Broadcast // notifies whenever a PeeringRequest changed
	// signing is held while an offer becomes a contract: two peers must not be promised the same core.
	signing sync.Mutex
	// asking is held while a request takes one of the places there are.
	asking sync.Mutex

	signed   *cache.Expiring // by consumer, when something was signed with it last; see mayRenew
	compares sync.Map        // by ID, of peers that are known: the limiter of Contracts
}

// New makes a Provider.
func New(cfg Config) *Provider {
	if cfg.Mode == nil {
		cfg.Mode = nobody{}
	}
	if cfg.Laptop == nil {
		cfg.Laptop = func() sharing.Laptop {
			const nobody = "nobody watches it"
			return sharing.Laptop{Power: power.State{OnMains: true, Battery: power.None}, Heat: thermal.State{Unknown: nobody}, IdleUnknown: nobody, MeteredUnknown: nobody}
		}
	}
	if cfg.Company == nil {
		cfg.Company = nobody{}
	}
	return &Provider{Config: cfg, signed: cache.NewExpiring()}
}

// Recognise says whether the caller is somebody here: its key was compared, or a contract with it is in force.
func (p *Provider) Recognise(_ context.Context, caller peering.Caller) bool {
	peer := p.Client.Now().Peer(caller.ID.String())
	return peer != nil && (sharing.Accepted(peer) || peer.Status.Incoming.Contract != "" || peer.Status.Outgoing.Contract != "")
}

// Compared says whether the owner compared the caller's key.
func (p *Provider) Compared(_ context.Context, caller peering.Caller) bool {
	return sharing.Accepted(p.Client.Now().Peer(caller.ID.String()))
}

// Ask puts the caller's question before the owner. A newer question of the same peer takes the older one's place. The owner
// is shown the code unless this cluster's own record knows the key; to one that it knows, also when the asker's owner is.
func (p *Provider) Ask(ctx context.Context, caller peering.Caller, q peering.Question, code string, compare bool) (string, time.Time, error) {
	if err := p.mayAsk(caller, q.Tether); err != nil {
		return "", time.Time{}, err
	}
	if q.Tether == peering.TetherLaptop {
		return p.askTether(ctx, caller, q, code, compare)
	}
	if p.NoGuests != "" {
		return "", time.Time{}, peering.Refuse(peering.CodeDeclined, "it can take no guests in: "+p.NoGuests, "")
	}
	resources, err := record.Quantities(q.Resources)
	if err != nil {
		return "", time.Time{}, err
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	now := p.Client.Now()
	peer := asPeer(now, caller.ID, q.Name)
	grant, no, err := p.weigh(ctx, now, peer, q.Contract, resources, sharing.Network(q.Network))
	if err != nil {
		return "", time.Time{}, err
	}
	if no != nil && !no.Passes && q.Tether == peering.TetherNone { // a question that no yes could answer
		p.Announce(api.Event{
			Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: peer.Name, Direction: api.Incoming, State: api.StateDeclined,
			Message: peer.Name + " asked to use this laptop, and was told that there is nothing for it: " + no.Reason,
		})
		return "", time.Time{}, peering.Refuse(peering.CodeDeclined, "there is nothing for this cluster there now: "+no.Reason, "ask its owner to share, and then again")
	}
	request, err := p.keepQuestion(ctx, caller, peer, v1alpha1.PeeringRequestSpec{Resources: resources, Network: sharing.Network(q.Network)}, q, code, compare)
	if err != nil {
		return "", time.Time{}, err
	}
	p.Log.Info("request received", "peer", peer.Name, "id", caller.ID.String(), "request", request.Name, "grant", grant.Summary)
	if q.Tether == peering.TetherNone { // the owner tethered this laptop, and is not asked again
		p.Announce(api.Event{
			Type: api.EventRequestReceived, Severity: api.SeverityInfo, Peer: peer.Name, Object: "request/" + request.Name,
			Message: received(peer.Name, request, grant),
		})
	}
	if no == nil || !no.Passes {
		p.byPolicy(ctx, now, peer, request)
	} else if err := p.putGrant(ctx, request, grant); err != nil { // it waits, see keepGrant
		p.Log.Warn("a policy may not answer this request when something can be granted", "peer", peer.Name, "request", request.Name, "err", err)
	}
	return request.Name, request.Spec.Expires.Time, nil
}

// byPolicy answers a request where a policy does so at once; what can be granted nothing of is declined with the reason.
func (p *Provider) byPolicy(ctx context.Context, now *ledger.Snapshot, peer *v1alpha1.Peer, request *v1alpha1.PeeringRequest) {
	policy, err := p.policyFor(ctx, now, peer)
	if err != nil || policy == nil || !policy.Spec.AutoAccept || policy.Spec.Paused {
		return
	}
	err = p.Accept(ctx, request, nil, policy.Name)
	if nothing, ok := errors.AsType[*sharing.Refusal](err); ok {
		err = answer(ctx, p.Client, request, v1alpha1.AnswerDeclined, policy.Name, nothing.Reason)
	}
	if err != nil {
		p.Log.Warn("policy could not answer", "peer", peer.Name, "err", err)
	}
}

func received(peer string, r *v1alpha1.PeeringRequest, grant v1alpha1.Grant) string {
	text := fmt.Sprintf("%s asks to use this laptop, and would get %s", peer, grant.Summary)
	switch {
	case r.Spec.Tether:
		text = fmt.Sprintf("%s asks to be run by this cluster: %s", peer, grant.Summary)
	case len(grant.InForce) > 0:
		text = fmt.Sprintf("%s asks to change what it uses of this laptop, and would get %s", peer, grant.Summary)
	}
	if r.Spec.Code != "" {
		text += "; code " + r.Spec.Code
	}
	return text
}

// asPeer is a caller's Peer, or, for a stranger, what it would be: strangers leave no object here before the owner accepted them.
func asPeer(now *ledger.Snapshot, id identity.ID, name string) *v1alpha1.Peer {
	if peer := now.Peer(id.String()); peer != nil {
		return peer
	}
	return record.Stranger(now, id, name)
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
	err := p.Client.Get(ctx, client.ObjectKey{Name: id}, &request)
	if apierrors.IsNotFound(err) || err == nil && request.Spec.PeerID != caller.ID.String() {
		return nil, peering.Refuse(peering.CodeNotFound, "there is no request "+id+" here", "ask again")
	}
	return &request, err
}
