package menu

import (
	"fmt"

	"kith.dev/tray/words"
)

// presets are the shares to choose from; the first is off.
var presets = []string{"0%", "25%", "50%", "75%", "100%"}

// sharing lets the owner say how much is offered.
func (b *builder) sharing() {
	b.line("sharing")
	s := b.Snapshot.Status.Sharing
	b.add(Item{ID: "share/ask", Label: "Share this laptop…", Disabled: !b.shares(), Action: Action{Verb: AskShare}})
	if s.Share == "" && !nothing(s) {
		b.say("share/custom", "Sharing "+words.Amounts(s.Amounts))
	}
	for _, preset := range presets {
		label := "Share " + percent(preset)
		if preset == "0%" {
			label = "Share nothing"
		}
		b.add(Item{
			ID: "share/" + preset, Label: label, Mark: Radio, On: preset == s.Share || preset == "0%" && nothing(s),
			Disabled: !b.shares(), Action: Action{Share, preset},
		})
	}
	pause := Item{ID: "pause", Label: "Pause sharing: accept nothing new", Mark: Check, On: s.Paused, Disabled: !b.shares(), Action: Action{Verb: Pause}}
	if s.Paused {
		pause.Action.Verb = Resume
	}
	b.add(pause)
}

// shares reports whether the owner says what is shared: of a tethered laptop all is the company's.
func (b *builder) shares() bool { return b.usable() && b.autonomous() }

// tools are what a developer wants at hand.
func (b *builder) tools() {
	b.line("tools")
	for _, i := range []Item{
		{ID: "kubectl", Label: "Show kubectl access…", Action: Action{Verb: AskKubectl}},
		{ID: "kubeconfig", Label: "Copy kubeconfig", Action: Action{Verb: CopyKubeconfig}},
		{ID: "terminal", Label: "Open terminal here", Action: Action{Verb: OpenTerminal}},
	} {
		i.Disabled = !b.usable()
		b.add(i)
	}
}

// tail is there whatever happens.
func (b *builder) tail() {
	if b.Link != Up {
		b.line("tail")
	}
	b.long("diagnose", "Diagnose…", Diagnose, DoingDiagnosis, "Diagnosing: what is found opens as a text")
	if b.Looked && b.Link == Up {
		if n := len(b.Fixable); n > 0 {
			b.long("mend", fmt.Sprintf("    Mend %d of what was found…", n), Mend, DoingMend, "    Mending…")
		}
		b.long("report", "    Save a report…", SaveReport, DoingReport, "    Making the report…")
	}
	b.line("about")
	if len(b.Kinds) > 0 {
		b.kinds()
	}
	b.click("about", "About Kith", ShowAbout, "")
	b.click("quit", "Quit", Quit, "")
}

// The subjects of what the tail starts and takes a while, in State.Doing.
const (
	DoingDiagnosis = "diagnosis"
	DoingMend      = "mending"
	DoingReport    = "report"
)

// long adds a line to click, or says that what it starts is under way.
func (b *builder) long(id, label string, verb Verb, subject, busy string) {
	if _, doing := b.Doing[subject]; doing {
		b.say(id, busy)
		return
	}
	b.click(id, label, verb, "")
}

// kinds turns notifications on and off.
func (b *builder) kinds() {
	if b.Open != FoldKinds {
		b.click("kinds", "Notifications…", Open, string(FoldKinds))
		return
	}
	b.click("kinds", "Notifications:", Open, string(NoFold))
	for _, k := range b.Kinds {
		b.add(Item{ID: "kind/" + k.Name, Label: "    " + words.Text(k.Label), Mark: Check, On: k.On, Action: Action{SetKind, k.Name}})
	}
}
