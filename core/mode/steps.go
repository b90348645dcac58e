package mode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/peering"
	"kith.dev/core/relations/record"
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

// follow is the journal after the step is done.
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
	staleContract = 10 * time.Second // after which a contract of before is taken for what the company wants
	leavePatience = 2 * time.Minute
	awayPatience  = 3 * time.Second // in leaving, of a company that does not answer: a connection that takes longer does not come about
	endPatience   = time.Minute
	endLook       = 200 * time.Millisecond
	oneCall       = 10 * time.Second
	goodbye       = 2 * time.Second
)

// errNoCluster is why a step waits that needs the API server here.
var errNoCluster = &waiting{why: "the Kubernetes of this laptop does not answer yet", after: time.Second}

// gone is the way back because the Peer was deleted.
func gone(j *journal) error {
	return &failed{code: api.CodeConflict, why: "the Peer " + j.Peer + " was deleted here", force: true}
}

// object reads the Peer past the cache. nil: it is gone, or another cluster has its name.
func object(ctx context.Context, c *Cluster, j *journal) (*v1alpha1.Peer, error) {
	var peer v1alpha1.Peer
	if err := c.Fresh.Get(ctx, client.ObjectKey{Name: j.Peer}, &peer); apierrors.IsNotFound(err) || err == nil && peer.Spec.ID != j.ID {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the peer %s: %w", j.Peer, err)
	}
	return &peer, nil
}

// wish is what is written into the Peer of the company.
func wish(j *journal) *v1alpha1.ResourceRequest {
	request := &v1alpha1.ResourceRequest{Tether: true, Attempt: j.Attempt}
	if j.Confirmed {
		request.Confirm = &v1alpha1.Confirm{Attempt: j.Attempt, ID: j.ID}
	}
	return request
}

// ask has relations ask the company, and waits for what its owner or policy says.
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
		return gone(j)
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

// confirmation is what the owner has to agree to before the company's yes counts.
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

// stop turns off what decides here. Hosting binds guests only then: two would bind the same pod otherwise.
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

// join has the company make the contract, and waits until this laptop is its node.
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
	if contact := m.cfg.Directory.Contact(m.peer(ctx, j)); !contact.Reachable {
		if late {
			return tooLate(contact.Why)
		}
		return &waiting{why: j.Peer + " does not answer: " + contact.Why, after: longest}
	}
	if !m.told {
		if err := rivals(ctx, c, j); err != nil {
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
		m.told = err == nil
		return orWait(err, &waiting{after: time.Nanosecond})
	}
	ctr, err := m.contract(ctx, c, j)
	if err != nil {
		return err
	}
	peer, err := object(ctx, c, j)
	switch {
	case err != nil:
		return err
	case peer == nil:
		return gone(j)
	case ctr != nil && (revision(ctr) != j.Former || time.Since(m.began) > staleContract) && peer.Status.Incoming.State == v1alpha1.StateConnected:
		return nil
	case late:
		return tooLate(cmp.Or(peer.Status.Incoming.Why, "the contract is "+string(record.StateOf(peer.Status.Incoming))))
	}
	return &waiting{why: peer.Status.Incoming.Why, after: 2 * time.Second}
}

// rivals is the way back because a peering came about since the owner's wish was weighed.
func rivals(ctx context.Context, c *Cluster, j *journal) error {
	f := facts{peer: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: j.Peer}, Spec: v1alpha1.PeerSpec{ID: j.ID}}, now: time.Now()}
	var all v1alpha1.ContractList
	if err := c.Fresh.List(ctx, &all); err != nil {
		return fmt.Errorf("list the contracts: %w", err)
	}
	f.contracts = all.Items
	for _, b := range append(f.offering(), f.consuming()...) {
		return &failed{code: api.CodeConflict, why: b.What, do: b.Do}
	}
	return nil
}

// final reports whether a company's no will be the same the next time.
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

// begin tells the company to have this laptop.
func (m *Machine) begin(ctx context.Context, j *journal) (*peering.TetherGrant, error) {
	to, err := m.reach(m.peer(ctx, j))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, oneCall)
	defer cancel()
	answer, err := to.BeginTether(ctx)
	return answer.Grant, err
}

// contract is the live one under which the company has this laptop; nil when there is none.
func (m *Machine) contract(ctx context.Context, c *Cluster, j *journal) (*v1alpha1.Contract, error) {
	list, err := contracts(ctx, c.Client, j)
	return record.Live(list), err
}

// contracts are all under which the company has, or had, this laptop.
func contracts(ctx context.Context, c client.Reader, j *journal) (list []v1alpha1.Contract, err error) {
	all, err := record.Contracts(ctx, c, j.Peer, v1alpha1.RoleProvider)
	peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: j.ID}}
	for i := range all {
		if !record.OfAnotherKey(&all[i], peer) {
			list = append(list, all[i])
		}
	}
	return list, err
}

func revision(ctr *v1alpha1.Contract) string {
	return fmt.Sprintf("%s/%d", ctr.Spec.ID, ctr.Spec.Revision)
}

// lead is done when the front door was led: that is seen to before every step.
func (m *Machine) lead(context.Context, *journal) error { return nil }
