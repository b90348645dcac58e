package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/identity"
)

// Requests gives the pending ones of both directions, oldest first.
func (b *Backend) Requests(ctx context.Context) ([]api.Request, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	now := c.Client.Now()
	var list []api.Request
	for _, r := range now.Requests {
		if provider.Pending(r) {
			v, err := c.wouldGet(ctx, r)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	}
	for _, k := range b.Directory.All() {
		if !asks(k.Peer) {
			continue
		}
		inForce := asking.InForce(now, k.Peer)
		out := k.Peer.Status.Outgoing
		r := api.Request{
			ID: out.RequestID, Peer: k.Name, PeerID: k.ID.String(), Direction: api.Outgoing, Code: out.Code,
			Asked: sharing.Words(asking.Wanted(k.Peer, inForce)), State: api.StateRequested, Address: k.Peer.Status.Endpoint,
			Created: askedAt(k.Peer), Tether: k.Peer.Spec.Request.Tether,
		}
		if r.Tether {
			r.Asked = nil
		} else if inForce != nil {
			r.InForce = sharing.Words(inForce.Grants(time.Now()), asking.Wanted(k.Peer, inForce))
		}
		if out.Expires != nil {
			r.Expires = out.Expires.Time
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b api.Request) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// asks reports whether a question to a peer waits for an answer: a first one, or one to change the contract in force.
func asks(peer *v1alpha1.Peer) bool {
	if peer == nil || peer.Spec.Request == nil {
		return false
	}
	out := peer.Status.Outgoing
	return out.State == v1alpha1.StateRequested || out.RequestID != "" || asking.Asking(out)
}

// askedAt is when the question was put: attempts are counted in milliseconds of the clock, if not by hand.
func askedAt(peer *v1alpha1.Peer) time.Time {
	out := peer.Status.Outgoing
	if at := time.UnixMilli(out.Attempt); time.Since(at).Abs() < 24*time.Hour {
		return at
	}
	if out.Since != nil {
		return out.Since.Time
	}
	return time.Time{}
}

// incoming shows a request of a peer, and what a yes gives, or gave.
func incoming(r *v1alpha1.PeeringRequest, grant *v1alpha1.Grant) api.Request {
	v := api.Request{
		ID: r.Name, Peer: r.Spec.PeerName, PeerID: r.Spec.PeerID, Direction: api.Incoming, Code: r.Spec.Code,
		Asked: sharing.Words(r.Spec.Resources), State: api.StateRequested, Created: r.CreationTimestamp.Time, Expires: r.Spec.Expires.Time,
		Address: r.Spec.Address, Tether: r.Spec.Tether,
	}
	switch {
	case grant == nil:
	case r.Spec.Tether:
		if v.Refusal = grant.Refusal; v.Refusal == "" {
			v.Means = grant.Summary
		}
	default:
		v.Asked, v.Granted = sharing.Words(r.Spec.Resources, grant.Resources), sharing.Words(grant.Resources)
		v.InForce, v.Refusal = sharing.Words(grant.InForce, grant.Resources), grant.Refusal
		v.Network = sharing.NetworkTerm(grant.Network)
	}
	switch r.Status.Answer {
	case v1alpha1.AnswerAccepted:
		v.State = api.StateContracted
	case v1alpha1.AnswerDeclined:
		v.State = api.StateDeclined
	case v1alpha1.AnswerExpired:
		v.State = api.StateExpired
	}
	return v
}

// Request gives an incoming one.
func (b *Backend) Request(ctx context.Context, ref string) (api.Request, error) {
	c, r, err := b.open(ctx, ref)
	if err != nil {
		return api.Request{}, err
	}
	return c.wouldGet(ctx, r)
}

// wouldGet shows a request of a peer, and what a yes gives at this moment.
func (c *Cluster) wouldGet(ctx context.Context, r *v1alpha1.PeeringRequest) (api.Request, error) {
	grant, err := c.Provider.Grant(ctx, r)
	if err != nil {
		return api.Request{}, internal(err)
	}
	return incoming(r, &grant), nil
}

// Accept accepts an incoming request.
func (b *Backend) Accept(ctx context.Context, ref string, shown api.Resources) (api.Request, error) {
	if err := b.autonomous("nothing was accepted"); err != nil {
		return api.Request{}, err
	}
	c, r, err := b.open(ctx, ref)
	if err != nil {
		return api.Request{}, err
	}
	var most corev1.ResourceList
	if len(shown) > 0 {
		if most, err = parse("granted", shown); err != nil {
			return api.Request{}, err
		}
	}
	err = c.Provider.Accept(ctx, r, most, "")
	var nothing *sharing.Refusal
	if errors.As(err, &nothing) {
		return api.Request{}, &api.Error{Code: api.CodeConflict, Message: "nothing can be granted to " + r.Spec.PeerName, Reason: nothing.Reason, Do: whatToGrant(r)}
	}
	if err != nil {
		return api.Request{}, internal(err)
	}
	return b.answered(r), nil
}

// whatToGrant says how the owner lets there be something to grant.
func whatToGrant(r *v1alpha1.PeeringRequest) string {
	if r.Spec.Tether {
		return "a TetherPolicy that selects it lets this cluster run it (docs/modes.md); the request waits"
	}
	return "`kith share` shows what is offered, and changes it; the request waits"
}

// Decline declines an incoming request.
func (b *Backend) Decline(ctx context.Context, ref string) (api.Request, error) {
	c, r, err := b.open(ctx, ref)
	if err != nil {
		return api.Request{}, err
	}
	if err := provider.Decline(ctx, c.Client, r); err != nil {
		return api.Request{}, internal(err)
	}
	return b.answered(r), nil
}

// open is a request that can be answered.
func (b *Backend) open(ctx context.Context, ref string) (*Cluster, *v1alpha1.PeeringRequest, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := c.findRequest(ref)
	if errors.Is(err, &api.Error{Code: api.CodeNotFound}) {
		if already := c.already(ref); already != nil {
			err = already
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if r.Status.Answer == v1alpha1.AnswerAccepted {
		return nil, nil, acceptedAlready(r.Spec.PeerName, r.Spec.Code)
	}
	if !provider.Pending(r) {
		return nil, nil, &api.Error{Code: api.CodeExpired, Message: fmt.Sprintf("request %s cannot be answered any more", r.Name),
			Reason: "it is " + strings.ToLower(string(cmp.Or(r.Status.Answer, v1alpha1.AnswerExpired))), Do: "have the peer ask again"}
	}
	return c, r, nil
}

// already is that the request of a peer was accepted before; nil when it was not.
func (c *Cluster) already(ref string) error {
	now := c.Client.Now()
	for _, r := range now.Requests {
		if r.Status.Answer == v1alpha1.AnswerAccepted && means(ref, r) {
			return acceptedAlready(r.Spec.PeerName, r.Spec.Code)
		}
	}
	peer := now.PeerNamed(ref)
	if peer == nil {
		return nil
	}
	switch api.State(peer.Status.Incoming.State) {
	case api.StateContracted, api.StateConnected, api.StateUnreachable:
		return acceptedAlready(peer.Name, "")
	}
	return nil
}

func acceptedAlready(peer, code string) error {
	e := &api.Error{Code: api.CodeConflict, Message: "the request of " + peer + " was accepted already", Do: "`kith peers` shows where it stands; `kith unpeer " + peer + "` ends it"}
	if code != "" {
		e.Reason = "its owner compares the code " + identity.Spaced(code) + ", before anything is signed"
	}
	return e
}

// answered tells of an answer.
func (b *Backend) answered(r *v1alpha1.PeeringRequest) api.Request {
	v := incoming(r, r.Status.Grant)
	text := "the request of " + r.Spec.PeerName + " was declined"
	if v.State == api.StateContracted {
		text = "the request of " + r.Spec.PeerName + " was accepted: " + v.Grants()
	}
	b.Log.Info("request answered", "peer", r.Spec.PeerName, "request", r.Name, "answer", string(r.Status.Answer))
	b.Publish(api.Event{Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: r.Spec.PeerName, Object: "request/" + r.Name,
		Message: text, Direction: api.Incoming, State: v.State})
	return v
}

// means reports whether ref may stand for a request: it begins its ID, or is the name or ID of the peer that asks.
func means(ref string, r *v1alpha1.PeeringRequest) bool {
	id, err := identity.ParseID(r.Spec.PeerID)
	return r.Spec.PeerName == ref || r.Spec.PeerID == ref || err == nil && strings.EqualFold(id.Short(), ref) || strings.HasPrefix(r.Name, ref)
}

// findRequest takes an ID, the start of one, or the name or ID of the peer that asks.
func (c *Cluster) findRequest(ref string) (*v1alpha1.PeeringRequest, error) {
	now := c.Client.Now()
	peer := now.PeerNamed(ref) // the name of a Peer means its key: strangers who call themselves so get names that begin like it
	var found []*v1alpha1.PeeringRequest
	for _, r := range now.Requests {
		if r.Name == ref {
			return r.DeepCopy(), nil
		}
		if peer != nil && r.Spec.PeerID != peer.Spec.ID {
			continue
		}
		if provider.Pending(r) && means(ref, r) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, api.NotFound("request", ref, "kith requests")
	case 1:
		return found[0].DeepCopy(), nil
	}
	return nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q means %d requests", ref, len(found)), Do: "give the whole ID"}
}
