package backend

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/presence"
	asking "kith.dev/core/agree/relations/consumer"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
	"kith.dev/daemon/backend/location"
)

// Ask asks a peer for resources.
func (b *Backend) Ask(ctx context.Context, ref string, ask api.PeerAsk, report func(api.Progress)) (api.Peer, error) {
	if err := b.autonomous(ref + " was not asked"); err != nil {
		return api.Peer{}, err
	}
	c, err := b.cluster(ctx)
	if err != nil {
		return api.Peer{}, err
	}
	if err := checkID(ask.ID); err != nil {
		return api.Peer{}, err
	}
	k, err := b.findOrAdd(ctx, ref, report)
	if err != nil {
		return api.Peer{}, err
	}
	if err := sameID(k, ask.ID); err != nil {
		return api.Peer{}, err
	}
	if err := ask.Check(); err != nil {
		return api.Peer{}, err
	}
	inForce := c.inForce(k)
	if inForce != nil && ask.Network != "" && (ask.Network == api.NetworkNone) != sharing.NoNetwork(inForce) {
		has := "a network"
		if sharing.NoNetwork(inForce) {
			has = "no network"
		}
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: k.Name + " was not asked", Field: "network",
			Reason: "the contract in force has " + has + " between the clusters", Do: "`kith unpeer " + k.Name + "` ends it; then ask again"}
	}
	if ask.Resources, err = b.nameGPU(ctx, k, inForce, ask.Resources); err != nil {
		return api.Peer{}, err
	}
	if err := api.CheckAsked("resources", ask.Resources); err != nil {
		return api.Peer{}, err
	}
	resources, err := parse("resources", ask.Resources)
	if err != nil {
		return api.Peer{}, err
	}
	if attempt, pending := b.pending(k, inForce, resources, ask); pending {
		return b.followPending(ctx, c, k, attempt, ask, report)
	}
	if ask.Code != "" {
		return api.Peer{}, &api.Error{Code: api.CodeConflict, Message: "no such request to " + k.Name + " is pending that the code could be of",
			Do: "`kith peer " + k.Name + "` asks, and shows the code that its owner must see too"}
	}
	switch {
	case k.Contact.Cause == presence.OtherVersion:
		return api.Peer{}, location.OtherVersion(k.Name, k.Contact.Why)
	case !k.Contact.Reachable():
		return api.Peer{}, location.Unreachable(k.Name, errors.New(k.Contact.Why))
	}
	if inForce != nil && k.Peer.Spec.Request != nil && !c.notRenewed(k.Name) && sharing.Same(wanted(k.Peer, resources, inForce), inForce.Grants(time.Now())) {
		return b.unchanged(ctx, c, k, ask.Wait, report)
	}
	if inForce == nil && len(resources) > 0 {
		soon, cancel := context.WithTimeout(ctx, givesTime)
		if less := less(resources, b.wouldGive(soon, k)); less != "" {
			report(api.Progress{Message: k.Name + " would give less now: " + less})
		}
		cancel()
	}
	peer, err := record.EnsurePeer(ctx, c.Client, k.ID, k.Name, k.Addresses[:min(1, len(k.Addresses))], v1alpha1.Source(k.Source))
	if err != nil {
		return api.Peer{}, internal(err)
	}
	attempt := asking.NextAttempt(peer, time.Now())
	if err := asking.Want(ctx, c.Client, peer, v1alpha1.ResourceRequest{Resources: resources, Attempt: attempt, Network: networkWanted(peer, ask.Network)}, ask.ID); err != nil {
		return api.Peer{}, internal(err)
	}
	b.Directory.Remember(peer)
	if err := c.followAsk(ctx, peer.Name, attempt, ask.Wait, report); err != nil {
		return api.Peer{}, err
	}
	return b.Peer(ctx, k.ID.String())
}

// notRenewed: then the same amounts are asked for on other terms.
func (c *Cluster) notRenewed(peer string) bool { return c.NotRenewed != nil && c.NotRenewed(peer) }

// sameID is an error if a peer's ID is another one than was given; none was is "".
func sameID(k directory.Known, given string) error {
	if given == "" || given == k.ID.String() {
		return nil
	}
	return &api.Error{Code: api.CodeConflict, Message: k.Name + " was not asked", Field: "id",
		Reason: "its ID is " + k.ID.String() + ", not the one that was given", Do: "ask its owner for the ID; somebody may use the name"}
}

// inForce is the contract under which a peer provides; nil without one.
func (c *Cluster) inForce(k directory.Known) *v1alpha1.Contract {
	if k.Peer == nil {
		return nil
	}
	return asking.InForce(c.Client.Now(), k.Peer)
}

// wanted is all that would be asked for with these amounts.
func wanted(peer *v1alpha1.Peer, resources corev1.ResourceList, inForce *v1alpha1.Contract) corev1.ResourceList {
	would := peer.DeepCopy()
	would.Spec.Request = &v1alpha1.ResourceRequest{Resources: resources}
	return asking.Wanted(would, inForce)
}

// networkWanted is what would be asked for of the network: what is said now, or else what was asked for last.
func networkWanted(peer *v1alpha1.Peer, says string) v1alpha1.Network {
	if says == "" {
		return asking.Network(peer)
	}
	return sharing.Network(says)
}

// unchanged answers who asks for what the contract in force grants: nobody else is asked.
func (b *Backend) unchanged(ctx context.Context, c *Cluster, k directory.Known, wait bool, report func(api.Progress)) (api.Peer, error) {
	if out := k.Peer.Status.Outgoing; out.State != v1alpha1.StateConnected {
		if err := c.followAsk(ctx, k.Peer.Name, out.Attempt, wait, report); err != nil {
			return api.Peer{}, err
		}
	}
	p, err := b.Peer(ctx, k.ID.String())
	p.Unchanged = true
	return p, err
}

// contactTime is how long a peer that just answered may take to be in contact: mostly milliseconds.
const contactTime = 5 * time.Second

func (b *Backend) findOrAdd(ctx context.Context, ref string, report func(api.Progress)) (directory.Known, error) {
	k, err := b.Directory.Find(ref)
	if err == nil || !strings.ContainsAny(ref, ":.") {
		return k, err
	}
	report(api.Progress{Message: "looking who answers at " + ref})
	peer, err := b.AddPeer(ctx, api.AddPeer{Address: ref})
	if err != nil {
		return directory.Known{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	for {
		changed := b.Changed()
		if k, err = b.Directory.Find(peer.ID); err != nil || k.Contact.Reachable() {
			return k, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return k, nil
		}
	}
}

// followAsk reports what becomes of a request until it is delivered, or, with wait, until it is decided.
func (c *Cluster) followAsk(ctx context.Context, name string, attempt int64, wait bool, report func(api.Progress)) error {
	var former *string // what became of the attempt before, which is no news
	said := ""
	say := func(p api.Progress) {
		if p.Message != said {
			said = p.Message
			report(p)
		}
	}
	return c.follow(ctx, func() (bool, error) {
		var peer v1alpha1.Peer
		if err := c.Client.Get(ctx, named(name), &peer); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		out := peer.Status.Outgoing
		if out.Attempt < attempt && former == nil {
			former = &out.Why
		}
		if out.Attempt < attempt || asking.Asking(out) {
			if out.Why != "" && (out.Attempt == attempt || out.Why != *former) {
				say(api.Progress{Message: out.Why})
			}
			return false, nil
		}
		if asked := confirmation(out); asked != nil {
			if !answered(asking.Word(&peer), *asked) { // else the answer was given a moment ago
				say(api.Progress{Message: out.Why, Code: out.Code, Confirm: asked, Peer: name})
			}
			return !wait, nil
		}
		switch out.State {
		case v1alpha1.StateRequested:
			say(api.Progress{Message: "waiting for the owner of " + name + " to accept", Code: out.Code})
			return !wait, nil
		case v1alpha1.StateConnected:
			if out.RequestID != "" { // other amounts, on top of the contract in force
				inForce := asking.InForce(c.Client.Now(), &peer)
				say(api.Progress{Message: "waiting for the owner of " + name + " to accept " + cmp.Or(change(&peer, inForce), "other amounts"), Code: out.Code})
				return !wait, nil
			}
			if out.Why != "" {
				return true, &api.Error{Code: api.CodeDeclined, Message: out.Why, Do: "the contract in force stays as it is"}
			}
			return true, nil
		case v1alpha1.StateDeclined:
			return true, &api.Error{Code: api.CodeDeclined, Message: out.Why, Do: "talk to its owner, or ask for less"}
		case v1alpha1.StateExpired:
			return true, &api.Error{Code: api.CodeExpired, Message: out.Why, Do: "ask again"}
		case v1alpha1.StateContracted:
			say(api.Progress{Message: "contract signed, the link is being made"})
			return !wait, nil
		case v1alpha1.StateUnreachable: // under the contract in force
			say(api.Progress{Message: name + " cannot be reached: " + out.Why})
			return !wait, nil
		case v1alpha1.StateNone:
			if out.Why != "" { // the contract in force ended meanwhile
				return true, &api.Error{Code: api.CodeConflict, Message: out.Why, Do: "ask again"}
			}
		}
		return false, nil
	})
}

// change says what the pending question of a peer would change of the contract in force.
func change(peer *v1alpha1.Peer, inForce *v1alpha1.Contract) string {
	if inForce == nil {
		return ""
	}
	wanted := asking.Wanted(peer, inForce)
	return api.Change(sharing.Words(inForce.Grants(time.Now()), wanted), sharing.Words(wanted), nil)
}
