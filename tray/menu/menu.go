// Package menu is the tray's menu as a pure function: what is known goes in, a flat list of items comes out. The tray
// calls Of after each change and gives the list to a panel; kith-tray --once prints it with Text.
//
// The list has no submenus, because panels lose them; what would be long is folded behind a "more…" that opens in place.
// Every item has an ID that stays with its meaning, so that a click means what was shown when it was aimed. The package must
// never talk to anybody, look at a clock, or show a peer's words without clean.
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

// Fold is a part of the menu that is closed unless it is the one that was opened.
type Fold string

// The folds.
const (
	NoFold       Fold = ""
	FoldRequests Fold = "requests"
	FoldPeers    Fold = "peers"
	FoldKinds    Fold = "kinds"
	FoldTether   Fold = "tether"
)

// How many are shown of a list: folded, and open. A menu of a hundred lines still scrolls; one of a thousand is no menu.
const (
	shownRequests, mostRequests = 3, 25
	shownPeers, mostPeers       = 8, 60
)

// State is all that the menu is made of.
type State struct {
	Link     Link
	Why      *api.Error   // with Gone, Forbidden and Failed
	Snapshot api.Snapshot // with Up
	Kinds    []Kind       // of notifications
	Open     Fold
	Sure     string            // ID of the peer that is to be left, if the owner is sure
	Doing    map[string]string // what is under way with a peer or a request, by its ID: "asking"
	Note     string            // what went wrong last
	NoTether bool              // this daemon is one that knows no tethers
	Looked   bool              // the doctor did
	Fixable  []api.Finding     // that it found, and that are safe to be mended
}

// Kind is a kind of notification that can be turned off.
type Kind struct {
	Name  string
	Label string
	On    bool
}

// Mark is what stands before an item.
type Mark int

// The marks.
const (
	NoMark Mark = iota
	Check       // a box
	Radio       // a circle, one of several
)

// Item is one line of the menu. A separator has nothing but an ID.
type Item struct {
	ID       string // "accept/alice-0z60": the same thing has the same ID in every menu
	Label    string // clean, one line
	Mark     Mark
	On       bool // the mark is set
	Disabled bool // to read, not to click
	Action   Action
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
	End            Verb = "end"        // what there is with a peer; About: its ID
	MaybeEnd       Verb = "maybeEnd"   // ask whether the owner is sure; About: its ID
	KeepPeer       Verb = "keepPeer"   // the owner is not sure
	Accept         Verb = "accept"     // open the window in which the owner accepts a request; About: its ID
	Decline        Verb = "decline"    // About: the request's ID
	Confirm        Verb = "confirm"    // open the window in which the owner confirms what a peer accepted; About: the peer's ID
	Share          Verb = "share"      // About: "50%"
	AskShare       Verb = "askShare"   // open the windows in which the owner says how much is shared, and with whose word
	Pause          Verb = "pause"      // sharing
	Resume         Verb = "resume"     // sharing
	Open           Verb = "open"       // About: a Fold; "" closes
	SetKind        Verb = "setKind"    // turn a kind of notification on or off; About: its Name
	AskKubectl     Verb = "askKubectl" // open the window in which the owner has a context written for kubectl
	CopyKubeconfig Verb = "copyKubeconfig"
	OpenTerminal   Verb = "openTerminal"
	Diagnose       Verb = "diagnose"
	Mend           Verb = "mend"       // open the window in which the owner has mended what is safe to be
	SaveReport     Verb = "saveReport" // make a bug report, and open the window that lists what is in it
	CopyText       Verb = "copyText"   // About: the text
	ShowAbout      Verb = "showAbout"
	Tether         Verb = "tether"   // see what a tether to a peer would mean, and open the window in which the owner wants it; About: its ID
	Untether       Verb = "untether" // open the window in which the owner takes this laptop back
	Quit           Verb = "quit"
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
	b.head()
	if s.Link == Up {
		b.requests()
		b.peers()
		b.sharing()
		b.mode()
		b.tools()
	} else {
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

// line adds a separator, unless one or nothing is above it.
func (b *builder) line(id string) {
	if n := len(b.items); n > 0 && !b.items[n-1].Separator() {
		b.add(Item{ID: "line/" + id})
	}
}

// usable tells whether there is a cluster to change something in.
func (b *builder) usable() bool {
	state := b.Snapshot.Status.Engine.State
	return state == api.EngineReady || state == api.EngineDegraded
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

// Text writes the menu as lines: "> " before what can be clicked, boxes and circles before what can be chosen.
func Text(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		if i.Separator() {
			b.WriteString("---\n")
			continue
		}
		lead := "> "
		if i.Disabled {
			lead = "  "
		}
		b.WriteString(lead + marks[i.Mark][i.On] + i.Label + "\n")
	}
	return b.String()
}

var marks = map[Mark]map[bool]string{
	NoMark: {},
	Check:  {false: "[ ] ", true: "[x] "},
	Radio:  {false: "( ) ", true: "(o) "},
}
