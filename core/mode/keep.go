package mode

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/suspend"
	"kith.dev/core/local/frontdoor"
)

const (
	settling = 5 * time.Second  // what a kithd that has just started gets to find the company
	waking   = 20 * time.Second // what a laptop that woke from sleep gets to find its network
	askAgain = 15 * time.Second
	wallLook = 30 * time.Second // a timer stands still while the laptop sleeps, and the clock on the wall does not
)

// home is where the front door of an autonomous laptop leads.
const home = "home"

// point leads the front door to the local API server, the company's, or a refusal, depending on the step and on whether the company answers.
func (m *Machine) point(j *journal) {
	if m.cfg.Door == nil {
		return
	}
	if !stages[j.Step].away || !j.Held {
		if m.led != home {
			if err := m.leadHome(); err != nil {
				m.cfg.Log.Info("the front door does not lead home yet", "err", err)
			}
		}
		return
	}
	var to frontdoor.Destination
	var err error
	key := "company"
	leads := m.cfg.Directory.Contact(m.peer(j)).Reachable() && stages[j.Step].mode != api.Untethering // while untethering, the company may revoke the users' rights at any moment
	if leads {
		to, err = m.cfg.Company(m.peer(j))
	}
	if !leads || err != nil {
		to = m.refusal(j)
		key = to.Refusal
	}
	if m.led != key {
		m.cfg.Door.Lead(to)
		m.led = key
	}
}

func (m *Machine) leadHome() error {
	to, err := m.cfg.Home()
	if err != nil {
		return err
	}
	m.cfg.Door.Lead(to)
	m.led = home
	return nil
}

// refusal makes the front door answer 503 while the company does not answer.
func (m *Machine) refusal(j *journal) frontdoor.Destination {
	switch {
	case stages[j.Step].mode == api.Untethering:
		return frontdoor.Destination{Soon: true, Refusal: "this laptop is being untethered from " + j.Peer + ", and answers for itself in a moment"}
	case j.Down.IsZero():
		return frontdoor.Destination{Soon: true, Refusal: "tethered to " + j.Peer + ", which does not answer at this moment"}
	}
	return frontdoor.Destination{Refusal: m.lostSince(j)}
}

// lostSince is the sentence on a company that does not answer.
func (m *Machine) lostSince(j *journal) string {
	itself := ""
	if until := m.until(j); !until.IsZero() {
		itself = ", or by itself at " + clock(until)
	}
	return fmt.Sprintf("tethered to %s, which has not answered since %s: the pods it runs here go on, and requests are answered again when it does; "+
		"`kith untether --force` takes this laptop back%s", j.Peer, clock(j.Down), itself)
}

func clock(t time.Time) string { return t.Local().Format("15:04:05 on 2 January") }

// until is when the tether ends by itself if the company does not answer before; zero: never.
func (m *Machine) until(j *journal) time.Time {
	if m.cfg.Patience <= 0 || j.Down.IsZero() || j.Step != tethered {
		return time.Time{}
	}
	return j.Down.Add(m.cfg.Patience)
}

// peer is the company's Peer, or what is known of it while the API server here does not answer.
func (m *Machine) peer(j *journal) *v1alpha1.Peer {
	if c := m.cfg.Cluster(); c != nil {
		if peer := known(c, j); peer != nil {
			return peer
		}
	}
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: j.Peer}, Spec: v1alpha1.PeerSpec{ID: j.ID}}
}

func known(c *Cluster, j *journal) *v1alpha1.Peer {
	if peer := c.Client.Now().PeerNamed(j.Peer); peer != nil && peer.Spec.ID == j.ID {
		return peer
	}
	return nil
}

// keep is the step of a tethered laptop. It watches whether the company answers, and whether its contract still exists.
func (m *Machine) keep(ctx context.Context, j *journal) error {
	m.still(ctx)
	contact := m.cfg.Directory.Contact(m.peer(j))
	if c := m.cfg.Cluster(); c != nil {
		if err := m.owned(ctx, c, j); err != nil {
			return err
		}
	}
	if !contact.Reachable() {
		return m.missed(j, contact.Presence)
	}
	if !j.Down.IsZero() {
		next := *j
		next.Down = time.Time{}
		return m.again(j, &next)
	}
	c := m.cfg.Cluster()
	if c == nil {
		return errNoCluster
	}
	if m.contract(c, j) != nil {
		return &waiting{}
	}
	return m.without(ctx, j)
}

// still turns the engine's scheduler and controllers off, once per process. Engine.Decide writes the wish to the disk at once; if the
// engine does not answer yet, its supervisor repeats it later.
func (m *Machine) still(ctx context.Context) {
	if m.delivered {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	if err := m.cfg.Engine.Decide(bounded, false); err != nil {
		m.cfg.Log.Info("what decides here is not known to have stopped yet", "err", err)
		return
	}
	if c := m.cfg.Cluster(); c != nil {
		c.SetBinding(true)
		m.delivered = true
	}
}

// again replaces the journal and stays at the same step.
func (m *Machine) again(from, to *journal) error {
	return orWait(m.put(from, to), &waiting{after: time.Nanosecond})
}

func orWait(err error, wait *waiting) error {
	if err != nil {
		return err
	}
	return wait
}

// owned fails, which ends the tether, when the owner deleted the Peer or its spec.request by other means than kith untether.
func (m *Machine) owned(ctx context.Context, c *Cluster, j *journal) error {
	if peer := known(c, j); peer != nil && peer.Spec.Request != nil {
		return nil
	}
	switch peer, err := object(ctx, c, j); { // it ends for good, so the API server has the word
	case err != nil:
		return err
	case peer == nil:
		return peerDeleted(j)
	case peer.Spec.Request == nil:
		return &failed{code: api.CodeConflict, why: "the request to " + j.Peer + " was taken back here"}
	}
	return nil
}

// missed handles a company that does not answer: after the grace the loss goes into the journal (Down), after Config.Patience it ends
// the tether.
func (m *Machine) missed(j *journal, there presence.Presence) error {
	at := time.Now()
	if suspend.Between(m.looked, at) {
		m.awake = at
	}
	m.looked = at
	if there.Since.IsZero() { // it is not looked for yet
		there.Since = m.awake
	}
	if j.Down.IsZero() {
		left, _ := presence.Company.Left(there, now())
		if rest := max(left, settling-time.Since(m.awake)); rest > 0 {
			return &waiting{after: rest}
		}
		next := *j
		next.Down = there.Since.Round(0)
		if heard := there.Heard.Round(0); !heard.IsZero() && heard.Before(next.Down) {
			next.Down = heard
		}
		return m.again(j, &next)
	}
	wait := &waiting{why: fmt.Sprintf("%s has not answered since %s: %s", j.Peer, clock(j.Down), there.Why)}
	if m.cfg.Patience <= 0 {
		return wait
	}
	rest := max(m.until(j).Sub(now()), waking-time.Since(m.awake))
	if rest <= 0 {
		return &failed{code: api.CodePeerUnreachable, force: true,
			why: fmt.Sprintf("%s did not answer for %v since %s (autoUntetherAfter)", j.Peer, m.cfg.Patience, clock(j.Down))}
	}
	wait.after = min(rest, wallLook)
	return wait
}

// without handles a tether whose contract has ended while the company answers: either the company has ended the tether, or it will ask for a
// new contract.
func (m *Machine) without(ctx context.Context, j *journal) error {
	wait := &waiting{why: "the contract with " + j.Peer + " has ended, and " + j.Peer + " is to ask for the next one", after: askAgain}
	if time.Since(m.asked) < longest {
		wait.after = longest
		return wait
	}
	m.asked = time.Now()
	_, err := m.begin(ctx, j)
	var no *peering.Problem
	if errors.As(err, &no) && (no.Code == peering.CodeNotFound || no.Code == peering.CodeForbidden) {
		return &failed{code: api.CodeDeclined, why: j.Peer + " gave this laptop back"}
	}
	return wait
}

// show writes the step into the Peer's status, for kubectl, and reports whether it is there. A failure does not stop the switch.
func (m *Machine) show(ctx context.Context, j *journal) bool {
	c := m.cfg.Cluster()
	key := fmt.Sprint(j.Step, j.Since, j.User, m.heard().why)
	if c == nil || j.Step == returning || key == m.shown {
		return true
	}
	peer, err := object(ctx, c, j)
	if err != nil || peer == nil {
		return err == nil
	}
	err = record.PatchStatus(ctx, c.Client, peer, func(s *v1alpha1.PeerStatus) {
		if s.Tether == nil {
			s.Tether = &v1alpha1.TetherStatus{}
		}
		t := s.Tether
		t.Role, t.Why = v1alpha1.TetherLaptop, j.reason(m.heard())
		if j.User != "" {
			t.User = j.User
		}
		if t.Step != string(j.Step) || t.Since == nil {
			t.Step, t.Since = string(j.Step), &metav1.Time{Time: j.Since}
		}
	})
	if err != nil {
		m.cfg.Log.Info("the step of the mode's switch is not shown", "peer", j.Peer, "err", err)
		return false
	}
	m.shown = key
	return true
}
