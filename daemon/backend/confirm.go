package backend

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/core/trust/identity"
)

// Confirm writes down the owner's word on what a peer accepted, and waits for what becomes of it.
func (b *Backend) Confirm(ctx context.Context, ref string, in api.PeerConfirm) (api.Peer, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	peer, err := c.asked(ctx, k)
	if err != nil {
		return api.Peer{}, err
	}
	if err := checkID(in.ID); err != nil {
		return api.Peer{}, err
	}
	if in == (api.PeerConfirm{}) {
		return api.Peer{}, api.Invalid("code", "", "the six digits that the screen of "+k.Name+" shows, a yes to the terms, or a no")
	}
	if err := c.confirm(ctx, peer, in); err != nil {
		return api.Peer{}, err
	}
	err = c.follow(ctx, func() (bool, error) {
		var now v1alpha1.Peer
		if err := c.Client.Get(ctx, named(peer.Name), &now); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		switch out := now.Status.Outgoing; {
		case out.State == v1alpha1.StateDeclined, out.State == v1alpha1.StateExpired,
			out.State == v1alpha1.StateConnected && out.Confirm == nil && out.Why != "": // of other amounts
			return true, &api.Error{Code: api.CodeDeclined, Message: out.Why, Do: "`kith peer " + k.Name + "` asks again"}
		case out.Confirm != nil && !answered(asking.Word(&now), *confirmation(out)):
			return true, nil // it was a part of what is asked
		default:
			return out.Confirm == nil, nil
		}
	})
	if err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}

// asked is the Peer whose owner is asked to confirm.
func (c *Cluster) asked(ctx context.Context, k directory.Known) (*v1alpha1.Peer, error) {
	nothing := &api.Error{Code: api.CodeConflict, Message: "there is nothing to confirm with " + k.Name, Do: "kith peer " + k.Name}
	if k.Peer == nil {
		return nil, nothing
	}
	var peer v1alpha1.Peer
	if err := c.Client.Get(ctx, named(k.Peer.Name), &peer); err != nil {
		return nil, internal(err)
	}
	out := peer.Status.Outgoing
	if peer.Spec.Request == nil || out.Confirm == nil || out.Attempt != peer.Spec.Request.Attempt {
		return nil, nothing
	}
	return &peer, nil
}

// confirm adds the owner's word to the request that is pending.
func (c *Cluster) confirm(ctx context.Context, peer *v1alpha1.Peer, in api.PeerConfirm) error {
	request := peer.Spec.Request
	word := v1alpha1.Confirm{Attempt: request.Attempt}
	if said := request.Confirm; said != nil && said.Attempt == request.Attempt {
		word = *said
	}
	if shown := peer.Status.Outgoing.Code; in.Code != "" && shown != "" && in.Code != shown && !word.Mistyped {
		word.Mistyped = true
		if err := c.say(ctx, peer, word); err != nil {
			return internal(fmt.Errorf("note the code for %s: %w", peer.Name, err))
		}
		return &api.Error{Code: api.CodeInvalid, Field: "code", Message: "the code " + identity.Spaced(in.Code) + " is not the one that this laptop has for " + peer.Name,
			Reason: "either it was mistyped, or somebody stands in between", Do: "read it on the other screen again, and try once more: another wrong one takes the request back"}
	}
	word.Code, word.ID = cmp.Or(in.Code, word.Code), cmp.Or(in.ID, word.ID)
	word.Terms, word.Reject = word.Terms || in.Terms, word.Reject || in.Reject
	if err := c.say(ctx, peer, word); err != nil {
		return internal(fmt.Errorf("confirm the request to %s: %w", peer.Name, err))
	}
	return nil
}

// say writes the owner's word down.
func (c *Cluster) say(ctx context.Context, peer *v1alpha1.Peer, word v1alpha1.Confirm) error {
	before := peer.DeepCopy()
	peer.Spec.Request.Confirm = &word
	before.Spec.Request.Confirm = nil // so that the patch names the attempt, should another be there by now
	return c.Client.Patch(ctx, peer, client.MergeFrom(before))
}

// confirmation is what the owner has to agree to; nil when there is nothing.
func confirmation(out v1alpha1.DirectionStatus) *api.Confirmation {
	if out.Confirm == nil {
		return nil
	}
	asked := &api.Confirmation{Code: out.Confirm.Code, Terms: out.Confirm.Terms}
	if out.Expires != nil {
		asked.Expires = out.Expires.Time
	}
	return asked
}

// answered says whether the owner has said a word on all that is asked.
func answered(word v1alpha1.Confirm, asked api.Confirmation) bool {
	return word.Reject || (asked.Code == "" || word.Code != "" || word.ID != "") && (len(asked.Terms) == 0 || word.Terms)
}

func checkID(id string) error {
	if parsed, err := identity.ParseID(id); id != "" && (err != nil || parsed.String() != id) {
		return api.Invalid("id", id, "a whole cluster ID, in 8 groups of 7 characters")
	}
	return nil
}

// pending says which attempt waits for an answer already, when it asks for the same, or no amounts are named, or it is to be
// confirmed: a new one would have another code, while the other owner looks at this one's.
func (b *Backend) pending(k directory.Known, inForce *v1alpha1.Contract, resources corev1.ResourceList, ask api.PeerAsk) (attempt int64, ok bool) {
	if k.Peer == nil || k.Peer.Spec.Request == nil {
		return 0, false
	}
	out, request := k.Peer.Status.Outgoing, k.Peer.Spec.Request
	same := len(resources) == 0 || ask.Code != "" || sharing.Same(asking.Wanted(k.Peer, inForce), wanted(k.Peer, resources, inForce))
	same = same && networkWanted(k.Peer, ask.Network) == request.Network // a code for the one is none for the other
	waits := out.RequestID != "" && out.Attempt == request.Attempt && (out.Expires == nil || time.Now().Before(out.Expires.Time))
	return request.Attempt, same && waits && k.Contact.Reachable()
}

// followPending goes on with a request that was made before.
func (b *Backend) followPending(ctx context.Context, c *Cluster, k directory.Known, attempt int64, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error) {
	if ask.Code != "" || ask.ID != "" {
		var peer v1alpha1.Peer
		if err := c.Client.Get(ctx, named(k.Peer.Name), &peer); err != nil {
			return api.Peer{}, internal(err)
		}
		if peer.Spec.Request == nil || peer.Spec.Request.Attempt != attempt {
			return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "the request to " + k.Name + " was changed meanwhile", Do: "try again"}
		}
		if err := c.confirm(ctx, &peer, api.PeerConfirm{Code: ask.Code, ID: ask.ID}); err != nil {
			return api.Peer{}, err
		}
		b.Directory.Remember(&peer)
	}
	if err := c.followAsk(ctx, k.Peer.Name, attempt, ask.Wait, report); err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}
