package consumer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/peering"
	"kith.dev/core/relations/link"
	"kith.dev/core/relations/record"
)

// Outgoing is the table of what to do in the direction in which this cluster consumes.
// again is when a contract has to be renewed, zero when nothing is known of that.
func (r *Consumer) Outgoing(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, contracts []v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	ctr, out := record.Live(contracts), peer.Status.Outgoing
	switch wants := peer.Spec.Request != nil; {
	case ctr != nil && !wants:
		r.withdraw(ctx, peer, out.RequestID)
		return 0, r.end(ctx, peer, ctr, "ended here")
	case ctr != nil && time.Now().After(ctr.Spec.NotAfter.Time):
		return 0, r.end(ctx, peer, ctr, "the contract ran out")
	case ctr != nil:
		return r.keep(ctx, peer, contact, ctr, syncErr)
	case len(contracts) > 0: // the contract's own reconciler goes on
		return 0, r.set(ctx, peer, peering.EventEnded, contracts[0].Status.Why)
	case !wants:
		r.stopWaiting(peer.Name)
		r.withdraw(ctx, peer, out.RequestID)
		return 0, r.set(ctx, peer, peering.EventCleared, "")
	case peer.Spec.Request.Attempt > out.Attempt:
		return 0, r.ask(ctx, peer)
	case record.StateOf(out) == v1alpha1.StateRequested:
		return 0, r.pend(ctx, peer)
	}
	return 0, nil
}

// keep runs a contract: node, link, state, and its renewal in time.
func (r *Consumer) keep(ctx context.Context, peer *v1alpha1.Peer, contact link.Contact, ctr *v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	if peer.Status.Network != nil {
		if err := r.fleet.Ensure(ctx, peer, ctr); err != nil {
			return 0, err
		}
	}
	if !contact.Reachable || syncErr != nil || contact.Ailing != "" {
		why := contact.Why
		switch {
		case syncErr != nil:
			why = syncErr.Error()
		case contact.Ailing != "":
			why = contact.Ailing
		}
		r.fleet.SetLost(peer.Name, why, contact.Heard)
		return 0, r.lost(ctx, peer, ctr, why)
	}
	r.fleet.SetReachable(peer.Name)
	if again, err = r.revise(ctx, peer, ctr); err != nil {
		return 0, err
	}
	node := v1alpha1.VirtualNodePrefix + peer.Name
	if !r.nodeReady(ctx, node) {
		return again, nil // its next change comes back here
	}
	was := record.StateOf(peer.Status.Outgoing)
	if err := record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) {
		if record.Finished(s.Outgoing) { // what stands there is of a contract before this one
			s.Outgoing.State = v1alpha1.StateNone
			record.Step(&s.Outgoing, peering.EventAsked, "")
		}
		if was != v1alpha1.StateConnected { // else what is said of it stands, such as that more was declined
			record.Step(&s.Outgoing, peering.EventSigned, "")
			record.Step(&s.Outgoing, peering.EventLinkUp, "")
		}
		s.Outgoing.Contract, s.Node, s.Endpoint = ctr.Name, node, contact.Address.String()
	}); err != nil {
		return 0, err
	}
	if was != v1alpha1.StateConnected {
		r.log.Info("peer connected", "peer", peer.Name, "contract", ctr.Spec.ID, "node", node)
		r.announce(api.Event{Type: api.EventPeerConnected, Severity: api.SeverityInfo, Peer: peer.Name, Object: "node/" + node,
			Message: fmt.Sprintf("%s is a node of this cluster, with %s", peer.Name, record.Granted(ctr.Spec.Resources))})
	}
	return again, record.SetContract(ctx, r.client, ctr, v1alpha1.StateConnected, "")
}

// nodeReady tells whether the scheduler may use a node: it goes by the taint that the node controller takes off a moment
// after the condition says Ready. Pods made in between would all stay at home.
func (r *Consumer) nodeReady(ctx context.Context, name string) bool {
	var node corev1.Node
	if r.client.Get(ctx, client.ObjectKey{Name: name}, &node) != nil {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	}) {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (r *Consumer) lost(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, why string) error {
	was := record.StateOf(peer.Status.Outgoing)
	if err := r.set(ctx, peer, peering.EventLinkLost, why); err != nil {
		return err
	}
	if was == v1alpha1.StateConnected {
		r.log.Warn("peer unreachable", "peer", peer.Name, "why", why)
		r.announce(api.Event{Type: api.EventPeerUnreachable, Severity: api.SeverityWarning, Peer: peer.Name,
			Message: peer.Name + " cannot be reached: " + why})
	}
	return record.SetContract(ctx, r.client, ctr, v1alpha1.StateUnreachable, why)
}

// set takes the outgoing direction one step.
func (r *Consumer) set(ctx context.Context, peer *v1alpha1.Peer, e peering.Event, why string) error {
	return record.PatchStatus(ctx, r.client, peer, func(s *v1alpha1.PeerStatus) {
		record.Step(&s.Outgoing, e, why)
		if e == peering.EventCleared || e == peering.EventEnded {
			settle(&s.Outgoing)
		}
		if e == peering.EventCleared {
			s.Outgoing.Contract = ""
		}
	})
}

// end deletes the contract; its own reconciler does the rest.
func (r *Consumer) end(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, why string) error {
	if err := r.set(ctx, peer, peering.EventEnded, why); err != nil {
		return err
	}
	return record.EndContract(ctx, r.client, ctr, why)
}
