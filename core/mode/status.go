package mode

import (
	"cmp"
	"fmt"

	"kith.dev/core/api"
	"kith.dev/core/trust/wire"
)

// Status is the mode for people.
func (m *Machine) Status() (api.Mode, *api.Tether) {
	j := m.now.Load()
	if j == nil {
		return api.Autonomous, nil
	}
	said := m.heard()
	return stages[j.Step].mode, &api.Tether{
		Peer: j.Peer, Step: string(j.Step), Why: j.reason(said), Since: j.Since, DownSince: j.Down, Until: m.until(j),
		User: j.User, Namespaces: j.Namespaces, Code: said.code,
	}
}

// reason is what there is to say of a step: why the way is back, and what is waited for.
func (j *journal) reason(said saying) string {
	switch {
	case j.Why == "":
		return said.why
	case said.why == "":
		return j.Why
	}
	return j.Why + "; " + said.why
}

func (m *Machine) heard() saying {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}

// saw is what there is to say of a step that says no more than why.
func (m *Machine) saw(why string) {
	said := m.heard()
	said.why = wire.Line(why, maxWhy)
	m.say(said)
}

func (m *Machine) say(said saying) {
	m.mu.Lock()
	was := m.said
	m.said = said
	m.mu.Unlock()
	if was.why != said.why || was.code != said.code || (was.confirm == nil) != (said.confirm == nil) {
		m.changed.Notify()
		m.cfg.Notify()
	}
}

// announce tells of what a new journal means. It needs mu.
func (m *Machine) announce(from, to *journal) {
	tell := func(t api.EventType, reason api.EventReason, severity api.Severity, j *journal, text string) {
		m.cfg.Announce(api.Event{Type: t, Reason: reason, Severity: severity, Peer: j.Peer, Message: text})
	}
	switch {
	case from == nil:
	case to == nil:
		severity := api.SeverityInfo
		if from.Why != "" || len(from.Cut) > 0 {
			severity = api.SeverityWarning
		}
		tell(api.EventTetherEnded, from.eventReason(), severity, from, from.outcome()+m.afterwards("it was broken off, and was finished after the restart"))
	case to.Step == tethered && from.Step != tethered:
		tell(api.EventTetherMade, "", api.SeverityInfo, to, fmt.Sprintf("the cluster of %s decides what runs here, and answers kubectl", to.Peer)+
			m.afterwards("the switch was broken off, and was finished after the restart"))
	case to.Step == tethered && from.Down.IsZero() && !to.Down.IsZero():
		m.cfg.Log.Warn("the company does not answer", "peer", to.Peer, "since", to.Down)
		tell(api.EventTetherLost, "", api.SeverityWarning, to, m.lostSince(to))
	case to.Step == tethered && !from.Down.IsZero() && to.Down.IsZero():
		m.cfg.Log.Info("the company answers again", "peer", to.Peer)
		tell(api.EventTetherMade, api.ReasonAnswersAgain, api.SeverityInfo, to, to.Peer+" answers again")
	}
}

// afterwards is what to add when the switch was begun by an earlier process.
func (m *Machine) afterwards(text string) string {
	if !m.resumed {
		return ""
	}
	m.resumed = false
	m.cfg.Log.Info("mode: " + text)
	return " (" + text + ")"
}

// eventReason is that of a switch back to autonomous; none when the owner of a tethered laptop wanted it.
func (j *journal) eventReason() api.EventReason {
	switch {
	case !j.Held:
		return api.ReasonNotTethered
	case j.Why != "":
		return api.ReasonUntethered
	}
	return ""
}

// outcome says how a switch back to autonomous went.
func (j *journal) outcome() string {
	text := "this laptop decides again what it runs"
	switch j.eventReason() {
	case api.ReasonNotTethered:
		text = "not tethered to " + j.Peer + ": " + cmp.Or(j.Why, "it was taken back here")
	case api.ReasonUntethered:
		text = "untethered from " + j.Peer + ": " + j.Why
	}
	if cut := j.cut(); cut != "" {
		text += "; " + cut
	}
	return text
}

// cut says who was cut; "" if nobody.
func (j *journal) cut() string {
	if len(j.Cut) == 0 {
		return ""
	}
	return "ended here, as " + j.Peer + " had not taken them away: " + some(append([]string(nil), j.Cut...), len(j.Cut)+j.CutMore)
}
