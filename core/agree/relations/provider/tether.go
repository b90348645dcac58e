package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
)

// Company is what this cluster says to laptops that want it to run them.
type Company interface {
	// Weigh says how a laptop's request would be answered, and by which TetherPolicy; why is the reason of a no. For a stranger, pass the Peer
	// that it would become.
	Weigh(ctx context.Context, peer *v1alpha1.Peer) (answer peering.TetherAnswer, policy, why string, err error)
	// Grant is what the users of the laptop get here.
	Grant(ctx context.Context, peer *v1alpha1.Peer) (peering.TetherGrant, error)
}

// Mode says who has all of this laptop.
type Mode interface {
	// Company is the ID of the cluster that runs this laptop or is about to; "" for none. joins: it may have a contract now.
	Company() (id string, joins bool)
}

// nobody is tethered to this cluster, and this cluster to nobody.
type nobody struct{}

func (nobody) Company() (string, bool) { return "", false }

func (nobody) Weigh(context.Context, *v1alpha1.Peer) (peering.TetherAnswer, string, string, error) {
	return peering.TetherNo, "", "it runs no laptops", nil
}

func (nobody) Grant(context.Context, *v1alpha1.Peer) (peering.TetherGrant, error) {
	return peering.TetherGrant{}, peering.Refuse(peering.CodeForbidden, "it runs no laptops", "")
}

// tetheredTo reports whether the peer is the company that runs this laptop, or is about to take it over.
func (p *Provider) tetheredTo(id string) bool {
	company, joins := p.Mode.Company()
	return joins && company == id
}

// tetheredElsewhere is why a tethered laptop offers nothing to other peers.
const tetheredElsewhere = "this laptop is tethered: another cluster has all of it"

// mayAsk refuses requests that the mode of this laptop does not permit.
func (p *Provider) mayAsk(caller peering.Caller, ask peering.TetherAsk) error {
	company, joins := p.Mode.Company()
	switch here := company == caller.ID.String(); {
	case ask == peering.TetherCompany && company == "", ask == peering.TetherCompany && !here:
		return peering.Refuse(peering.CodeNotTethered, "this laptop is not tethered to you", "")
	case ask == peering.TetherCompany && !joins:
		return peering.Refuse(peering.CodeUnavailable, "this laptop is at another step of its tether", "ask again in a moment")
	case ask != peering.TetherCompany && company != "":
		return peering.Refuse(peering.CodeDeclined, tetheredElsewhere, "ask its owner, who can untether it")
	}
	return nil
}

// wholeName is how the policy is called in sentences by which the company that runs this laptop gets all of it.
const wholeName = "tether"

// whole is a policy that offers all of what nodes can allocate, at once. What guests may do stays as the owner's policy for that peer has it.
func whole(owners *v1alpha1.SharingPolicy, nodes corev1.ResourceList) *v1alpha1.SharingPolicy {
	policy := sharing.Default(100)
	if owners != nil {
		policy = owners.DeepCopy()
	}
	policy.Name, policy.Spec.Paused, policy.Spec.AutoAccept = wholeName, false, true
	policy.Spec.Hours, policy.Spec.Only, policy.Spec.Reserve, policy.Spec.MaxPerPeer, policy.Spec.MaxPeers = nil, nil, nil, nil, nil
	policy.Spec.Prices, policy.Spec.Margin = nil, "" // a company runs the laptop as its own
	policy.Spec.Tunnel = v1alpha1.AccessAllow        // which cannot say that it wants none
	policy.Spec.Amounts = map[string]v1alpha1.Amount{}
	for name := range nodes {
		policy.Spec.Amounts[string(name)] = "100%"
	}
	return policy
}

// askTether submits a laptop's request to be tethered to this cluster to its owner, or a TetherPolicy.
func (p *Provider) askTether(ctx context.Context, caller peering.Caller, q peering.Question, code string, compare bool) (string, time.Time, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	peer := asPeer(p.Client.Now(), caller.ID, q.Name)
	answer, policy, why, err := p.Company.Weigh(ctx, peer)
	if err != nil {
		return "", time.Time{}, err
	}
	if answer == peering.TetherNo {
		return "", time.Time{}, peering.Refuse(peering.CodeDeclined, why, "ask whoever runs that cluster for a TetherPolicy")
	}
	request, err := p.keepQuestion(ctx, caller, peer, v1alpha1.PeeringRequestSpec{Tether: true}, q, code, compare)
	if err != nil {
		return "", time.Time{}, err
	}
	grant, err := p.tetherGrant(ctx, peer)
	if err != nil {
		return "", time.Time{}, err
	}
	p.Log.Info("a laptop asks to be run", "peer", peer.Name, "id", caller.ID.String(), "request", request.Name, "answer", string(answer))
	p.Announce(api.Event{
		Type: api.EventRequestReceived, Severity: api.SeverityInfo, Peer: peer.Name, Object: "request/" + request.Name, Message: received(peer.Name, request, grant),
	})
	if answer == peering.TetherYes {
		if err := p.Accept(ctx, request, nil, policy); err != nil {
			p.Log.Warn("policy could not answer", "peer", peer.Name, "err", err)
		}
	}
	return request.Name, request.Spec.Expires.Time, nil
}

// tetherGrant is what accepting a laptop's request grants.
func (p *Provider) tetherGrant(ctx context.Context, peer *v1alpha1.Peer) (v1alpha1.Grant, error) {
	answer, _, why, err := p.Company.Weigh(ctx, peer)
	if err != nil {
		return v1alpha1.Grant{}, err
	}
	if answer == peering.TetherNo {
		return v1alpha1.Grant{Refusal: why, Summary: "nothing: " + why}, nil
	}
	grant, err := p.Company.Grant(ctx, peer)
	if err != nil {
		return v1alpha1.Grant{}, err
	}
	text := "this cluster runs it; its users work nowhere"
	if len(grant.Namespaces) > 0 {
		var where []string
		for _, n := range grant.Namespaces {
			where = append(where, fmt.Sprintf("%s (%s)", n.Name, n.Role))
		}
		text = "this cluster runs it; its users work in " + strings.Join(where, ", ")
	}
	return v1alpha1.Grant{Summary: text}, nil
}

// tether is the outcome for a laptop whose request was accepted.
func (p *Provider) tether(ctx context.Context, peer *v1alpha1.Peer) (peering.Outcome, error) {
	grant, err := p.tetherGrant(ctx, peer)
	if err != nil {
		return peering.Outcome{}, err
	}
	if grant.Refusal != "" {
		return peering.Outcome{State: peering.OutcomeDeclined, Reason: grant.Refusal}, nil
	}
	users, err := p.Company.Grant(ctx, peer)
	return peering.Outcome{State: peering.OutcomeAccepted, Tether: &users}, err
}

// keepQuestion keeps a question as a PeeringRequest. The caller holds p.asking.
func (p *Provider) keepQuestion(ctx context.Context, caller peering.Caller, peer *v1alpha1.Peer, spec v1alpha1.PeeringRequestSpec, q peering.Question, code string, compare bool) (*v1alpha1.PeeringRequest, error) {
	if err := p.makeRoom(ctx, caller); err != nil {
		return nil, err
	}
	if !sharing.Accepted(peer) || compare {
		spec.Code = code
	}
	spec.PeerID, spec.PeerName, spec.Address = caller.ID.String(), peer.Name, from(caller)
	spec.Expires = metav1.NewTime(time.Now().Add(p.Patience).Truncate(time.Second))
	spec.Endpoints = reachableAt(caller.Addr.Addr(), q.Endpoints)
	for tries := 1; ; tries++ {
		request := &v1alpha1.PeeringRequest{
			ObjectMeta: metav1.ObjectMeta{Name: peer.Name + "-" + contract.NewID()[:4], Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
			Spec:       spec,
		}
		err := p.Client.Create(ctx, request)
		if err == nil {
			return request, nil
		}
		if !apierrors.IsAlreadyExists(err) || tries == 5 { // a million names, and some hundred of old requests of one peer
			return nil, fmt.Errorf("keep the request of %s: %w", peer.Name, err)
		}
	}
}
