package menu

import (
	"fmt"
	"strings"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

const shownProblems = 3

// head says who this is, and what went wrong last.
func (b *builder) head() {
	b.line("head")
	b.say("head", Head(b.State))
	if b.Note != "" {
		b.say("note", words.Text(b.Note))
	}
}

// problems says what is wrong.
func (b *builder) problems() {
	problems := worthShowing(b.Snapshot.Status.Problems)
	for i, p := range problems {
		if i == shownProblems {
			b.click("problems/more", fmt.Sprintf("⚠ %d more problems…", len(problems)-i), Diagnose, "")
			break
		}
		b.click(fmt.Sprintf("problem/%d", i), "⚠ "+words.Text(p.What), Diagnose, "")
	}
}

// Head is the line that says who this is: "alice · Autonomous".
func Head(s State) string {
	switch s.Link {
	case Up:
		status := s.Snapshot.Status
		if status.Mode == api.Tethered && status.Tether != nil {
			return join(words.Name(status.Name), "Tethered to "+words.Name(status.Tether.Peer))
		}
		if status.Engine.State == api.EngineStarting {
			return join(words.Name(status.Name), "starting")
		}
		return join(words.Name(status.Name), words.Text(string(status.Mode)), some(status.Counts.Laptops, "laptop is run from here", "laptops are run from here"))
	case Gone:
		return "Kith is not running"
	case Forbidden:
		return "Kith does not talk to you"
	case Failed:
		return "Kith does not answer as it should"
	}
	return "Kith · asking the daemon"
}

// Tooltip is what the icon says when it is pointed at.
func Tooltip(s State) string {
	if s.Link != Up {
		return Head(s)
	}
	confirms := 0
	for _, p := range s.Snapshot.Peers {
		if p.Confirm != nil {
			confirms++
		}
	}
	if e := s.Snapshot.Status.Engine; e.State == api.EngineStarting {
		return join(Head(s), words.Text(e.Why))
	}
	counts, sharing := s.Snapshot.Status.Counts, ""
	if s.autonomous() {
		sharing = words.Sharing(s.Snapshot.Status.Sharing)
	}
	return join(Head(s), sharing, some(counts.Requests, "request waits", "requests wait"),
		some(confirms, "peer accepted and waits", "peers accepted and wait"), some(counts.Connected, "peer", "peers"))
}

// cluster says how the local Kubernetes is, and has what a developer wants at hand of it. When it is not well, a click looks closer.
func (b *builder) cluster() {
	e := b.Snapshot.Status.Engine
	switch {
	case b.usable():
		label := "Cluster " + words.Text(string(e.State))
		if e.State == api.EngineReady {
			label = join(label, prefixed("Kubernetes ", words.Text(e.Version)))
		}
		b.submenu("cluster/tools", join(label, words.Text(e.Why)), func(b *builder) {
			b.click("kubectl", "Show kubectl access…", AskKubectl, "")
			b.click("kubeconfig", "Copy kubeconfig", CopyKubeconfig, "")
			b.click("terminal", "Open terminal here", OpenTerminal, "")
		})
	case e.State == api.EngineStopped && e.Kind == api.EngineNone:
		b.say("cluster", "No cluster: this kithd only finds others")
	default:
		b.click("cluster", join("Cluster "+words.Text(string(e.State)), words.Text(e.Why)), Diagnose, "")
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// worthShowing leaves out what has a place of its own in the menu: waiting requests, and the engine.
func worthShowing(problems []api.Problem) []api.Problem {
	var list []api.Problem
	for _, p := range problems {
		if p.Severity != api.SeverityInfo && p.Kind != api.ProblemEngine {
			list = append(list, p)
		}
	}
	return list
}

// help says what to do when there is nothing to show.
func (b *builder) help() {
	if b.Why == nil {
		return
	}
	why, do := words.Text(b.Why.Reason), words.Text(b.Why.Do)
	if b.Link == Failed || why == "" {
		why = join(words.Text(b.Why.Message), why)
	}
	b.say("why", why)
	if do != "" {
		b.say("do", do)
	}
	if command := commandIn(b.Why.Do); command != "" {
		b.click("copy-command", "Copy “"+words.Text(command)+"”", CopyText, command)
	}
}

// commandIn is the command that an error of the client recommends, ready to be pasted: after the first ": ", up to ";".
func commandIn(do string) string {
	_, command, ok := strings.Cut(do, ": ")
	command, _, _ = strings.Cut(command, ";")
	if !ok || words.Text(command) != command {
		return ""
	}
	if !strings.HasPrefix(command, "sudo ") {
		command = "sudo " + command
	}
	return command
}
