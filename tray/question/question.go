// Package question holds what a window asks the person in front of the screen before something is accepted or signed: pure functions
// from what the daemon says to words and buttons. tray shows them with package desktop, and sends the answer.
//
// It must never show a peer's words that package words did not clean, and never ask for a yes to more than it shows.
package question

import (
	"slices"
	"strings"
	"unicode/utf8"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// Question is one window. Its words are clean plain text, not markup.
type Question struct {
	Lead string   // who wants what, and what to compare
	Code string   // "069 210", to be shown large; "" when there is nothing to compare
	Text []string // paragraphs
	Yes  string   // the button that accepts or signs
	No   string   // the button that refuses; "": there is nothing to refuse
	Or   []string // further buttons, for other ways to say yes: the first is answered with Or(0)
}

// Later is the button that leaves everything as it is; so do Escape, Enter and closing the window.
const Later = "Later"

// Answer is what the person chose.
type Answer int

// The answers. The zero value changes nothing.
const (
	NotNow Answer = iota
	Yes
	No
	firstOr
)

// Or is the answer of a further button, by its place in Question.Or.
func Or(i int) Answer { return firstOr + Answer(i) }

const (
	// maxTerms and maxTerm bound what a window shows of a peer's terms, in sentences and in characters of one.
	maxTerms, maxTerm = 10, 240
	// maxAmounts is for the amounts that would be granted, in characters.
	maxAmounts = 1024
)

// Accept asks whether a peer gets what it asks for. shortID is the peer's, as other owners see it.
func Accept(r api.Request, shortID string) Question {
	who := words.Name(r.Peer)
	q := Question{Lead: who + " asks to use this laptop.", Yes: "Accept", No: "Decline"}
	if len(r.InForce) > 0 {
		q.Lead = who + " asks to change what it uses of this laptop."
	}
	q.Text = []string{identity(shortID, r.Address), "It would get " + words.Clean(r.Grants(), maxAmounts) + "."}
	if r.Tether {
		q.Lead = who + " is a laptop that asks this cluster to run it."
		q.Text[1] = "With a yes " + words.Clean(r.Grants(), maxAmounts) + "."
	}
	if r.Code == "" {
		q.Text = append(q.Text, "Its key is known: you accepted it before.")
		return q
	}
	q.Lead += " Does " + who + "'s screen show this code?"
	q.Code = words.Code(r.Code)
	q.Text = append(q.Text, "Accept only if its owner sees the same digits.")
	return q
}

// Confirm asks whether what a peer accepted is to be signed; whole: the window shows all of it. What it does not show nobody can agree
// to there.
func Confirm(p api.Peer) (q Question, whole bool) {
	c := p.Confirm
	if c == nil {
		return Question{}, false
	}
	who, address := words.Name(p.Name), ""
	if len(p.Addresses) > 0 {
		address = p.Addresses[0]
	}
	q = Question{Lead: who + " accepted.", Text: []string{identity(p.ShortID, address)}, Yes: "Confirm", No: "They differ"}
	if c.Code != "" {
		q.Lead += " Does " + who + "'s screen show this code?"
		q.Code = words.Code(c.Code)
		q.Text = append(q.Text, "Confirm only if its owner sees the same digits. Nothing is signed before.")
	}
	if len(c.Terms) == 0 {
		return q, true
	}
	q.No = "Refuse"
	q.Text = append(q.Text, "Its terms go beyond what you asked for:")
	for _, term := range c.Terms[:min(len(c.Terms), maxTerms)] {
		q.Text = append(q.Text, "- "+words.Clean(term, maxTerm))
	}
	return q, fits(c.Terms)
}

// Unpeer asks whether what there is with a peer is to end, in both directions, and says what becomes of the pods.
func Unpeer(p api.Peer) Question {
	who := words.Name(p.Name)
	q := Question{Lead: "End what there is with " + who + "?", Text: []string{identity(p.ShortID, "")}, Yes: "Unpeer"}
	if n := p.Pods.Abroad; n > 0 {
		q.Text = append(q.Text, "What runs there, "+guests(n)+", starts again where there is room.")
	}
	if n := p.Pods.Guests; n > 0 {
		q.Text = append(q.Text, "What it runs here, "+guests(n)+", is ended.")
	}
	if p.Pods.Abroad+p.Pods.Guests == 0 {
		q.Text = append(q.Text, "No pods run there or here for the other now.")
	}
	return q
}

// fits reports whether terms can be shown uncut.
func fits(terms []string) bool {
	return len(terms) <= maxTerms && !slices.ContainsFunc(terms, func(term string) bool { return utf8.RuneCountInString(term) > maxTerm })
}

// Compares reports whether a peer was accepted here and its owner has yet to confirm: the code on this screen is what that owner compares.
func Compares(s api.Snapshot, p api.Peer) bool {
	return p.Incoming == api.StateRequested && p.Code != "" && !slices.ContainsFunc(s.Requests, func(r api.Request) bool {
		return r.PeerID == p.ID && r.Direction == api.Incoming
	})
}

func identity(shortID, address string) string {
	text := "It is cluster " + words.Name(shortID)
	if address != "" {
		text += ", at " + words.Text(address)
	}
	return text + "."
}

// Named is how a peer is named on a command line: by its name where a shell takes that for one word, else by its short ID.
func Named(name, shortID string) string {
	if name == "" || strings.HasPrefix(name, "-") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return words.Name(shortID)
	}
	return words.Name(name)
}
