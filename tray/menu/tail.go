package menu

import (
	"fmt"

	"kith.dev/tray/words"
)

// sharing says how much is offered, and leads to the window in which the owner changes that. Of a tethered laptop all is the company's.
func (b *builder) sharing() {
	if !b.decides() {
		return
	}
	b.line("sharing")
	b.long("share", "S"+words.Sharing(b.Snapshot.Status.Sharing)[1:]+" …", Share, DoingShare, "Changing what is shared…")
}

// awake is the box that keeps this laptop awake for its guests. It is there while some run, or it is ticked.
func (b *builder) awake() {
	s := b.Snapshot.Status
	a := s.Awake
	if a == nil || !a.Kept && s.Counts.Guests == 0 {
		return
	}
	i := Item{ID: "awake", Label: "Keep awake until guests end", Box: true, On: a.Kept, Action: Action{KeepAwake, KeepOn}}
	if a.Kept {
		until := a.Until.Local().Format("15:04")
		i.Label, i.Action.About = "Kept awake until "+until, KeepOff
		if a.UntilGuestsEnd {
			i.Label = "Kept awake until guests end, at the latest " + until
		}
	}
	if _, doing := b.Doing[DoingAwake]; doing {
		i.Disabled, i.Action = true, Action{}
	}
	b.add(i)
}

// decides reports whether the owner of this laptop decides, and has a cluster to decide about.
func (b *builder) decides() bool { return b.usable() && b.autonomous() }

// tail is there whatever happens.
func (b *builder) tail() {
	b.line("tail")
	if b.Link == Up {
		b.click("page", "Open the page…", OpenPage, "")
	}
	b.long("diagnose", "Diagnose…", Diagnose, DoingDiagnosis, "Diagnosing: what is found opens as a text")
	if b.Looked && b.Link == Up {
		if n := len(b.Fixable); n > 0 {
			b.long("mend", fmt.Sprintf("    Mend %d of what was found…", n), Mend, DoingMend, "    Mending…")
		}
		b.long("report", "    Save a report…", SaveReport, DoingReport, "    Making the report…")
	}
	if len(b.Kinds) > 0 {
		b.submenu("kinds", "Notifications", func(b *builder) {
			for _, k := range b.Kinds {
				b.add(Item{ID: "kind/" + k.Name, Label: words.Text(k.Label), Box: true, On: k.On, Action: Action{SetKind, k.Name}})
			}
		})
	}
	b.click("about", "About Kith", ShowAbout, "")
	b.click("quit", "Quit", Quit, "")
}

// The subjects of what takes a while, in State.Doing.
const (
	DoingShare     = "sharing"
	DoingDiagnosis = "diagnosis"
	DoingMend      = "mending"
	DoingReport    = "report"
	DoingAwake     = "awake"
)

// long adds a line to click, or says that what it starts is under way.
func (b *builder) long(id, label string, verb Verb, subject, busy string) {
	if _, doing := b.Doing[subject]; doing {
		b.say(id, busy)
		return
	}
	b.click(id, label, verb, "")
}
