package mode

import (
	"context"
	"fmt"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// BlockedError is the refusal of a tether: all that is in its way. It unwraps to the *api.Error that says the same.
type BlockedError struct {
	Peer     string
	Blockers []api.Problem // one at least
}

func (e *BlockedError) Error() string { return e.Unwrap().Error() }

// Unwrap gives the *api.Error.
func (e *BlockedError) Unwrap() error {
	var why, do []string
	for _, b := range e.Blockers {
		reason := b.What
		if b.Why != "" {
			reason += ": " + b.Why
		}
		why = append(why, reason)
		if b.Do != "" {
			do = append(do, b.Do)
		}
	}
	return &api.Error{Code: api.CodeConflict, Message: "not tethered to " + e.Peer, Reason: strings.Join(why, "; "), Do: strings.Join(do, "; ")}
}

// Tether switches to Tethered; it returns when that is done or was taken back. When ctx ends the switch goes on. A switch to the same company
// that is under way is followed; else a refusal is a *BlockedError. The Peer is there, and whoever calls has compared options.ID with it and
// written options.Code into it.
func (m *Machine) Tether(ctx context.Context, peer *v1alpha1.Peer, options api.TetherOptions, report func(api.Progress)) error {
	if err := options.Check(); err != nil {
		return err
	}
	// What is wanted already is followed; the word that confirmed it may have ended it a moment ago.
	if j := m.now.Load(); j != nil && j.Goal == api.Tethered && j.ID == peer.Spec.ID && (j.Step != tethered || options.Code != "") {
		return m.follow(ctx, j, api.Tethered, report)
	}
	_, blocked, err := m.weigh(ctx, peer, options.LocalWorkloads)
	if err != nil {
		return err
	}
	if len(blocked) > 0 {
		return &BlockedError{peer.Name, blocked}
	}
	j, err := m.opening(ctx, peer, options)
	if err != nil {
		return err
	}
	if err := m.order(nil, j); err != nil {
		return err
	}
	return m.follow(ctx, j, api.Tethered, report)
}

// opening is the first journal of a tether.
func (m *Machine) opening(ctx context.Context, peer *v1alpha1.Peer, options api.TetherOptions) (*journal, error) {
	c := m.cfg.Cluster()
	if c == nil {
		return nil, &api.Error{Code: api.CodeNotReady, Message: "not tethered to " + peer.Name, Reason: errNoCluster.why, Do: "try again in a moment"}
	}
	kept, err := object(ctx, c, &journal{Peer: peer.Name, ID: peer.Spec.ID})
	if err == nil && kept == nil {
		err = api.NotFound("peer", peer.Name, "kith peers")
	}
	if err != nil {
		return nil, err
	}
	j := &journal{
		Version: journalVersion, Goal: api.Tethered, Step: asking, Since: now(), Peer: kept.Name, ID: kept.Spec.ID,
		Attempt:        max(time.Now().UnixMilli(), kept.Status.Outgoing.Attempt+1), // the clock may have been put back
		LocalWorkloads: options.LocalWorkloads, Confirmed: options.ID == kept.Spec.ID,
	}
	if former := m.contract(c, j); former != nil {
		j.Former = revision(former)
	}
	return j, nil
}

// order replaces the journal by what the owner wants, and ends what is being done by the former.
func (m *Machine) order(from, to *journal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	done, err := m.replace(from, to)
	if err == nil && !done {
		err = &BlockedError{to.Peer, (&facts{mode: m.now.Load()}).blockers()}
	}
	if err == nil && m.cancel != nil {
		m.cancel()
	}
	return err
}

// Untether switches back; it returns when that is done. When ctx ends the switch goes on. Of what was cut it reports at the end.
func (m *Machine) Untether(ctx context.Context, options api.UntetherOptions, report func(api.Progress)) error {
	if options.Timeout < 0 {
		return api.Invalid("timeout", options.Timeout.String(), "no less than 0s")
	}
	for {
		j := m.now.Load()
		if j == nil {
			return &api.Error{Code: api.CodeConflict, Message: "not untethered", Reason: "this laptop is not tethered", Do: "kith status"}
		}
		next := *j
		if j.Goal == api.Tethered {
			next = *j.back()
		}
		next.Force, next.Timeout = j.Force || options.Force, options.Timeout
		m.mu.Lock()
		done, err := m.replace(j, &next)
		if done && m.cancel != nil {
			m.cancel()
		}
		m.mu.Unlock()
		if err != nil {
			return err
		}
		if done {
			return m.follow(ctx, &next, api.Autonomous, report)
		}
	}
}

// follow reports how the switch goes on until it has come to the goal, or is at rest elsewhere.
func (m *Machine) follow(ctx context.Context, of *journal, goal api.Mode, report func(api.Progress)) error {
	var told string
	for {
		changed := m.changed.Wait()
		j := m.now.Load()
		if j == nil || j.Attempt != of.Attempt {
			return m.ended(of, goal, report)
		}
		if j.Step == tethered && goal == api.Tethered {
			return nil
		}
		if progress := m.progress(j); fmt.Sprint(progress.Message, progress.Code, progress.Confirm != nil) != told {
			told = fmt.Sprint(progress.Message, progress.Code, progress.Confirm != nil)
			report(progress)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &api.Error{Code: api.CodeTimeout, Message: "the switch goes on", Reason: context.Cause(ctx).Error(), Do: "`kith status` shows how far it is"}
		}
	}
}

func (m *Machine) progress(j *journal) api.Progress {
	said := m.heard()
	p := api.Progress{Message: fmt.Sprintf(stages[j.Step].words, j.Peer), Code: said.code, Confirm: said.confirm}
	if why := j.reason(said); why != "" {
		p.Message += ": " + why
	}
	if p.Confirm != nil || p.Code != "" {
		p.Peer = j.Peer
	}
	return p
}

// ended is the result of a switch that is over.
func (m *Machine) ended(of *journal, goal api.Mode, report func(api.Progress)) error {
	m.mu.Lock()
	last := m.last
	m.mu.Unlock()
	j := last.journal
	switch {
	case goal == api.Autonomous:
		if last.attempt == of.Attempt && j.cut() != "" {
			report(api.Progress{Message: j.cut()})
		}
		return nil
	case last.attempt != of.Attempt || j.Why == "":
		return &api.Error{Code: api.CodeConflict, Message: "not tethered to " + of.Peer, Reason: "it was taken back here"}
	}
	return &api.Error{Code: j.Problem, Message: "not tethered to " + of.Peer, Reason: j.Why, Do: j.Do}
}
