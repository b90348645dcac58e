package mode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// step is one of the switch. What it does may be done any number of times, and broken off at any point.
type step string

const (
	asking    step = "asking"    // whether the company wants to run this laptop
	stopping  step = "stopping"  // what decides here
	draining  step = "draining"  // the owner's pods, if he wants that
	joining   step = "joining"   // the company's cluster, as a node
	leading   step = "leading"   // the front door to the company
	tethered  step = "tethered"  // at rest
	leaving   step = "leaving"   // the company, which drains the node and ends the contract
	ending    step = "ending"    // the contract here, where the company did not
	starting  step = "starting"  // what decides here
	returning step = "returning" // the front door home
)

// stage is what there is to know of a step.
type stage struct {
	mode  api.Mode
	words string // for people, with the company's name
	do    func(*Machine, context.Context, *journal) error
	next  step // "": none, the laptop is autonomous
	back  step // where the way back begins
	joins bool // the company may have a contract
	away  bool // the front door leads to the company
}

// stages is filled by init: what the steps do looks in it.
var stages map[step]stage

func init() {
	stages = map[step]stage{
		asking:    {api.Tethering, "asking %s to run this laptop", (*Machine).ask, stopping, returning, false, false},
		stopping:  {api.Tethering, "stopping what decides here, for %s", (*Machine).stop, draining, starting, false, false},
		draining:  {api.Tethering, "making room for %s", (*Machine).drain, joining, starting, false, false},
		joining:   {api.Tethering, "joining the cluster of %s", (*Machine).join, leading, leaving, true, false},
		leading:   {api.Tethering, "leading kubectl to %s", (*Machine).lead, tethered, leaving, true, true},
		tethered:  {api.Tethered, "tethered to %s", (*Machine).keep, "", leaving, true, true},
		leaving:   {api.Untethering, "waiting for %s to take away what it runs here", (*Machine).leave, ending, leaving, false, true},
		ending:    {api.Untethering, "ending the contract with %s", (*Machine).end, starting, ending, false, true},
		starting:  {api.Untethering, "starting what decides here, after %s", (*Machine).start, returning, starting, false, true},
		returning: {api.Untethering, "leading kubectl home from %s", (*Machine).comeHome, "", returning, false, false},
	}
}

func (s stage) goal() api.Mode {
	if s.mode == api.Untethering {
		return api.Autonomous
	}
	return api.Tethered
}

// follow gives the journal for the step after this one; nil when the switch home is complete.
func (s stage) follow(j *journal) *journal {
	switch {
	case s.next == "":
		return nil
	case s.next == draining && j.LocalWorkloads != api.DrainWorkloads:
		return j.to(joining)
	case s.next == leading:
		next := j.to(leading)
		next.Held = true
		return next
	}
	return j.to(s.next)
}

const (
	joinPatience  = 60 * time.Second
	staleContract = 10 * time.Second // after which an unchanged contract of before the tether is taken as the one the company wants
	leavePatience = 2 * time.Minute
	awayPatience  = 3 * time.Second // how long leaving waits for a company that does not answer: a connection takes less, or fails
	endPatience   = time.Minute
	endLook       = 200 * time.Millisecond
	oneCall       = 10 * time.Second
	goodbye       = 2 * time.Second
)

// errNoCluster is why a step waits that needs the API server here.
var errNoCluster = &waiting{why: "the Kubernetes of this laptop does not answer yet", after: time.Second}

// peerDeleted is the error that ends the switch, or the tether, because the company's Peer object was deleted here.
func peerDeleted(j *journal) error {
	return &failed{code: api.CodeConflict, why: "the Peer " + j.Peer + " was deleted here", force: true}
}

// object reads the Peer from the API server, not the cache. nil: it was deleted, or its name is now another cluster's.
func object(ctx context.Context, c *Cluster, j *journal) (*v1alpha1.Peer, error) {
	var peer v1alpha1.Peer
	if err := c.Fresh.Get(ctx, client.ObjectKey{Name: j.Peer}, &peer); apierrors.IsNotFound(err) || err == nil && peer.Spec.ID != j.ID {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the peer %s: %w", j.Peer, err)
	}
	return &peer, nil
}

// wish is the spec.request for the company's Peer that asks it to tether this laptop.
func wish(j *journal) *v1alpha1.ResourceRequest {
	request := &v1alpha1.ResourceRequest{Tether: true, Attempt: j.Attempt}
	if j.Confirmed {
		request.Confirm = &v1alpha1.Confirm{Attempt: j.Attempt, ID: j.ID}
	}
	return request
}

// ask writes the request into the company's Peer, which core/agree/relations sends, and waits until the company's owner or policy answers.
func (m *Machine) ask(ctx context.Context, j *journal) error {
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	peer, err := object(ctx, c, j)
	switch {
	case err != nil:
		return err
	case peer == nil:
		return peerDeleted(j)
	}
	out, state := peer.Status.Outgoing, peer.Status.Tether
	switch wants := peer.Spec.Request != nil && peer.Spec.Request.Tether && peer.Spec.Request.Attempt == j.Attempt; {
	case !wants && out.Attempt >= j.Attempt:
		return &failed{code: api.CodeConflict, why: "the request to " + j.Peer + " was taken back here"}
	case !wants:
		before := peer.DeepCopy()
		peer.Spec.Request = wish(j)
		if err := c.Client.Patch(ctx, peer, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("ask %s: %w", j.Peer, err)
		}
	case state != nil && state.Accepted == j.Attempt:
		return nil
	case out.Attempt == j.Attempt && out.State == v1alpha1.StateDeclined:
		return &failed{code: api.CodeDeclined, why: cmp.Or(out.Why, j.Peer+" declined")}
	case out.Attempt == j.Attempt && out.State == v1alpha1.StateExpired:
		return &failed{code: api.CodeExpired, why: cmp.Or(out.Why, "nobody answered at "+j.Peer+" in time"), do: "`kith tether " + j.Peer + "` asks again"}
	case out.Attempt == j.Attempt:
		m.say(saying{why: out.Why, code: out.Code, confirm: confirmation(out)})
		return &waiting{why: out.Why}
	case out.Why != "" && time.Since(m.began) > joinPatience: // it was not even asked
		return &failed{code: api.CodePeerUnreachable, why: out.Why, do: "see to the connection, then `kith tether " + j.Peer + "` again"}
	}
	return &waiting{after: 2 * longest}
}

// confirmation is what this laptop's owner must confirm before the company's acceptance counts; nil: nothing.
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

// stop turns the local scheduler and controllers off. Only then may hosting bind guests to this node: two schedulers would bind the
// same pod.
func (m *Machine) stop(ctx context.Context, j *journal) error {
	if err := m.cfg.Engine.Decide(ctx, false); err != nil {
		return err
	}
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	c.SetBinding(true)
	return nil
}

// join calls BeginTether at the company, and waits until its contract is in force and this laptop is a node there.
func (m *Machine) join(ctx context.Context, j *journal) error {
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	late := time.Since(m.began) > joinPatience
	tooLate := func(why string) error {
		return &failed{code: api.CodeTimeout, why: fmt.Sprintf("%s did not make this laptop a node in %v: %s", j.Peer, joinPatience, why),
			do: "`kith doctor` looks for what is in the way"}
	}
	if contact := m.cfg.Directory.Contact(m.peer(j)); !contact.Reachable() {
		if late {
			return tooLate(contact.Why)
		}
		return &waiting{why: j.Peer + " does not answer: " + contact.Why, after: longest}
	}
	if !m.delivered {
		if err := checkNoOtherPeering(ctx, c, j); err != nil {
			return err
		}
		grant, err := m.begin(ctx, j)
		var no *peering.Problem
		switch {
		case errors.As(err, &no) && final(no):
			return &failed{code: api.CodeDeclined, why: j.Peer + " refused: " + no.Error()}
		case err != nil && late:
			return tooLate(err.Error())
		case err != nil:
			return err
		}
		if grant == nil {
			grant = &peering.TetherGrant{}
		}
		next := *j
		next.User, next.Namespaces = grant.User, words(grant.Namespaces)
		err = m.put(j, &next)
		m.delivered = err == nil
		return orWait(err, &waiting{after: time.Nanosecond})
	}
	ctr := m.contract(c, j)
	peer, err := object(ctx, c, j)
	switch {
	case err != nil:
		return err
	case peer == nil:
		return peerDeleted(j)
	case ctr != nil && (revision(ctr) != j.Former || time.Since(m.began) > staleContract) && peer.Status.Incoming.State == v1alpha1.StateConnected:
		return nil
	case late:
		return tooLate(cmp.Or(peer.Status.Incoming.Why, "the contract is "+string(record.StateOf(peer.Status.Incoming))))
	}
	return &waiting{why: peer.Status.Incoming.Why, after: 2 * time.Second}
}

// checkNoOtherPeering fails if a contract with another peer was made since the blockers were checked: a laptop is tethered only
// while it has no other peering.
func checkNoOtherPeering(ctx context.Context, c *Cluster, j *journal) error {
	now, err := ledger.Read(ctx, c.Fresh) // whoever signed it
	if err != nil {
		return err
	}
	f := facts{Snapshot: *now, peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: j.Peer}, Spec: v1alpha1.PeerSpec{ID: j.ID}}, now: time.Now()}
	for _, b := range append(f.offering(), f.consuming()...) {
		return &failed{code: api.CodeConflict, why: b.What, do: b.Do}
	}
	return nil
}

// final reports whether trying again after this refusal is useless.
func final(no *peering.Problem) bool {
	switch no.Code {
	case peering.CodeForbidden, peering.CodeNotFound, peering.CodeDeclined, peering.CodeExpired, peering.CodeVersion, peering.CodeConflict:
		return true
	}
	return false
}

func words(namespaces []peering.TetherNamespace) (list []string) {
	for _, n := range namespaces[:min(len(namespaces), maxNamed)] {
		list = append(list, n.Name+" ("+n.Role+")")
	}
	return list
}

// begin calls BeginTether at the company, for at most oneCall.
func (m *Machine) begin(ctx context.Context, j *journal) (*peering.TetherGrant, error) {
	to, err := m.reach(m.peer(j))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, oneCall)
	defer cancel()
	answer, err := to.BeginTether(ctx)
	return answer.Grant, err
}

// contract is the contract in force under which the company runs pods here; nil when there is none.
func (m *Machine) contract(c *Cluster, j *journal) *v1alpha1.Contract {
	return ledger.Live(contracts(c, j))
}

// contracts lists all contracts, also ended ones, that the company's current key has or had with this laptop as provider.
func contracts(c *Cluster, j *journal) []*v1alpha1.Contract {
	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: j.ID}}
	return slices.DeleteFunc(c.Client.Now().With(j.Peer, v1alpha1.RoleProvider), func(ctr *v1alpha1.Contract) bool { return record.OfAnotherKey(ctr, peer) })
}

func revision(ctr *v1alpha1.Contract) string {
	return fmt.Sprintf("%s/%d", ctr.Spec.ID, ctr.Spec.Revision)
}

// lead has nothing to do: point redirects the front door before every step.
func (m *Machine) lead(context.Context, *journal) error { return nil }
