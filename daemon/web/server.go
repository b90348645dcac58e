// Package web serves the page of `kith web`: what a browser of this laptop's owner shows, and the part of the local API that it calls.
//
// The daemon makes one Server and gives it to the local API, which calls Open for a user whom it let in at its socket. Nothing listens
// before, nor when nobody has used the page for a while. From the outside the page is one more client: all it knows and changes are calls of
// localapi, as the user who opened it.
//
// Who else can reach a port of 127.0.0.1 is kept out: other users of this machine, pages of other sites in the same browser, and names that
// lead here (docs/security.md). It must never decide what a user may do, nor show a browser anything without those checks.
package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/trust/audit"
	"kith.dev/daemon/localapi"
)

const (
	// ticketLife is how long a URL that was given leads to the page.
	ticketLife = time.Minute
	// idle is how long a session outlives its last call. The page has a stream open as long as it is shown: not in a tab behind another.
	idle = 10 * time.Minute

	maxTickets  = 8
	maxSessions = 8
	// maxCalls bounds the calls of one session that are under way. A browser has six connections.
	maxCalls = 8
	// maxConns bounds the connections of all.
	maxConns = 64
)

// Options is what a Server needs.
type Options struct {
	Log     *slog.Logger
	Audit   *audit.Log // of refusals; may be nil
	Changed func()     // called when Address gives another answer; it must not ask for it itself
}

// Server is the page. Before Open, and when nobody has used it for a while, it has no socket, no timer and no goroutine.
type Server struct {
	Options
	handler http.Handler
	listen  func() (net.Listener, error)
	owner   func(net.Conn) (uid int, err error) // of a connection's other end; anybody where the system does not say

	mu       sync.Mutex
	closed   bool
	address  string // host:port, "" while nothing listens
	server   *http.Server
	serving  sync.WaitGroup
	tickets  map[secret]ticket
	sessions map[secret]*session
	timer    *time.Timer // of the next end
}

// secret is the hash of a ticket or a token: what is kept opens nothing, and comparing it tells nothing.
type secret [sha256.Size]byte

// visit is what somebody was let in for.
type visit struct {
	localapi.Visitor
	readOnly bool
}

type ticket struct {
	visit
	expires time.Time
}

type session struct {
	visit
	used  time.Time // when its last call ended
	calls int       // under way
}

// New makes a Server. Close it.
func New(options Options) *Server {
	s := &Server{Options: options, owner: owner, tickets: map[secret]ticket{}, sessions: map[secret]*session{}}
	s.listen = func() (net.Listener, error) {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		if err := s.tried(l); err != nil {
			l.Close()
			return nil, err
		}
		return l, nil
	}
	s.handler = s.guarded(s.routes())
	return s
}

// Open implements localapi.Page: it makes a ticket, and listens unless it does.
func (s *Server) Open(v localapi.Visitor, options api.WebOptions) (api.Web, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return api.Web{}, &api.Error{Code: api.CodeUnavailable, Message: "the page cannot be opened", Reason: "kithd stops", Do: "try again when it runs"}
	}
	if s.address == "" {
		if err := s.start(); err != nil {
			return api.Web{}, &api.Error{Code: api.CodeInternal, Message: "the page cannot be opened", Reason: err.Error(), Do: "see the reason; the other commands of kith need no page"}
		}
	}
	now := time.Now()
	s.sweep(now)
	if len(s.tickets) >= maxTickets {
		dropOldest(s.tickets, func(t ticket) time.Time { return t.expires })
	}
	text, hash := newSecret()
	t := ticket{visit{v, options.ReadOnly}, now.Add(ticketLife)}
	s.tickets[hash] = t
	s.arm(now)
	return api.Web{URL: "http://" + s.address + "/#" + text, Expires: t.expires.UTC().Truncate(time.Second), ReadOnly: options.ReadOnly}, nil
}

// Address is where the page is, host:port; "" while nothing listens.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Close ends the page for all, and for good.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.tickets, s.sessions = map[secret]ticket{}, map[secret]*session{}
	s.stop()
	s.mu.Unlock()
	s.serving.Wait()
}

// redeem makes a session of a ticket, which is worth nothing afterwards.
func (s *Server) redeem(text string, uid int) (api.WebToken, *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	hash := hashOf(text)
	t, known := s.tickets[hash]
	if !known || !t.admits(uid) {
		return api.WebToken{}, errEnded()
	}
	if len(s.sessions) >= maxSessions && !s.giveUpOne() {
		return api.WebToken{}, &api.Error{Code: api.CodeConflict, Message: "the page is open too often", Reason: fmt.Sprintf("%d are shown", maxSessions), Do: "close one"}
	}
	delete(s.tickets, hash)
	token, is := newSecret()
	s.sessions[is] = &session{visit: t.visit, used: now}
	s.arm(now)
	return api.WebToken{Token: token, ReadOnly: t.readOnly}, nil
}

// begin finds the session of a token and counts a call; done ends that.
func (s *Server) begin(token string, uid int) (v visit, done func(), err *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(time.Now())
	x := s.sessions[hashOf(token)]
	if x == nil || !x.admits(uid) {
		return v, nil, errEnded()
	}
	if x.calls >= maxCalls {
		return v, nil, &api.Error{Code: api.CodeUnavailable, Message: "too many calls at once", Reason: fmt.Sprintf("%d of this page are under way", maxCalls), Do: "wait for one to end"}
	}
	x.calls++
	return x.visit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.calls--
		x.used = time.Now()
		s.arm(x.used)
	}, nil
}

// admits reports whether a process of that user may use what was opened: its own, and root's, who may all. What root opened is for whoever
// has the secret, for root has no browser. So is all where the system does not say whose a connection is.
func (v visit) admits(uid int) bool { return uid == anybody || uid == 0 || v.UID == 0 || uid == v.UID }

// welcome reports whether there is anything here for a user.
func (s *Server) welcome(uid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.admits(uid) {
			return true
		}
	}
	for _, x := range s.sessions {
		if x.admits(uid) {
			return true
		}
	}
	return false
}

// giveUpOne ends the session that was not used for the longest, if there is one that is not shown.
func (s *Server) giveUpOne() bool {
	unused := map[secret]*session{}
	for hash, x := range s.sessions {
		if x.calls == 0 {
			unused[hash] = x
		}
	}
	if len(unused) == 0 {
		return false
	}
	last := dropOldest(unused, func(x *session) time.Time { return x.used })
	delete(s.sessions, last)
	return true
}

// sweep forgets what has expired. It is called with mu held, as all below is.
func (s *Server) sweep(now time.Time) {
	for hash, t := range s.tickets {
		if !now.Before(t.expires) {
			delete(s.tickets, hash)
		}
	}
	for hash, x := range s.sessions {
		if x.calls == 0 && now.Sub(x.used) >= idle {
			delete(s.sessions, hash)
		}
	}
}

// arm sets the timer to the next end that comes without a call, and stops to listen when nothing is left.
func (s *Server) arm(now time.Time) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.tickets)+len(s.sessions) == 0 {
		s.stop()
		return
	}
	var next time.Time
	earlier := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, t := range s.tickets {
		earlier(t.expires)
	}
	for _, x := range s.sessions {
		if x.calls == 0 {
			earlier(x.used.Add(idle))
		}
	}
	if next.IsZero() {
		return // until a call ends
	}
	s.timer = time.AfterFunc(next.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.sweep(now)
		s.arm(now)
	})
}

// start begins to listen.
func (s *Server) start() error {
	l, err := s.listen()
	if err != nil {
		return err
	}
	s.address = l.Addr().String()
	server := &http.Server{
		Handler: s.handler, ConnContext: withOwner,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	s.server = server
	s.serving.Go(func() { server.Serve(s.admitting(l)) })
	s.Log.Info("the page is open", "address", s.address)
	s.Changed()
	return nil
}

// stop ends that, and all connections.
func (s *Server) stop() {
	if s.address == "" {
		return
	}
	server := s.server
	s.serving.Go(func() { server.Close() }) // it waits for a connection that is being admitted, and that for mu
	s.Log.Info("the page is closed", "address", s.address)
	s.address, s.server = "", nil
	s.Changed()
}

// errEnded is the same for a token that never was one.
func errEnded() *api.Error {
	return &api.Error{Code: api.CodeForbidden, Message: "this page has ended", Reason: "its address opens it once, within a minute, and for who asked for it; it ends when nobody has looked for ten minutes", Do: "`kith web` opens another"}
}

func newSecret() (text string, hash secret) {
	b := make([]byte, 32)
	rand.Read(b)
	text = base64.RawURLEncoding.EncodeToString(b)
	return text, hashOf(text)
}

func hashOf(text string) secret { return sha256.Sum256([]byte(text)) }

// dropOldest deletes what is the oldest and gives its key.
func dropOldest[T any](from map[secret]T, when func(T) time.Time) (oldest secret) {
	var since time.Time
	for hash, t := range from {
		if since.IsZero() || when(t).Before(since) {
			oldest, since = hash, when(t)
		}
	}
	delete(from, oldest)
	return oldest
}

// ownerKey is of the user at the other end of a connection, in the context of its requests.
type ownerKey struct{}

func withOwner(ctx context.Context, conn net.Conn) context.Context {
	uid := anybody
	if c, is := conn.(*owned); is {
		uid = c.uid
	}
	return context.WithValue(ctx, ownerKey{}, uid)
}
