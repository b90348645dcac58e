package api

import "time"

// WebOptions is the body of the call that opens the page (`kith web`).
type WebOptions struct {
	// ReadOnly: the page shows all, and changes nothing.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Web is where the page is. The URL opens it once, for the user who asked for it, and leads nowhere after Expires. It is a secret until then: who
// opens it may do what that user may.
type Web struct {
	URL      string    `json:"url"`
	Expires  time.Time `json:"expires"`
	ReadOnly bool      `json:"readOnly,omitempty"`
}

// WebSession is the body of PathWebSession, with which the page itself begins.
type WebSession struct {
	Ticket string `json:"ticket"` // of the URL
}

// WebToken is the answer: what the page sends with each call, as its bearer, below PathWebAPI.
type WebToken struct {
	Token    string `json:"token"`
	ReadOnly bool   `json:"readOnly"`
}

// Paths at the page's own address, not at the socket.
const (
	PathWebSession = "/session" // POST WebSession → WebToken, once
	PathWebAPI     = "/api"     // before the paths of the local API that the page may call
)
