package peering

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	maxHeader = 32 << 10
	// How long a server that ends waits for calls under way, and then for streams after they were told.
	finishCalls   = time.Second
	finishStreams = 3 * time.Second
	// A connection that was refused so often is cut.
	maxRefusals = 100
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Identity *identity.Identity
	Name     func() string // what this cluster calls itself now
	Version  string        // of the program, for people
	Handler  Handler
	Log      *slog.Logger
	// Answered counts that a request is being answered: the pattern of its route, "" when there is none, and the HTTP status. Streams
	// count when they begin. It is called from many goroutines and must return at once; may be nil.
	Answered func(route string, status int)
	// Answer writes a Problem where clients of a route of Handle expect another form; nil: WriteProblem.
	Answer func(w http.ResponseWriter, r *http.Request, problem *Problem)
	Audit  *audit.Log // of refusals; nil: one that writes to Log
	// Woke is called some seconds after this machine was suspended, if any stream was open; may be nil.
	Woke func()
	// Takes: connections that were made here are served as well, see Take, and callers with a presence stream can be asked for them, see CallBack.
	Takes bool
	// Relays: peers that are recognised are told that this cluster passes connections on between them.
	Relays bool
	// Beat is asked for every Beat that is sent, and must answer at once; nil: all is well.
	Beat func() Beat
	// LastWord is what the last word of this machine before a suspend says to a caller that is recognised on whether it may wake it; nil: nothing.
	LastWord func(identity.ID) *canonical.Signed
}

// Server serves the peer API, through which all calls of other clusters come.
type Server struct {
	config     ServerConfig
	limits     Limits
	mux        *http.ServeMux
	handled    map[string]http.HandlerFunc // of Handle, by pattern
	refusals   *audit.Log
	known      *openings      // of callers whose key was compared
	strange    *openings      // of all others
	asked      *windowLimiter // questions of strangers
	unasked    *windowLimiter // openings of strangers that no question followed yet
	underWay   atomic.Int64   // requests in a handler
	inFlight   inFlight
	perIP      *limiters[netip.Addr]
	perID      *limiters[identity.ID]
	asksIP     *limiters[netip.Addr]
	asksID     *limiters[identity.ID]
	heartbeats sharedTicker // of streams whose callers are recognised
	rechecks   sharedTicker // of the others: whether they are recognised meanwhile
	callBacks  callBacks
	listener   atomic.Pointer[limitedListener] // nil before Serve
	streams    streams
}

// NewServer makes a server with the routes of the package comment.
func NewServer(config ServerConfig) *Server { return newServer(config, defaultLimits) }

func newServer(config ServerConfig, limits Limits) *Server {
	if config.Answered == nil {
		config.Answered = func(string, int) {}
	}
	if config.Beat == nil {
		config.Beat = func() Beat { return Beat{} }
	}
	if config.Audit == nil {
		config.Audit = audit.New(config.Log, audit.Options{})
	}
	s := &Server{
		config:     config,
		limits:     limits,
		mux:        http.NewServeMux(),
		handled:    map[string]http.HandlerFunc{},
		refusals:   config.Audit,
		known:      newOpenings(),
		strange:    newOpenings(),
		asked:      newWindowLimiter(limits.Questions),
		unasked:    newWindowLimiter(limits.Openings),
		inFlight:   inFlight{n: map[inFlightKey]int{}},
		perIP:      newLimiters[netip.Addr](limits.IPRate),
		perID:      newLimiters[identity.ID](limits.CallerRate),
		asksIP:     newLimiters[netip.Addr](limits.AskRate),
		asksID:     newLimiters[identity.ID](limits.AskRate),
		heartbeats: sharedTicker{every: heartbeatEvery, woke: config.Woke},
		rechecks:   sharedTicker{every: recogniseIn},
	}
	s.routes()
	return s
}

// Handle adds a route (a pattern of http.ServeMux) for any caller whose key is proven: whether it may is the
// handler's decision. Deadlines are too: none is set, so streams, and upgrades by http.Hijacker (HTTP/1.1), work;
// the request's context ends when the caller goes or the server ends. A caller has at most Limits.Requests of
// these at once; under /kith/ the limits on rates hold as well.
func (s *Server) Handle(pattern string, handler func(http.ResponseWriter, *http.Request, Caller)) {
	s.handled[pattern] = func(w http.ResponseWriter, r *http.Request) {
		caller := *connOf(r.Context()).caller
		release, ok := s.inFlight.take(caller.ID, "requests", s.limits.Requests)
		if !ok {
			s.refuse(w, r, caller, &Problem{Code: CodeRateLimited, Message: "too many requests at once", Do: "end some first"})
			return
		}
		defer release()
		handler(w, r, caller)
	}
	s.mux.HandleFunc(pattern, s.handled[pattern])
}

// Serve answers at the listener, and closes it, until ctx ends; then it says goodbye on the presence streams, lets
// calls finish for a second and cuts what is left. The error is nil when ctx ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	limited := newLimitedListener(listener, s.limits, s.refusals)
	s.listener.Store(limited)
	streams, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		TLSConfig:         s.config.Identity.ServerTLS(),
		ReadHeaderTimeout: s.limits.HeaderTimeout, // of the TLS handshake too
		IdleTimeout:       s.limits.IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return streams },
		ConnContext:       withConn,
		ConnState:         upgraded,
		ErrorLog:          log.New(handshakeLog{s.refusals}, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.limits.Requests + s.limits.Polls + s.limits.Presences + 16,
			WriteByteTimeout:     s.limits.BodyTimeout,
		},
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(limited, "", "") }()
	var takes sync.WaitGroup
	if s.config.Takes {
		takes.Go(func() { server.ServeTLS(takenListener{limited}, "", "") })
	}
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("peer API at %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	close(limited.quit)
	// Shutdown closes the listener and says GOAWAY. It waits for idle connections too, for a second or two; so we
	// wait by our own count.
	goodbye, done := context.WithTimeout(context.Background(), finishCalls+finishStreams)
	var shutdown sync.WaitGroup
	shutdown.Go(func() { server.Shutdown(goodbye) })
	s.calm(finishCalls)
	cut()
	s.calm(finishStreams)
	server.Close()
	done()
	shutdown.Wait()
	limited.closeAll()
	takes.Wait()
	if err == nil {
		<-failed
	}
	return err
}

// Cut closes all connections that the caller has open. It may come again at once.
func (s *Server) Cut(caller identity.ID) {
	if l := s.listener.Load(); l != nil {
		l.cut(caller)
	}
}

// calm waits until nothing is under way, at most so long, and a moment for what handlers left behind to be written.
func (s *Server) calm(atMost time.Duration) {
	for end := time.Now().Add(atMost); s.underWay.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
}

// upgraded lets a connection that was taken over stand still (see tune).
func upgraded(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok && state == http.StateHijacked {
		if c, ok := t.NetConn().(*limitedConn); ok {
			tune(c.Conn, true)
		}
	}
}

// serve runs before all routes: it identifies the caller and applies the limits.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	counted := &statusWriter{ResponseWriter: w, r: r, by: s.config.Answered}
	defer counted.tell(http.StatusOK) // a handler that wrote nothing
	w = counted
	conn := connOf(r.Context())
	caller, problem := s.callerOf(conn, r)
	if !conn.headers.AllowN(time.Now(), min(headerSize(r), s.limits.HeaderRate.Burst)) {
		problem := &Problem{Code: CodeRateLimited, Message: "too many bytes of headers"}
		s.note(r, caller, problem)
		counted.tell(problem.HTTPStatus())
		conn.Close()
		return
	}
	if problem == errAnother {
		s.note(r, caller, problem)
		counted.tell(problem.HTTPStatus())
		conn.Close()
		return
	}
	if problem != nil { // about the connection itself
		w.Header().Set("Connection", "close")
	}
	if problem == nil && strings.HasPrefix(r.URL.Path, "/kith/") && (!s.perID.allow(caller.ID) || !s.perIP.allow(caller.from)) {
		problem = &Problem{Code: CodeRateLimited, Message: "too many calls", Do: "wait, and call less often"}
		w.Header().Set("Retry-After", "5")
	}
	if problem != nil {
		s.refuse(w, r, caller, problem)
		return
	}
	if clean := path.Clean(r.URL.Path); r.URL.Path != clean && r.URL.Path != clean+"/" {
		s.unclean(w, r, caller)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unclean answers paths with dots or empty segments, which the mux would redirect to what they could mean: whoever
// has the folder they begin with decides.
func (s *Server) unclean(w http.ResponseWriter, r *http.Request, caller Caller) {
	for pattern, handle := range s.handled {
		if strings.HasSuffix(pattern, "/") && strings.HasPrefix(r.URL.Path, pattern) {
			r.Pattern = pattern
			handle(w, r)
			return
		}
	}
	s.refuse(w, r, caller, &Problem{Code: CodeBadRequest, Message: "path: has dots or empty segments"})
}

// callerOf tells who is at the other end; the first request of a connection finds out.
func (s *Server) callerOf(conn *limitedConn, r *http.Request) (Caller, *Problem) {
	conn.admitting.Lock()
	defer conn.admitting.Unlock()
	if conn.caller != nil {
		return *conn.caller, conn.refused
	}
	id, key, err := identity.PeerOf(*r.TLS)
	if err != nil { // the handshake would have failed
		return Caller{Addr: conn.addr}, &Problem{Code: CodeBadRequest, Message: err.Error()}
	}
	caller := Caller{ID: id, Key: key, Addr: conn.addr, from: conn.from}
	if conn.way != nil && conn.way.who != id {
		return caller, errAnother
	}
	if conn.refused == nil {
		leave, ok := s.inFlight.take(id, "connections", s.limits.ConnsPerCaller)
		if !ok {
			return caller, &Problem{Code: CodeRateLimited, Message: "too many connections", Do: "close some first"}
		}
		conn.leave = leave
	}
	conn.caller = &caller
	if s.config.Handler.Recognise(r.Context(), caller) {
		conn.listener.recognise(conn)
	}
	return caller, conn.refused
}

// refuse answers with the problem. With HTTP/1.1 it then closes the connection, so that the rest of the request need not be read. With HTTP/2
// other requests go on, since a new handshake would cost more than a refusal; after many refusals the connection is closed too.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, caller Caller, problem *Problem) {
	s.note(r, caller, problem)
	conn := connOf(r.Context())
	if conn.refusals.Add(1) > maxRefusals {
		if o, ok := w.(*statusWriter); ok {
			o.tell(problem.HTTPStatus())
		}
		conn.Close()
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.limits.BodyTimeout))
	s.deadline(w)
	if s.config.Answer != nil {
		s.config.Answer(w, r, problem)
		return
	}
	WriteProblem(w, problem)
}

// note records that a request was refused.
func (s *Server) note(r *http.Request, caller Caller, problem *Problem) {
	refusal := audit.Refusal{Door: audit.PeerAPI, Reason: audit.Reason(problem.Code), Addr: caller.Addr, What: wire.Line(r.Method+" "+r.URL.Path, maxReason), Why: problem.Message, Usual: problem.Code == CodeRateLimited || problem.Code == CodeVersion}
	if !caller.ID.IsZero() {
		refusal.ID = caller.ID.String()
	}
	s.refusals.Note(refusal)
}

func (s *Server) deadline(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.BodyTimeout))
}

// fail answers with what a Handler returned, or a message was found to be.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, caller Caller, err error) {
	var problem *Problem
	switch {
	case r.Context().Err() != nil: // nobody reads the answer
		s.config.Log.Debug("call cut off", "id", caller.ID.String(), "path", r.URL.Path, "err", err)
	case !errors.As(err, &problem):
		s.config.Log.Error("call failed", "id", caller.ID.String(), "path", r.URL.Path, "err", err)
	case problem.Code == CodeBadRequest, problem.Code == CodeTooLarge, problem.Code == CodeForbidden, problem.Code == CodeRateLimited:
		s.note(r, caller, problem)
	default:
		s.config.Log.Debug("call answered with a problem", "id", caller.ID.String(), "path", r.URL.Path, "err", err)
	}
	s.deadline(w)
	WriteProblem(w, err)
}

// handshakeLog takes what the http server says about failed handshakes.
type handshakeLog struct{ refusals *audit.Log }

func (h handshakeLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	var addr netip.AddrPort
	if rest, ok := strings.CutPrefix(text, "http: TLS handshake error from "); ok {
		if from, why, ok := strings.Cut(rest, ": "); ok {
			if a, err := netip.ParseAddrPort(from); err == nil {
				addr, text = a, "TLS handshake: "+why
			}
		}
	}
	h.refusals.Note(audit.Refusal{Door: audit.PeerAPI, Reason: RefusedHandshake, Addr: addr, What: "connection", Why: wire.Line(text, 2*maxReason)})
	return len(line), nil
}

// Caller is the peer at the other end of a connection. Its key is proven; its address may be a router's.
type Caller struct {
	ID   identity.ID
	Key  ed25519.PublicKey
	Addr netip.AddrPort // zero when a peer passes the connection on

	from netip.Addr // see limitedConn
}

// Handler answers the calls of peers; core/agree/relations/provider implements it.
//
// What it is given has been validated; what it returns is validated before it is sent. All methods may run at
// once, for one caller and for many, and must end when ctx does. An error that is, or wraps, a *Problem is sent
// to the caller as it is; of any other the caller learns only that something failed, and the log has it.
type Handler interface {
	// Recognise reports whether the caller is known here: its key was verified by the owner, or a contract with it is in force. It is called
	// for every connection, and every 10 s for each stranger with a presence stream: answer from memory.
	Recognise(ctx context.Context, caller Caller) bool
	// Compared reports whether an owner here verified the caller's key, by its code or its ID. All others count as strangers for the limits on
	// these. It is called twice per request: answer from memory.
	Compared(ctx context.Context, caller Caller) bool
	// WouldGive says what the caller would get now. Strangers may ask, too.
	WouldGive(ctx context.Context, caller Caller) (Supply, error)
	// Ask submits the request to the owner, or a policy. code is the pairing code; compare: the asker's owner is shown it. Show it to the owner
	// here, too, unless the caller's key was verified before and compare is false. A new request of the same caller replaces the pending
	// one. requestID consists of letters, digits, dashes and dots, at most 128.
	Ask(ctx context.Context, caller Caller, question Question, code string, compare bool) (requestID string, expires time.Time, err error)
	// Outcome blocks until the caller's request is answered, or ctx ends: then the state is pending and the
	// error nil. A request that is not the caller's is CodeNotFound.
	Outcome(ctx context.Context, caller Caller, requestID string) (Outcome, error)
	// Withdraw takes a request of the caller back. It is idempotent: one that is not there, or not the caller's, is no error.
	// mismatch: the codes, or keys, were not the same there.
	Withdraw(ctx context.Context, caller Caller, requestID string, mismatch bool) error
	// Sign checks a contract that the caller signed as consumer against the offer it was given, and
	// countersigns it. The same bytes again give the same answer.
	Sign(ctx context.Context, caller Caller, signed contract.Signed) (contract.Signed, error)
	// Contracts lists what is in force with the caller, in both directions.
	Contracts(ctx context.Context, caller Caller) ([]ContractRef, error)
	// End ends a contract with the caller. It is idempotent: what has ended, or is not known, is no error.
	End(ctx context.Context, caller Caller, contractID string) error
	// Link receives the caller's side of the link and returns this one's. Without a contract it is CodeNoContract.
	Link(ctx context.Context, caller Caller, theirs Link) (Link, error)
	// Tether says whether this cluster runs the calling laptop, or would accept to; the caller may be a stranger.
	Tether(ctx context.Context, caller Caller) (Tether, error)
	// BeginTether makes the calling laptop a node of this cluster, once its request was accepted here. It is idempotent. CodeForbidden
	// when no request was accepted, CodeNotFound when this side ended the tether.
	BeginTether(ctx context.Context, caller Caller) (Tether, error)
	// EndTether ends the tether with the calling laptop: this cluster's pods are evicted from it, and the contract ends. It does not
	// wait for that, and is idempotent.
	EndTether(ctx context.Context, caller Caller) error
	// Notices is the channel of notices for the caller, until ctx ends. It may be closed before.
	Notices(ctx context.Context, caller Caller) <-chan Notice
}
