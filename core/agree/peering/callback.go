package peering

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"kith.dev/core/trust/identity"
)

// A peer behind a router or a firewall cannot be dialled. It has a presence stream open to each of its peers, though, by which one that wants a
// connection asks it to call back. The connection that it then makes is used the other way around: as if it had been dialled.

// CallBack asks whoever reads the presence stream for a connection, by which somebody comes to its peer API.
type CallBack struct {
	Token string      `json:"token"` // of the one connection that it is about
	For   identity.ID `json:"for"`   // who comes by it: the peer that asks, or one for which it relays
}

const tokenSize = 16 // bytes, of which nobody else guesses any

// NewToken makes the token of a CallBack.
func NewToken() string {
	var b [tokenSize]byte
	rand.Read(b[:]) // never fails, crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

// Validate checks the form.
func (c *CallBack) Validate() error {
	if b, err := hex.DecodeString(c.Token); err != nil || len(b) != tokenSize {
		return errors.New("callBack: token: has another form")
	}
	if c.For.IsZero() {
		return errors.New("callBack: for: is missing")
	}
	return nil
}

// callBacks are the presence streams of callers that are recognised, to ask them for connections.
type callBacks struct {
	mu      sync.Mutex
	streams map[identity.ID]map[chan CallBack]struct{}
}

// mostCallBacks is how many wait on one stream to be sent.
const mostCallBacks = 8

func (b *callBacks) subscribe(id identity.ID) (asked <-chan CallBack, leave func()) {
	ch := make(chan CallBack, mostCallBacks)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams == nil {
		b.streams = map[identity.ID]map[chan CallBack]struct{}{}
	}
	if b.streams[id] == nil {
		b.streams[id] = map[chan CallBack]struct{}{}
	}
	b.streams[id][ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.streams[id], ch); len(b.streams[id]) == 0 {
			delete(b.streams, id)
		}
	}
}

// CallBack asks a peer that has a presence stream open here for a connection. False: it has none, or does not read it.
func (s *Server) CallBack(id identity.ID, c CallBack) (asked bool) {
	s.callBacks.mu.Lock()
	defer s.callBacks.mu.Unlock()
	for ch := range s.callBacks.streams[id] { // of a peer that moved the old one may still be there
		select {
		case ch <- c:
			asked = true
		default:
		}
	}
	return asked
}

// Here reports whether a peer has a presence stream open here, so that CallBack reaches it.
func (s *Server) Here(id identity.ID) bool {
	s.callBacks.mu.Lock()
	defer s.callBacks.mu.Unlock()
	return len(s.callBacks.streams[id]) > 0
}

// Take serves a connection that this side made to by, as if it had been accepted by the listener: who begins the handshake must be the one it is
// for, else it is closed. Where by passes it on, what holds for one address holds for that one by that peer, and by alone has few. It returns at once.
func (s *Server) Take(conn net.Conn, by, who identity.ID) error {
	l := s.listener.Load()
	if l == nil || !s.config.Takes {
		conn.Close()
		return net.ErrClosed
	}
	c := l.admit(conn, &passage{by, who})
	if c == nil {
		conn.Close()
		return errors.New("too many connections of this kind")
	}
	select {
	case l.taken <- c:
		return nil
	case <-l.quit:
		c.Close()
		return net.ErrClosed
	}
}

// passage is how a connection came that was Taken.
type passage struct{ by, who identity.ID }

func (p *passage) passedOn() bool { return p != nil && p.by != p.who }

// from stands in the limits where others have their address. It is of a block that no packet comes from (100::/8), and differs in its first half,
// which is what counts as a neighbourhood.
func (p *passage) from() netip.Addr {
	sum := sha256.Sum256(append(p.by[:], p.who[:]...))
	sum[0], sum[1] = 1, 0xff
	return netip.AddrFrom16([16]byte(sum[:16]))
}

// Fail answers a request of a route of Handle with an error, and records refusals.
func (s *Server) Fail(w http.ResponseWriter, r *http.Request, caller Caller, err error) {
	s.fail(w, r, caller, err)
}

// CutPassedOn closes connections that were Taken by way of peers that may not pass any on.
func (s *Server) CutPassedOn(may func(by identity.ID) bool) {
	l := s.listener.Load()
	if l == nil {
		return
	}
	for _, c := range l.conns() {
		if c.way.passedOn() && !may(c.way.by) {
			c.Close()
		}
	}
}

// errAnother is the refusal of somebody whom a connection is not for.
var errAnother = &Problem{Code: CodeForbidden, Message: "this connection is for another peer"}

// takenListener is the listener of what is Taken.
type takenListener struct{ *limitedListener }

func (l takenListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.taken:
		return c, nil
	case <-l.quit:
		return nil, net.ErrClosed
	}
}

func (takenListener) Close() error { return nil } // what was accepted is the other's to close

// Way leads to a peer where none of its addresses does.
type Way struct {
	By   string // who passes the connection on, for people; the peer's own name when it calls back
	Dial func(ctx context.Context) (net.Conn, error)
	// Went is told how it went with a connection that Dial made: nil once the peer proved its key over it. May be nil.
	Went func(error)
}
