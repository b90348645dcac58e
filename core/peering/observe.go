package peering

import (
	"bufio"
	"net"
	"net/http"
)

// Observer counts what the server does. Its method is called from many goroutines and must return at once.
type Observer interface {
	// Answered tells that a request is being answered: the pattern of its route, "" when there is none, and the
	// HTTP status. Streams count when they begin.
	Answered(route string, status int)
}

// Reasons for refusals (audit.Refusal) that come before there is a request to answer with a Problem; with one, it is the
// Problem's Code.
const (
	RefusedRate      = "connection-rate" // too many new connections from one address
	RefusedAddress   = "connections"     // too many connections from one address
	RefusedRoom      = "strangers"       // too many strangers are connected
	RefusedHandshake = "handshake"       // no TLS 1.3 with a key
)

// nobody observes nothing.
type nobody struct{}

func (nobody) Answered(string, int) {}

// observed tells of the status of an answer when it begins. The mux has set the request's pattern by then.
type observed struct {
	http.ResponseWriter
	r    *http.Request
	by   Observer
	told bool
}

func (o *observed) tell(status int) {
	if !o.told {
		o.told = true
		o.by.Answered(o.r.Pattern, status)
	}
}

func (o *observed) WriteHeader(status int) {
	if status >= 200 {
		o.tell(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(p []byte) (int, error) {
	o.tell(http.StatusOK)
	return o.ResponseWriter.Write(p)
}

// Unwrap leads http.ResponseController to what is underneath.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Hijack is how upgrades leave HTTP.
func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.tell(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
