package mode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// leave asks the company to end the tether, and waits until its contract and pods are gone here, or leavePatience (awayPatience
// while it does not answer, the owner's timeout if set) is over.
func (m *Machine) leave(ctx context.Context, j *journal) error {
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	contact := m.cfg.Directory.Contact(m.peer(j))
	if contact.Reachable() && !m.delivered {
		patience := oneCall // it may be slow; one that is gone is noticed meanwhile
		if j.Force {
			patience = goodbye
		}
		m.delivered = m.farewell(ctx, j, patience)
		contact = m.cfg.Directory.Contact(m.peer(j))
	}
	if j.Force {
		return nil
	}
	inForce, guests, err := m.left(ctx, c, j)
	if err != nil {
		return err
	}
	if len(inForce)+guests == 0 && (m.delivered || !contact.Reachable() || time.Since(m.began) > awayPatience) {
		return nil
	}
	limit := leavePatience
	if j.Timeout > 0 {
		limit = j.Timeout
	} else if !contact.Reachable() {
		limit = awayPatience
	}
	rest := limit - time.Since(m.began)
	if rest <= 0 {
		return nil
	}
	why := ""
	if guests > 0 {
		why = count(guests, "pod") + " of its run here yet"
	}
	if !contact.Reachable() {
		why = fmt.Sprintf("%s does not answer, and has %s left: %s", j.Peer, max(rest.Round(time.Second), time.Second), contact.Why)
	}
	return &waiting{why: why, after: min(rest, time.Second)}
}

// farewell calls EndTether at the company. It is true when the company has ended the tether, or says that there is none.
func (m *Machine) farewell(ctx context.Context, j *journal, patience time.Duration) bool {
	to, err := m.reach(m.peer(j))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err = to.EndTether(ctx)
	}
	if err != nil {
		m.cfg.Log.Info("the company was not told that it is to give this laptop back", "peer", j.Peer, "err", err)
	}
	no, is := errors.AsType[*peering.Problem](err)
	return err == nil || is && final(no) // which has nothing to give back
}

// end ends the contracts that are still in force. It first writes the names of the guests that this cuts off into the journal.
func (m *Machine) end(ctx context.Context, j *journal) error {
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	inForce, guests, err := m.left(ctx, c, j)
	if err != nil || len(inForce)+guests == 0 {
		return err
	}
	for _, ctr := range inForce {
		if next, err := m.cutting(ctx, c, j); err != nil {
			return err
		} else if next != nil { // who is cut is on the disk before anybody is
			return m.again(j, next)
		}
		if err := record.EndContract(ctx, c.Client, ctr, v1alpha1.EndUntethered); err != nil {
			return fmt.Errorf("end the contract with %s: %w", j.Peer, err)
		}
	}
	if time.Since(m.began) > endPatience {
		m.cfg.Log.Warn("what is under the contract with the company is not cleared away; this laptop decides again all the same", "peer", j.Peer)
		return nil
	}
	return &waiting{why: "what is left of " + j.Peer + "'s is cleared away", after: endLook}
}

// left gives what the company still has here: contracts in force, and how many pods. Their namespaces are not waited for: the contract's
// own reconciler deletes them.
func (m *Machine) left(ctx context.Context, c *Cluster, j *journal) (inForce []*v1alpha1.Contract, guests int, err error) {
	inForce = slices.DeleteFunc(contracts(c, j), func(ctr *v1alpha1.Contract) bool { return ctr.DeletionTimestamp != nil })
	names, err := m.guests(ctx, c, j, true)
	return inForce, len(names), err
}

// start turns the local scheduler and controllers on again, after hosting has stopped binding guests.
func (m *Machine) start(ctx context.Context, j *journal) error {
	if c := m.cfg.Cluster(); c != nil {
		c.SetBinding(false)
	}
	if err := m.cfg.Engine.Decide(ctx, true); err != nil {
		return err
	}
	if c := m.cfg.Cluster(); c != nil { // it may be another one by now
		c.SetBinding(false)
	}
	return nil
}

// comeHome removes the tether from the Peer's spec and status. The front door leads home already.
func (m *Machine) comeHome(ctx context.Context, j *journal) error {
	if m.cfg.Door != nil && m.led != home {
		return errNoCluster
	}
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	peer, err := object(ctx, c, j)
	if err != nil || peer == nil {
		return err
	}
	return clear(ctx, c, peer)
}

// clear removes a tether of this laptop from a Peer's spec and status.
func clear(ctx context.Context, c *Cluster, peer *v1alpha1.Peer) error {
	if peer.Spec.Request != nil && peer.Spec.Request.Tether {
		before := peer.DeepCopy()
		peer.Spec.Request = nil
		if err := c.Client.Patch(ctx, peer, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take back the request to %s: %w", peer.Name, err)
		}
	}
	if peer.Status.Tether == nil || peer.Status.Tether.Role != v1alpha1.TetherLaptop {
		return nil
	}
	return client.IgnoreNotFound(record.PatchStatus(ctx, c.Client, peer, func(s *v1alpha1.PeerStatus) { s.Tether = nil }))
}

// tidy does so for a tether that has no journal any more.
func (m *Machine) tidy(ctx context.Context, c *Cluster) error {
	for _, peer := range c.Client.Now().Peers {
		if err := clear(ctx, c, peer.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}
