package mode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// facts is all that decides whether this laptop can be tethered to a peer.
type facts struct {
	self       string // ID of this cluster
	peer       *v1alpha1.Peer
	mode       *journal // nil: autonomous
	ours, door bool
	ready      bool // the API server answers, and what follows is known
	ledger.Snapshot
	pods      []corev1.Pod
	workloads api.LocalWorkloads
	contact   peering.Contact
	answer    peering.Tether
	err       error // in place of the answer
	now       time.Time
}

// Check says what a tether to the peer would change, and what prevents it. It is a dry run.
func (m *Machine) Check(ctx context.Context, peer *v1alpha1.Peer) (api.TetherCheck, error) {
	f, blocked, err := m.weigh(ctx, peer, api.KeepWorkloads)
	if err != nil {
		return api.TetherCheck{}, err
	}
	return api.TetherCheck{Peer: peer.Name, Blockers: blocked, Effects: f.effects()}, nil
}

func (m *Machine) weigh(ctx context.Context, peer *v1alpha1.Peer, workloads api.LocalWorkloads) (*facts, []api.Problem, error) {
	f := &facts{
		self: m.cfg.ID, peer: peer, mode: m.now.Load(), ours: m.cfg.Ours && m.cfg.Engine != nil, door: m.cfg.Door != nil, workloads: workloads, now: time.Now(),
	}
	if c := m.cfg.Cluster(); c != nil && f.ours {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods); err != nil {
			return nil, nil, fmt.Errorf("look for what is in the way of a tether to %s: %w", peer.Name, err)
		}
		f.ready, f.Snapshot, f.pods = true, *c.Client.Now(), pods.Items
	}
	if f.mode == nil && peer.Spec.ID != m.cfg.ID {
		if f.contact = m.cfg.Directory.Contact(peer); f.contact.Reachable() {
			to, err := m.reach(peer)
			if err == nil {
				bounded, cancel := context.WithTimeout(ctx, oneCall)
				f.answer, err = to.Tether(bounded)
				cancel()
			}
			f.err = err
		}
	}
	return f, f.blockers(), ctx.Err()
}

// blockers are all that is in the way, each with what to do about it.
func (f *facts) blockers() (list []api.Problem) {
	add := func(what, why, do string) {
		list = append(list, api.Problem{Severity: api.SeverityError, What: what, Why: why, Do: do})
	}
	if j := f.mode; j != nil {
		what := "this laptop is tethered to " + j.Peer
		if j.Step != tethered {
			what = fmt.Sprintf("a switch is under way: "+stages[j.Step].words, j.Peer)
		}
		add(what, "", "`kith untether` first")
		return list
	}
	if f.peer.Spec.ID == f.self {
		add(f.peer.Name+" is this laptop itself", "", "name another one: `kith peers` lists them")
		return list
	}
	if !f.ours {
		add("the Kubernetes here is not Kith's own", "Kith cannot stop what decides in a cluster that it does not run",
			"`engine: builtin` in kithd's configuration; a cluster of a kubeconfig can run others' laptops")
	}
	if !f.door {
		add("the front door is off", "without it kubectl here would go on asking this laptop", "set frontDoorPort in kithd's configuration, then `kith kubeconfig`")
	}
	if f.ours && !f.ready {
		add("the Kubernetes of this laptop is not ready", "", "try again in a moment; `kith status` says what it waits for")
	}
	for _, b := range slices.Concat(f.offering(), f.consuming(), f.pending(), f.ofPeer()) {
		add(b.What, b.Why, b.Do)
	}
	if lost := f.loose(); f.workloads == api.DrainWorkloads && len(lost) > 0 {
		add("a drain would lose "+some(lost, len(lost)), "no controller makes them again", "delete them, or tether with --local-workloads=keep")
	}
	return list
}

// inForce gives the peers with contracts in a role whose time is not over.
func (f *facts) inForce(role v1alpha1.Role) (names []string) {
	for _, ctr := range f.Contracts {
		over := ctr.Spec.NotAfter != nil && f.now.After(ctr.Spec.NotAfter.Time)
		if ctr.Spec.Role == role && !over && !slices.Contains(names, ctr.Spec.Peer) {
			names = append(names, ctr.Spec.Peer)
		}
	}
	slices.Sort(names)
	return names
}

// offering: this laptop may give resources to the company and to nobody else.
func (f *facts) offering() (list []api.Problem) {
	for _, name := range f.inForce(v1alpha1.RoleProvider) {
		if name != f.called() {
			list = append(list, api.Problem{What: "this laptop offers resources to " + name, Why: "a tethered laptop is " + f.peer.Name + "'s alone", Do: "`kith unpeer " + name + "`"})
		}
	}
	return list
}

// called is the peer's name in contracts, which may differ from the name by which the caller asked.
func (f *facts) called() string {
	return cmp.Or(f.Peer(f.peer.Spec.ID), f.peer).Name
}

func (f *facts) consuming() (list []api.Problem) {
	names := f.inForce(v1alpha1.RoleConsumer)
	for _, name := range names {
		abroad := 0
		for i := range f.pods {
			if v1alpha1.AtPeer(f.pods[i].Spec.NodeName, name) && !v1alpha1.Ended(f.pods[i].Status.Phase) {
				abroad++
			}
		}
		why := ""
		switch {
		case abroad == 1:
			why = "1 pod of this laptop runs there"
		case abroad > 1:
			why = fmt.Sprintf("%d pods of this laptop run there", abroad)
		}
		list = append(list, api.Problem{What: "this laptop uses resources of " + name, Why: why, Do: "`kith unpeer " + name + "` brings home what runs there"})
	}
	for _, p := range f.Peers {
		if p.Spec.Tethered != nil && !slices.Contains(names, p.Name) {
			list = append(list, api.Problem{What: "the laptop " + p.Name + " is tethered to this one", Do: "`kith unpeer " + p.Name + "` gives it back to its owner"})
		}
	}
	return list
}

// pending are requests that nobody answered yet, in either direction.
func (f *facts) pending() (list []api.Problem) {
	for _, p := range f.Peers {
		if r := p.Spec.Request; r != nil && (record.StateOf(p.Status.Outgoing) == v1alpha1.StateRequested || r.Attempt > p.Status.Outgoing.Attempt) {
			list = append(list, api.Problem{What: "a request to " + p.Name + " is pending", Do: "`kith unpeer " + p.Name + "` takes it back"})
		}
	}
	for _, r := range f.Requests {
		if (r.Status.Answer == "" || r.Status.Answer == v1alpha1.AnswerPending) && f.now.Before(r.Spec.Expires.Time) {
			list = append(list, api.Problem{What: fmt.Sprintf("a request of %s waits for your answer", r.Spec.PeerName),
				Do: fmt.Sprintf("`kith decline %s`, or answer it and end the peering", r.Name)})
		}
	}
	return list
}

// ofPeer lists the blockers at the peer's side.
func (f *facts) ofPeer() []api.Problem {
	name := f.peer.Name
	var no *peering.Problem
	switch {
	case !f.contact.Reachable():
		return []api.Problem{{What: name + " cannot be reached", Why: f.contact.Why, Do: "`kith doctor` looks for what is in the way"}}
	case errors.As(f.err, &no) && no.Code == peering.CodeVersion:
		return []api.Problem{{What: name + " cannot run laptops", Why: no.Message, Do: cmp.Or(no.Do, "update Kith there")}}
	case f.err != nil:
		return []api.Problem{{What: name + " did not say whether it would run this laptop", Why: f.err.Error(), Do: "try again; `kith doctor` looks for what is in the way"}}
	case f.answer.Answer == peering.TetherNo:
		return []api.Problem{{What: name + " does not run this laptop", Why: cmp.Or(f.answer.Why, "no policy there allows it"), Do: "ask its owner for a TetherPolicy that selects this laptop"}}
	}
	return nil
}

// loose names the owner's pods without a controller, which a drain would lose.
func (f *facts) loose() (names []string) {
	for i := range f.pods {
		if drainClassOf(&f.pods[i]) == drainOrphan {
			names = append(names, f.pods[i].Namespace+"/"+f.pods[i].Name)
		}
	}
	return names
}

// effects are what would happen, for the owner to read before.
func (f *facts) effects() []string {
	name := f.peer.Name
	where := "where its RBAC lets this laptop's users work"
	if g := f.answer.Grant; g != nil && len(g.Namespaces) > 0 {
		where = "as " + g.User + ", in " + strings.Join(words(g.Namespaces), ", ")
	}
	list := []string{
		fmt.Sprintf("kubectl here asks the cluster of %s, %s; what is in this laptop's own is out of reach until it is untethered.", name, where),
		fmt.Sprintf("%s decides what runs here: all of this laptop that is free becomes a node of its cluster; what its pods may do here is as your SharingPolicy says.", name),
	}
	if slices.Contains(f.inForce(v1alpha1.RoleProvider), f.called()) {
		list = append(list, fmt.Sprintf("The contract that %s has with this laptop becomes that of the tether, and ends with it.", name))
	}
	own := 0
	for i := range f.pods {
		if k := drainClassOf(&f.pods[i]); k != drainIgnore {
			own++
		}
	}
	switch {
	case own == 0:
		list = append(list, "Nothing of yours runs here now; nothing of yours is started or replaced until this laptop is untethered.")
	default:
		list = append(list, fmt.Sprintf("%s of yours run on and keep what they request (--local-workloads=keep), or are ended first and made again after (drain); "+
			"none is replaced meanwhile.", count(own, "pod")))
	}
	if f.answer.Answer == peering.TetherAsks {
		list = append(list, fmt.Sprintf("The owner of %s is asked first.", name))
	}
	return append(list, "`kith untether` takes this laptop back at any time.")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
