package backend

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Wake wakes the machine of a peer.
func (b *Backend) Wake(ctx context.Context, ref string) (api.Waking, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Waking{}, err
	}
	if k.Peer == nil {
		return api.Waking{}, &api.Error{Code: api.CodeConflict, Message: "there is no contract with " + k.Name + " that would let this laptop wake it"}
	}
	is, err := c.Waking.Wake(ctx, k.Peer.Name)
	if _, known := errors.AsType[*api.Error](err); err != nil && !known {
		err = internal(err)
	}
	return is, err
}

// Withdraw takes back a question that waits for an answer.
func (b *Backend) Withdraw(ctx context.Context, ref string) (api.Peer, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	nothing := &api.Error{Code: api.CodeConflict, Message: "no request to " + k.Name + " waits for an answer", Do: "`kith requests` lists those that do"}
	if k.Peer == nil {
		return api.Peer{}, nothing
	}
	var peer v1alpha1.Peer
	if err := c.Client.Get(ctx, named(k.Peer.Name), &peer); err != nil {
		return api.Peer{}, internal(err)
	}
	inForce := c.inForce(k)
	request, out := peer.Spec.Request, peer.Status.Outgoing
	switch before := peer.DeepCopy(); {
	case request == nil || !asks(&peer) && request.Attempt <= out.Attempt:
		return api.Peer{}, nothing
	case inForce == nil: // there is nothing beside the question
		peer.Spec.Request = nil
		err = c.Client.Patch(ctx, &peer, client.MergeFrom(before))
	case request.Attempt > out.Attempt: // not put to the peer yet
		request.Attempt = out.Attempt
		err = c.Client.Patch(ctx, &peer, client.MergeFrom(before))
	default:
		err = c.say(ctx, &peer, v1alpha1.Confirm{Attempt: request.Attempt, Withdraw: true})
	}
	if err != nil {
		return api.Peer{}, internal(fmt.Errorf("take back the request to %s: %w", k.Name, err))
	}
	asked := peer.Spec.Request
	if err := c.follow(ctx, func() (bool, error) {
		var now v1alpha1.Peer
		if err := c.Client.Get(ctx, named(peer.Name), &now); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		return (now.Spec.Request == nil) == (asked == nil) && !asks(&now) && now.Status.Outgoing.State != v1alpha1.StateRequested, nil
	}); err != nil {
		return api.Peer{}, err
	}
	if now := c.inForce(k); now != nil && (inForce == nil || now.Spec.Revision > inForce.Spec.Revision) {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "it is too late to take the request back", Reason: k.Name + " has accepted it, and it is signed",
			Do: "`kith peer " + k.Name + "` with other amounts changes it, `kith unpeer " + k.Name + "` ends it"}
	}
	return b.Peer(ctx, k.ID.String())
}

// Unpeer ends what there is with a peer, in both directions. It refuses while volumes of this cluster are there, unless they may be deleted.
func (b *Backend) Unpeer(ctx context.Context, ref string, options api.EndOptions, report func(api.Progress)) (api.Peer, error) {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return api.Peer{}, err
	}
	if err := b.notTheCompany(k.Name); err != nil {
		return api.Peer{}, err
	}
	if k.Peer == nil {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "there is nothing to end with " + k.Name, Reason: "nothing was asked or granted"}
	}
	dry := options.DryRun
	if err := c.leaveVolumes(ctx, k.Peer.Name, k.Name, options, report); err != nil {
		return api.Peer{}, err
	}
	if err := throughRestart(ctx, func() error { return c.end(ctx, c.writer(dry), k.Peer.Name) }); err != nil {
		return api.Peer{}, internal(err)
	}
	if dry {
		return b.Peer(ctx, k.ID.String())
	}
	report(api.Progress{Message: "bringing home what runs at " + k.Name})
	if err := c.follow(ctx, func() (bool, error) { return len(c.Client.Now().With(k.Peer.Name, "")) == 0, nil }); err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}

// end takes back what is asked of a peer, gives it back if it is a laptop that this cluster runs, and ends what is granted to it. It may
// be repeated.
func (c *Cluster) end(ctx context.Context, to client.Client, name string) error {
	var peer v1alpha1.Peer
	if err := c.Client.Get(ctx, named(name), &peer); err != nil {
		return err
	}
	if peer.Spec.Request != nil || peer.Spec.Tethered != nil {
		before := peer.DeepCopy()
		peer.Spec.Request, peer.Spec.Tethered = nil, nil
		if err := to.Patch(ctx, &peer, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return c.endProviding(ctx, to, name)
}

// writer is by what something is written; in a dry run the API server says whether it would take that, and nothing is kept.
func (c *Cluster) writer(dry api.DryRun) client.Client {
	if dry {
		return client.NewDryRunClient(c.Client.Client) // past the ledger, which remembers what it writes
	}
	return c.Client
}

// endProviding ends the contracts under which this cluster provides to a peer.
func (c *Cluster) endProviding(ctx context.Context, to client.Client, peer string) error {
	for _, ctr := range c.Client.Now().With(peer, v1alpha1.RoleProvider) {
		if err := record.EndContract(ctx, to, ctr, v1alpha1.EndedHere); err != nil {
			return err
		}
	}
	return nil
}

// ForgetPeer drops everything about a peer from this side alone.
func (b *Backend) ForgetPeer(ctx context.Context, ref string, dry api.DryRun) error {
	c, k, err := b.find(ctx, ref)
	if err != nil {
		return err
	}
	if k.Peer == nil {
		return nil
	}
	if _, err := b.Unpeer(ctx, ref, api.EndOptions{DryRun: dry}, func(api.Progress) {}); err != nil {
		return err
	}
	if err := c.writer(dry).Delete(ctx, k.Peer.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
		return internal(err)
	}
	if dry {
		return nil
	}
	b.Publish(api.Event{Type: api.EventPeerForgotten, Severity: api.SeverityInfo, Peer: k.Name, Message: k.Name + " was forgotten"})
	return nil
}
