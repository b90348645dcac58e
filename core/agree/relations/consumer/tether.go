package consumer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Mode says who has all of this laptop.
type Mode interface {
	// Company is the ID of the cluster that runs this laptop or is about to; "" for none. joins: it may have a contract now.
	Company() (id string, joins bool)
}

// autonomous is the mode of a cluster that no other can run.
type autonomous struct{}

func (autonomous) Company() (string, bool) { return "", false }

// tetherOf is what the question to a peer has to do with a tether.
func tetherOf(peer *v1alpha1.Peer) peering.TetherAsk {
	switch {
	case peer.Spec.Request != nil && peer.Spec.Request.Tether:
		return peering.TetherLaptop
	case peer.Spec.Tethered != nil:
		return peering.TetherCompany
	}
	return peering.TetherNone
}

// unfit says why the mode of this laptop does not permit a request; "" when it does.
func (r *Consumer) unfit(peer *v1alpha1.Peer) (why string) {
	company, joins := r.Mode.Company()
	switch wish := tetherOf(peer) == peering.TetherLaptop; {
	case wish && company != peer.Spec.ID:
		return fmt.Sprintf("`kith tether %s` asks for that", peer.Name)
	case wish && joins:
		return "this laptop is tethered to it"
	case !wish && company != "":
		return "this laptop is tethered, and another cluster decides what it uses (`kith untether`)"
	}
	return ""
}

// considerTether continues a tether request that the company accepted, if the owner has confirmed all that is needed: it sets the accepted attempt
// in the Peer's status, for which core/mode waits.
func (r *Consumer) considerTether(ctx context.Context, peer *v1alpha1.Peer, grant *peering.TetherGrant) error {
	switch a, why, alarm := agree(peer, nil); a {
	case agreeNever:
		return r.takeBack(ctx, peer, why, alarm)
	case agreeWait:
		return r.showConfirm(ctx, peer, nil)
	}
	attempt := peer.Status.Outgoing.Attempt
	if err := record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		if !sharing.Accepted(peer) {
			record.AcceptKey(s, "OwnerConfirmed")
		}
		if s.Tether == nil {
			s.Tether = &v1alpha1.TetherStatus{}
		}
		s.Tether.Role, s.Tether.Accepted, s.Tether.User = v1alpha1.TetherLaptop, attempt, grant.User
		record.Step(&s.Outgoing, peering.EventCleared, "")
		settle(&s.Outgoing)
	}); err != nil {
		return err
	}
	r.Log.Info("accepted by a company", "peer", peer.Name, "user", grant.User)
	r.Announce(api.Event{Type: api.EventRequestAnswered, Severity: api.SeverityInfo, Peer: peer.Name,
		Message: peer.Name + " agrees to run this laptop", Direction: api.Outgoing, State: api.StateNone})
	return nil
}

// another says that the answer is to a question that was not asked.
func another(peer *v1alpha1.Peer, outcome peering.Outcome) bool {
	wish := tetherOf(peer) == peering.TetherLaptop
	return wish != (outcome.Tether != nil)
}

// takenBack records that a laptop says it is no longer tethered to this cluster.
func (r *Consumer) takenBack(ctx context.Context, peer *v1alpha1.Peer, problem *peering.Problem) error {
	if problem.Code != peering.CodeNotTethered || peer.Spec.Tethered == nil {
		return nil
	}
	return record.PatchStatus(ctx, r.Client, peer, func(s *v1alpha1.PeerStatus) {
		s.Tether = &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany, Step: v1alpha1.TetherStepRefused, Why: problem.Message, Since: new(metav1.Now())}
	})
}
