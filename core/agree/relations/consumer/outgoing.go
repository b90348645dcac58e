package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Outgoing is the table of what to do in the direction in which this cluster consumes.
// again is when a contract has to be renewed, zero when nothing is known of that.
func (r *Consumer) Outgoing(ctx context.Context, peer *v1alpha1.Peer, contact peering.Contact, contracts []*v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	ctr, out := ledger.Live(contracts), peer.Status.Outgoing
	switch wants := peer.Spec.Request != nil; {
	case ctr != nil && !wants:
		r.withdraw(ctx, peer, out.RequestID, false)
		return 0, r.end(ctx, peer, ctr, v1alpha1.EndedHere)
	case ctr != nil && time.Now().After(ctr.Spec.NotAfter.Time):
		return 0, r.end(ctx, peer, ctr, v1alpha1.EndRanOut)
	case ctr != nil:
		return r.keep(ctx, peer, contact, ctr, syncErr)
	case len(contracts) > 0: // the contract's own reconciler goes on
		return 0, r.set(ctx, peer, peering.EventEnded, contracts[0].Status.Why)
	case !wants:
		r.stopWaiting(peer.Name)
		r.withdraw(ctx, peer, out.RequestID, false)
		return 0, r.set(ctx, peer, peering.EventCleared, "")
	case peer.Spec.Request.Attempt > out.Attempt:
		return 0, r.ask(ctx, peer)
	case record.StateOf(out) == v1alpha1.StateRequested:
		return 0, r.pend(ctx, peer)
	}
	return 0, nil
}

// keep runs a contract: node, link, state, and its renewal in time.
func (r *Consumer) keep(ctx context.Context, peer *v1alpha1.Peer, contact peering.Contact, ctr *v1alpha1.Contract, syncErr error) (again time.Duration, err error) {
	if peer.Status.Network.Linked() || sharing.NoNetwork(ctr) {
		if err := r.Fleet.Ensure(ctx, peer, ctr); err != nil {
			return 0, err
		}
	}
	there := contact.Presence
	if syncErr != nil {
		there.Cause, there.Why = presence.NotInStep, syncErr.Error()
	}
	r.Fleet.SetPresence(peer.Name, there)
	if !there.Works() {
		return 0, r.lost(ctx, peer, ctr, there.Why)
	}
	if again, err = r.revise(ctx, peer, ctr); err != nil {
		return 0, err
	}
	node := v1alpha1.VirtualNodePrefix + peer.Name
	if !r.nodeReady(ctx, node) {
		return again, nil // its next change comes back here
	}
	was := record.StateOf(peer.Status.Outgoing)
	if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		if record.Finished(s.Outgoing) { // what stands there is of a contract before this one
			s.Outgoing.State = v1alpha1.StateNone
			record.Step(&s.Outgoing, peering.EventAsked, "")
		}
		if was != v1alpha1.StateConnected { // else what is said of it stands, such as that more was declined
			record.Step(&s.Outgoing, peering.EventSigned, "")
			record.Step(&s.Outgoing, peering.EventLinkUp, "")
		}
		s.Outgoing.Contract, s.Node = ctr.Name, node
		if contact.At.IsValid() { // else it is passed on, and what is known of a way by UDP stays
			s.Endpoint = contact.At.String()
		}
	}); err != nil {
		return 0, err
	}
	if was != v1alpha1.StateConnected {
		r.Log.Info("peer connected", "peer", peer.Name, "contract", ctr.Spec.ID, "node", node)
		r.Announce(api.Event{Type: api.EventPeerConnected, Severity: api.SeverityInfo, Peer: peer.Name, Object: "node/" + node,
			Message: fmt.Sprintf("%s is a node of this cluster, with %s", peer.Name, record.Granted(ctr.Spec.Resources))})
	}
	return again, record.SetContract(ctx, r.Client, ctr, v1alpha1.StateConnected, "")
}

// nodeReady tells whether the scheduler may use a node: it goes by the taint that the node controller takes off a moment
// after the condition says Ready. Pods made in between would all stay at home.
func (r *Consumer) nodeReady(ctx context.Context, name string) bool {
	var node corev1.Node
	if r.Client.Get(ctx, client.ObjectKey{Name: name}, &node) != nil {
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
		r.Log.Warn("peer unreachable", "peer", peer.Name, "why", why)
		r.Announce(api.Event{Type: api.EventPeerUnreachable, Severity: api.SeverityWarning, Peer: peer.Name,
			Message: peer.Name + " cannot be reached: " + why})
	}
	return record.SetContract(ctx, r.Client, ctr, v1alpha1.StateUnreachable, why)
}

// set takes the outgoing direction one step.
func (r *Consumer) set(ctx context.Context, peer *v1alpha1.Peer, e peering.Event, why string) error {
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
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
func (r *Consumer) end(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract, reason v1alpha1.EndReason) error {
	if err := r.set(ctx, peer, peering.EventEnded, record.Ended(reason, peer.Name)); err != nil {
		return err
	}
	return record.EndContract(ctx, r.Client, ctr, reason)
}

// revise goes on with what was asked on top of a contract in force, and renews the contract when its time comes. again says
// when that is.
func (r *Consumer) revise(ctx context.Context, peer *v1alpha1.Peer, ctr *v1alpha1.Contract) (again time.Duration, err error) {
	switch out := peer.Status.Outgoing; {
	case peer.Spec.Request.Attempt > out.Attempt && record.StateOf(out) == v1alpha1.StateConnected:
		return 0, r.ask(ctx, peer)
	case out.RequestID != "" || Asking(out): // what is in force does not wait for it
		if err := r.pend(ctx, peer); err != nil {
			return 0, err
		}
	default:
		r.stopWaiting(peer.Name)
	}
	if l := ctr.Status.Lowering; l != nil && !time.Now().Before(l.From.Time) { // before a renewal, which is of what is granted then
		return r.lower(ctx, peer, ctr, l)
	}
	return r.renew(ctx, peer, ctr)
}

// Wanted is all that the request of a Peer asks for. What it does not name stays as the contract in force grants it, which may be
// nil: then it is up to the provider. Of a laptop that this cluster runs it is all there is, whatever was in force before.
func Wanted(peer *v1alpha1.Peer, inForce *v1alpha1.Contract) corev1.ResourceList {
	wanted := corev1.ResourceList{}
	if inForce != nil && peer.Spec.Tethered == nil {
		maps.Copy(wanted, inForce.Grants(time.Now()))
	}
	if peer.Spec.Request != nil {
		maps.Copy(wanted, peer.Spec.Request.Resources)
	}
	return wanted
}

// InForce is the contract in force under which this cluster consumes from a peer; nil when there is none.
func InForce(now *ledger.Snapshot, peer *v1alpha1.Peer) *v1alpha1.Contract {
	return ledger.Live(slices.DeleteFunc(now.With(peer.Name, v1alpha1.RoleConsumer), func(ctr *v1alpha1.Contract) bool {
		return ctr.Name != peer.Status.Outgoing.Contract || record.OfAnotherKey(ctr, peer)
	}))
}
