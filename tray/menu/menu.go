// Package menu is the tray's menu as a pure function: what is known goes in, a tree of items comes out. The tray
// calls Of after each change and gives the tree to a panel; kith-tray --once prints it with Text.
//
// What waits for the owner comes first. What would be long, a peer's particulars for example, is in a submenu. Every item has an ID that
// stays with its meaning, so that a click means what was shown when it was aimed. The package must never talk to anybody, look at a
// clock, or show a peer's words without clean.
package menu

import (
	"slices"
	"strconv"
	"strings"

	"kith.dev/core/api"
)

// Link says how the tray stands with the daemon.
type Link int

// The links.
const (
	Waiting   Link = iota // nothing was heard yet
	Up                    // the snapshot is the daemon's
	Gone                  // no daemon answers
	Forbidden             // it does not talk to this user
	Failed                // it answers, and not as it should
)

// How many are shown of a list: in the menu itself, and in the submenu with the others.
const (
	shownWaiting, mostWaiting = 3, 25
	shownPeers, mostPeers     = 8, 60
)

// State is all that the menu is made of.
type State struct {
	Link     Link
	Why      *api.Error        // with Gone, Forbidden and Failed
	Snapshot api.Snapshot      // with Up
	Kinds    []Kind            // of notifications
	Doing    map[string]string // what is under way with a peer or a request, by its ID: "asking"
	Note     string            // what went wrong last
	NoTether bool              // this daemon is one that knows no tethers
	Shallow  bool              // the panel opens no submenu in a submenu: GNOME's makes no room for it
	Looked   bool              // the doctor did
	Fixable  []api.Finding     // that it found, and that are safe to be mended
}

// Kind is a kind of notification that can be turned off.
type Kind struct {
	Name  string
	Label string
	On    bool
}

// Item is one line of the menu. A separator has nothing but an ID.
type Item struct {
	ID       string // "answer/alice-0z60": the same thing has the same ID in every menu
	Label    string // clean, one line
	Box      bool   // it has a box
	On       bool   // and that is ticked
	Disabled bool   // to read, not to click
	Action   Action
	Items    []Item // of the submenu that it opens; with them it has no Action
}

// Separator tells whether the item is a line between items.
func (i Item) Separator() bool { return i.Label == "" }

// Verb is what a click does. No click accepts, confirms or agrees to anything by itself: on Linux a click is a call on the session bus,
// which any program there can make.
type Verb string

// The verbs. About says what Action.About is for each.
const (
	Nothing        Verb = ""
	Ask            Verb = "ask"        // a peer for resources; About: its ID
	Withdraw       Verb = "withdraw"   // what was asked of a peer and not answered yet; About: its ID
	End            Verb = "end"        // open the window in which the owner ends what there is with a peer; About: its ID
	Answer         Verb = "answer"     // open the window in which the owner accepts or declines a request; About: its ID
	Confirm        Verb = "confirm"    // open the window in which the owner confirms what a peer accepted; About: the peer's ID
	Share          Verb = "share"      // open the windows in which the owner says how much is shared, and with whose word
	SetKind        Verb = "setKind"    // turn a kind of notification on or off; About: its Name
	AskKubectl     Verb = "askKubectl" // open the window in which the owner has a context written for kubectl
	CopyKubeconfig Verb = "copyKubeconfig"
	OpenTerminal   Verb = "openTerminal"
	SeeTop         Verb = "seeTop"   // show what pods use, this laptop's at a peer and the peer's here; About: its ID
	OpenPage       Verb = "openPage" // show the page of kith web in the user's browser
	Diagnose       Verb = "diagnose"
	Mend           Verb = "mend"       // open the window in which the owner has mended what is safe to be
	SaveReport     Verb = "saveReport" // make a bug report, and open the window that lists what is in it
	CopyText       Verb = "copyText"   // About: the text
	ShowAbout      Verb = "showAbout"
	Tether         Verb = "tether"    // see what a tether to a peer would mean, and open the window in which the owner wants it; About: its ID
	KeepAwake      Verb = "keepAwake" // this laptop until guests end, or let it sleep again; About: KeepOn or KeepOff
	Untether       Verb = "untether"  // open the window in which the owner takes this laptop back
	Quit           Verb = "quit"
)

// What KeepAwake is about.
const (
	KeepOn  = "on"
	KeepOff = "off"
)

// Action is what a click on an item asks for.
type Action struct {
	Verb  Verb
	About string
}

// builder collects items.
type builder struct {
	State
	items []Item
}

// Of makes the menu.
func Of(s State) []Item {
	b := &builder{State: s}
	if s.Link == Up {
		b.waiting()
		b.head()
		b.cluster()
		b.problems()
		b.peers()
		b.mode()
		b.sharing()
		b.awake()
	} else {
		b.head()
		b.help()
	}
	b.tail()
	return b.items
}

func (b *builder) add(i Item) { b.items = append(b.items, i) }

// say adds a line to read.
func (b *builder) say(id, label string) { b.add(Item{ID: id, Label: label, Disabled: true}) }

// click adds a line to click.
func (b *builder) click(id, label string, verb Verb, about string) {
	b.add(Item{ID: id, Label: label, Action: Action{verb, about}})
}

// submenu adds a line that opens what fill adds.
func (b *builder) submenu(id, label string, fill func(b *builder)) {
	inner := &builder{State: b.State}
	fill(inner)
	b.add(Item{ID: id, Label: label, Items: inner.items})
}

// line adds a separator, unless one or nothing is above it.
func (b *builder) line(id string) {
	if n := len(b.items); n > 0 && !b.items[n-1].Separator() {
		b.add(Item{ID: "line/" + id})
	}
}

// usable tells whether there is a cluster to change something in.
func (b *builder) usable() bool {
	state := b.Snapshot.Status.Engine.State
	return state == api.EngineReady || state == api.EngineDegraded || state == api.EngineAsleep
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// some is count for what is not worth a word when there is none.
func some(n int, one, many string) string {
	if n == 0 {
		return ""
	}
	return count(n, one, many)
}

// join puts the parts that are not empty into one line.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}

// Text writes the menu as lines: "> " before what can be clicked or opened, a box before what is on or off. What a submenu has is below it.
func Text(items []Item) string {
	var b strings.Builder
	write(&b, items, "")
	return b.String()
}

func write(b *strings.Builder, items []Item, indent string) {
	for _, i := range items {
		if i.Separator() {
			b.WriteString(indent + "---\n")
			continue
		}
		lead := "> "
		if i.Disabled {
			lead = "  "
		}
		if i.Box {
			lead += map[bool]string{false: "[ ] ", true: "[x] "}[i.On]
		}
		b.WriteString(indent + lead + i.Label + "\n")
		write(b, i.Items, indent+"    ")
	}
}
