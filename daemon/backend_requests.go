package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/identity"
	"kith.dev/core/relations"
)

// Requests gives the pending ones of both directions, oldest first.
func (b backend) Requests(ctx context.Context) ([]api.Request, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	var requests v1alpha1.PeeringRequestList
	if err := c.client.List(ctx, &requests); err != nil {
		return nil, internal(err)
	}
	var list []api.Request
	for i := range requests.Items {
		if relations.Pending(&requests.Items[i]) {
			list = append(list, incoming(&requests.Items[i]))
		}
	}
	for _, k := range b.d.directory.all() {
		if k.peer == nil || k.peer.Status.Outgoing.State != v1alpha1.StateRequested || k.peer.Spec.Request == nil {
			continue
		}
		out := k.peer.Status.Outgoing
		r := api.Request{
			ID: out.RequestID, Peer: k.name, PeerID: k.id.String(), Direction: api.Outgoing, Code: out.Code,
			Asked: quantities(k.peer.Spec.Request.Resources), State: api.StateRequested, Address: k.peer.Status.Endpoint,
		}
		if out.Since != nil {
			r.Created = out.Since.Time
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

// incoming shows a request of a peer.
func incoming(r *v1alpha1.PeeringRequest) api.Request {
	v := api.Request{
		ID: r.Name, Peer: r.Spec.PeerName, PeerID: r.Spec.PeerID, Direction: api.Incoming, Code: r.Spec.Code,
		Asked: quantities(r.Spec.Resources), State: api.StateRequested, Created: r.CreationTimestamp.Time, Expires: r.Spec.Expires.Time,
		Address: r.Spec.Address,
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

// Answer accepts or declines an incoming request.
func (b backend) Answer(ctx context.Context, ref string, accept bool) (api.Request, error) {
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Request{}, err
	}
	r, err := c.findRequest(ctx, ref)
	if err != nil {
		return api.Request{}, err
	}
	if !relations.Pending(r) {
		return api.Request{}, &api.Error{Code: api.CodeExpired, Message: fmt.Sprintf("request %s cannot be answered any more", r.Name),
			Reason: "it is " + strings.ToLower(string(cmp.Or(r.Status.Answer, v1alpha1.AnswerExpired))), Do: "have the peer ask again"}
	}
	if err := relations.Answer(ctx, c.client, r, accept, "owner"); err != nil {
		return api.Request{}, internal(err)
	}
	word := map[bool]string{true: "accepted", false: "declined"}[accept]
	b.d.log.Info("request answered", "peer", r.Spec.PeerName, "request", r.Name, "answer", word)
	b.d.publish(api.Event{Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: r.Spec.PeerName, Object: "request/" + r.Name,
		Message: "the request of " + r.Spec.PeerName + " was " + word, Direction: api.Incoming,
		State: map[bool]api.State{true: api.StateContracted, false: api.StateDeclined}[accept]})
	return incoming(r), nil
}

// findRequest takes an ID, the start of one, or the name or ID of the peer that asks.
func (c *clusterPart) findRequest(ctx context.Context, ref string) (*v1alpha1.PeeringRequest, error) {
	var requests v1alpha1.PeeringRequestList
	if err := c.fresh.List(ctx, &requests); err != nil { // the cache may not have the one that was shown a moment ago
		return nil, internal(err)
	}
	var peer v1alpha1.Peer // the name of a Peer means its key: strangers who call themselves so get names that begin like it
	err := c.client.Get(ctx, named(ref), &peer)
	if client.IgnoreNotFound(err) != nil {
		return nil, internal(err)
	}
	ofPeer := err == nil
	var found []*v1alpha1.PeeringRequest
	for i := range requests.Items {
		r := &requests.Items[i]
		if r.Name == ref {
			return r, nil
		}
		if ofPeer && r.Spec.PeerID != peer.Spec.ID {
			continue
		}
		id, err := identity.ParseID(r.Spec.PeerID)
		named := r.Spec.PeerName == ref || r.Spec.PeerID == ref || err == nil && strings.EqualFold(id.Short(), ref)
		if relations.Pending(r) && (named || strings.HasPrefix(r.Name, ref)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, api.NotFound("request", ref, "kith requests")
	case 1:
		return found[0], nil
	}
	return nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%q means %d requests", ref, len(found)), Do: "give the whole ID"}
}
