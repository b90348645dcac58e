package notice

import (
	"slices"
	"strings"
	"unicode"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// Notice is one thing to tell. Its words are clean: one line each (Body may have several), no control characters. They are plain text,
// not markup.
type Notice struct {
	// Key says what it is about. A notice replaces the one of the same key that is still on the screen.
	Key   string
	Kind  Kind
	Title string
	Body  string
	Icon  icon.State
	// About is what its buttons answer; the zero value: it has none.
	About Subject
	// Lasts: it stays until it is taken back or the user has seen it, as those that wait for an answer do. None is critical, which would break
	// through what the user set up to be left alone: pods run on whatever happens to Kith.
	Lasts bool
	// Low: good news, for which nobody need look up.
	Low bool
}

// Subject is what the buttons of a notice answer: a request of a peer, what a peer accepted, or a change of what is shared.
type Subject struct {
	Request string  // ID; the buttons accept and decline
	Grants  string  // of Request: what a yes gives, as the notice shows it
	Peer    string  // ID; the buttons confirm and refuse
	Code    string  // of Peer, as the notice shows it
	Terms   bool    // of Peer: they are to be read in a window, which the first button opens
	Change  *Change // the one button takes it back
	Awake   bool    // the one button keeps this laptop awake until guests end
}

// Change is one of what a policy offers.
type Change struct{ Was, Is api.Policy }

// Plan is what to do on the screen.
type Plan struct {
	Show    []Notice
	Retract []string // keys of notices whose cause is gone
}

// Answer is what the user clicked.
type Answer struct {
	Subject
	Yes bool // the first button
}

// The keys of the buttons.
const (
	actionYes = "yes"
	actionNo  = "no"
)

// waits reports whether somebody waits for an answer.
func (s Subject) waits() bool { return s.Request != "" || s.Peer != "" }

// buttons are the labels of both; "" where there is none.
func (s Subject) buttons() (yes, no string) {
	switch {
	case s == Subject{}:
		return "", ""
	case s.Change != nil:
		return "Undo", ""
	case s.Awake:
		return "Keep awake until they end", ""
	case s.Request != "":
		return "Accept", "Decline"
	case s.Terms:
		return "Look…", "Refuse"
	}
	return "Confirm", "They differ"
}

// elsewhere says where to answer when there are no buttons.
func (s Subject) elsewhere() string {
	switch {
	case s == Subject{}:
		return ""
	case s.Change != nil:
		return "“Sharing …” in Kith's menu changes it."
	case s.Awake:
		return "“Keep awake until guests end” in Kith's menu has it wait for them."
	case s.Request != "":
		return "Accept or decline in Kith's menu."
	}
	return "Compare the code in Kith's menu."
}

// title begins with a capital letter.
func title(s string) string {
	r := []rune(words.Text(s))
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r)
}

// sentence ends with a full stop, too; nothing stays nothing.
func sentence(s string) string {
	s = title(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// lines joins the parts that are not empty.
func lines(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n")
}
