package company

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire"
)

// Reconcile looks at one laptop.
func (c *Company) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c.door.ShutOthers(ctx)
	var peer v1alpha1.Peer
	err := c.cfg.Client.Get(ctx, req.NamespacedName, &peer)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.withdraw(ctx, req.Name)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := c.reconcile(ctx, &peer)
	return record.Calm(ctrl.Result{RequeueAfter: again}, client.IgnoreNotFound(err))
}

func (c *Company) reconcile(ctx context.Context, peer *v1alpha1.Peer) (again time.Duration, err error) {
	ended := len(c.cfg.Client.Now().With(peer.Name, v1alpha1.RoleConsumer)) == 0
	if was := peer.Status.Tether; peer.Spec.Tethered == nil && (was == nil || was.Role != v1alpha1.TetherCompany) {
		return 0, c.withdraw(ctx, peer.Name)
	}
	if over := c.over(peer); over {
		return 0, c.end(ctx, peer) // and it comes back
	}
	var problems []string
	settled := true
	if peer.Spec.Tethered == nil {
		err = errors.Join(c.withdraw(ctx, peer.Name), c.unmark(ctx, peer))
	} else {
		given, provideErr := c.provide(ctx, peer)
		left, markErr := c.mark(ctx, peer)
		problems, settled, err = slices.Concat(given.problems, left), given.settled, errors.Join(provideErr, markErr)
	}
	asked, again, askErr := c.askAgain(ctx, peer, ended)
	if asked {
		return 0, errors.Join(err, askErr) // its own change comes back
	}
	if !settled && (again == 0 || again > amend) {
		again = amend
	}
	return again, errors.Join(err, askErr, c.tell(ctx, peer, ended, problems))
}

// amend is after how long rights that could not be given are tried again: the cause, such as a missing ClusterRole, is not watched.
const amend = time.Minute

// over reports whether a tether has to be ended: the laptop has ended it, or one of the two fields that record it was removed here.
func (c *Company) over(peer *v1alpha1.Peer) bool {
	if peer.Spec.Tethered != nil {
		return refused(peer) || peer.Spec.Request == nil
	}
	// A request of later than the end is its owner's own.
	return peer.Spec.Request != nil && peer.Status.Tether.Step != v1alpha1.TetherStepEnding
}

// askAgain raises the attempt of the request to the laptop, if it is time, so that it is sent again.
func (c *Company) askAgain(ctx context.Context, peer *v1alpha1.Peer, ended bool) (asked bool, again time.Duration, err error) {
	c.mu.Lock()
	t := c.asked[peer.Name]
	c.mu.Unlock()
	if !unanswered(peer, ended) {
		if record.StateOf(peer.Status.Outgoing) == v1alpha1.StateConnected || peer.Spec.Tethered == nil {
			c.setTries(peer.Name, tries{})
		}
		return false, 0, nil
	}
	if left := pause(t.n) - time.Since(t.last); left > 0 {
		return false, left, nil
	}
	before := peer.DeepCopy()
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: attempt(before) + 1}
	if err := c.cfg.Client.Patch(ctx, peer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, 0, err
	}
	c.setTries(peer.Name, tries{t.n + 1, time.Now()})
	c.cfg.Log.Info("asking a tethered laptop for its node again", "peer", peer.Name, "attempt", peer.Spec.Request.Attempt, "why", peer.Status.Outgoing.Why)
	return true, 0, nil
}

func (c *Company) setTries(peer string, t tries) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t == (tries{}) {
		delete(c.asked, peer)
		return
	}
	c.asked[peer] = t
}

const maxWhy = 1024

// tell writes down how the tether stands, and announces what is new.
func (c *Company) tell(ctx context.Context, peer *v1alpha1.Peer, ended bool, problems []string) error {
	was := ""
	if t := peer.Status.Tether; t != nil {
		was = t.Step
	}
	step, why := stepOf(peer, ended)
	if len(problems) > 0 {
		why = strings.TrimPrefix(why+"; "+strings.Join(problems, "; "), "; ")
	}
	why = wire.Cut(why, maxWhy)
	if err := record.PatchStatus(ctx, c.cfg.Client, peer, func(s *v1alpha1.PeerStatus) {
		if s.Tether = status(peer, step, why); step == "" {
			s.Tether = nil
		}
	}, client.MergeFromWithOptimisticLock{}); err != nil {
		return err
	}
	switch {
	case step == was:
	case step == v1alpha1.TetherStepTethered && was != v1alpha1.TetherStepLost:
		c.announce(peer, api.EventLaptopTethered, "the laptop %s is tethered to this cluster: it is the node %s here", peer.Name, v1alpha1.VirtualNodePrefix+peer.Name)
	case step == "":
		c.announce(peer, api.EventLaptopReturned, "the laptop %s is its owner's again", peer.Name)
	}
	return nil
}

func (c *Company) announce(peer *v1alpha1.Peer, what api.EventType, text string, args ...any) {
	message := fmt.Sprintf(text, args...)
	c.cfg.Log.Info("tether", "peer", peer.Name, "event", string(what))
	c.cfg.Announce(api.Event{Type: what, Severity: api.SeverityInfo, Peer: peer.Name, Object: "peer/" + peer.Name, Message: message, Direction: api.Outgoing})
}
