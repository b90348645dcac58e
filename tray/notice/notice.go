package notice

import "kith.dev/assets/icon"

// Notice is one thing to tell. Its words are clean: one line each (Body may have several), no control characters. They are plain text,
// not markup.
type Notice struct {
	// Key says what it is about. A notice replaces the one of the same key that is still on the screen.
	Key   string
	Kind  Kind
	Title string
	Body  string
	Icon  icon.State
	// Request, when it is set, is the ID of the request that Accept and Decline buttons answer.
	Request string
	// Urgent ones stay until the user has seen them.
	Urgent bool
}

// Plan is what to do on the screen.
type Plan struct {
	Show    []Notice
	Retract []string // keys of notices whose cause is gone
}

// Answer is what the user clicked.
type Answer struct {
	Request string // ID
	Accept  bool
}

// The keys of the buttons.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
)
