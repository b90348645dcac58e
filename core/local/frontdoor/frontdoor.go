package frontdoor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"kith.dev/core/local/apiproxy"
	"kith.dev/core/trust/audit"
)

// Config is what a Door needs. Audit may be nil.
type Config struct {
	Dir     string         // of its keys; it is made with mode 0700
	Address netip.AddrPort // at which users ask it, as it stands in their kubeconfigs
	// Allowed reports by an error, in words for the user, that a user who has a certificate may come in no more. It is asked once in
	// a minute for each user.
	Allowed func(User) error
	Audit   *audit.Log // of who is refused
	Log     *slog.Logger
}

// Door is the front door. Make it with New, serve it, and Lead it somewhere: until then it answers that nothing is ready.
type Door struct {
	cfg       Config
	authority *authority
	copies    *log.Logger // takes what is said of copies that broke off: each cut watch is one

	recheck time.Duration // between two looks at whether a user with an open stream may still be here
	leading sync.Mutex    // one switch at a time

	mu      sync.Mutex
	now     *generation   // nil during a switch
	next    chan struct{} // closed when there is one again
	allowed map[User]verdict
}

// verdict is what Allowed said.
type verdict struct {
	err   error
	until time.Time
}

const verdictHolds = time.Minute

// New makes a Door, and its keys, the first time.
func New(cfg Config) (*Door, error) {
	hosts := []netip.Addr{cfg.Address.Addr(), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	a, err := loadAuthority(cfg.Dir, hosts, time.Now)
	if err != nil {
		return nil, err
	}
	d := &Door{cfg: cfg, authority: a, copies: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug), recheck: verdictHolds, allowed: map[User]verdict{}}
	d.copies.SetPrefix("front door: ")
	d.now = d.newGeneration(Destination{Refusal: "the Kubernetes of this laptop is not ready yet: `kith status` shows how far it is", Soon: true})
	return d, nil
}

// session is one connection.
type session struct {
	once    sync.Once
	user    User
	leaf    *x509.Certificate
	err     error
	lineage lineage
}

type sessionKey struct{}

const (
	maxHeader     = 256 << 10
	handshakeTime = 10 * time.Second // and for the header of a request
	idleTime      = 3 * time.Minute
	maxStreams    = 1000 // on one connection: a desktop watches everything on one
)

// Serve answers at a listener until ctx ends; then it ends what is open.
func (d *Door) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: d,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: d.authority.show,
			// Asked for here and verified in the first request: so whoever is not let in is told why.
			ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
		},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, sessionKey{}, new(session))
		},
		ReadHeaderTimeout: handshakeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          d.copies,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("front door at %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	d.mu.Lock()
	now := d.now
	d.mu.Unlock()
	if now != nil {
		now.streams.end(errLed)
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if server.Shutdown(soon) != nil {
		_ = server.Close() // it says only that the listener is closed already
	}
	<-failed
	return nil
}

// ServeHTTP answers one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, _ := r.Context().Value(sessionKey{}).(*session)
	if s == nil || r.TLS == nil {
		apiproxy.Refuse(w, http.StatusUnauthorized, errNoCertificate.Error())
		return
	}
	if err := d.knows(s, r.TLS); err != nil {
		d.refused(r, s.user, RefusedCertificate, err)
		w.Header().Set("Connection", "close") // nothing else is to be had on it
		say(w, r, apiproxy.Failure(http.StatusUnauthorized, err.Error()))
		return
	}
	if r.Method == http.MethodConnect || r.URL.Path == "" || r.URL.Path[0] != '/' {
		apiproxy.Refuse(w, http.StatusMethodNotAllowed, "only requests for a path are passed on")
		return
	}
	g, err := d.enter(r.Context())
	if err != nil {
		return // the client went away; nobody reads this
	}
	defer g.leave()
	if g.Refusal != "" {
		unavailable(w, r, g.Refusal, g.Soon)
		return
	}
	d.pass(w, r, g, s)
}

// unavailable says 503, and, perhaps, that to ask again within a second may help.
func unavailable(w http.ResponseWriter, r *http.Request, why string, again bool) {
	status := apiproxy.Failure(http.StatusServiceUnavailable, why)
	if !again {
		status.Details = nil
	}
	say(w, r, status)
}

// say answers with a Status. kubectl reads no Status when it asks which kinds there are, which it does before anything else unless it
// did so today: it shows a sentence of its own. So the one that is meant is told as a warning, too.
func say(w http.ResponseWriter, r *http.Request, status metav1.Status) {
	if info, _ := apiproxy.Describe(r); info.Resource == "" {
		apiproxy.Warn(w.Header(), status.Message)
	}
	apiproxy.Say(w, status)
}

// Reasons of refusals (audit.Refusal).
const (
	RefusedCertificate audit.Reason = "certificate" // none, or none that is good
	RefusedAs                       = apiproxy.RefusedAs
	RefusedUpgrade                  = apiproxy.RefusedUpgrade
)

// RefusedReasons are all of them.
func RefusedReasons() []audit.Reason {
	return []audit.Reason{RefusedCertificate, RefusedAs, RefusedUpgrade}
}

func (d *Door) refused(r *http.Request, user User, reason audit.Reason, why error) {
	d.cfg.Audit.Note(audit.Refusal{
		Door: audit.Front, Reason: reason, User: cmp.Or(user.Name, "nobody with a certificate"), What: r.Method + " " + r.URL.Path, Why: why.Error(),
	})
}

// knows finds out who is at the other end, once, and whether he may still come in.
func (d *Door) knows(s *session, state *tls.ConnectionState) error {
	s.once.Do(func() {
		if s.user, s.err = d.authority.who(state.PeerCertificates); s.err == nil {
			s.leaf = state.PeerCertificates[0]
		}
	})
	if s.err != nil {
		return s.err
	}
	return d.mayStay(s)
}

// mayStay finds out whether a user who is known may still be here.
func (d *Door) mayStay(s *session) error {
	now := d.authority.now()
	if now.After(s.leaf.NotAfter) {
		return ended(s.leaf)
	}
	d.mu.Lock()
	known, ok := d.allowed[s.user]
	d.mu.Unlock()
	if !ok || !now.Before(known.until) {
		// Not under the lock: a directory service may be slow.
		known = verdict{d.cfg.Allowed(s.user), now.Add(verdictHolds)}
		d.mu.Lock()
		d.allowed[s.user] = known
		d.mu.Unlock()
	}
	return known.err
}

// whileAllowed has a stream, which nobody asks anything more on, end when its user may come in no more. All streams look in the same
// moments, so that many wake this machine no more often than one.
func (d *Door) whileAllowed(s *session, end func(error)) (stop func()) {
	next := func() time.Duration { return d.recheck - time.Duration(time.Now().UnixNano())%d.recheck }
	var mu sync.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(next(), func() {
		if err := d.mayStay(s); err != nil {
			end(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Reset(next())
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		timer = nil
	}
}

// pass has the destination answer.
func (d *Door) pass(w http.ResponseWriter, r *http.Request, g *generation, s *session) {
	info, watch := apiproxy.Describe(r)
	if err := apiproxy.CheckUpgrade(r, info, watch); err != nil {
		d.refused(r, s.user, RefusedUpgrade, err)
		w.Header().Set("Connection", "close") // else its body would be waited for before the answer
		apiproxy.Refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	reader := readerOf(s.user, r, info)
	if g.stale(s, reader, r, info, watch) {
		refuseStale(w, r, watch)
		return
	}
	var as http.Header
	if g.As != nil {
		asked, err := impersonated(r.Header)
		if err == nil {
			as, err = g.As(s.user, asked)
		}
		if err != nil {
			d.refused(r, s.user, RefusedAs, err)
			apiproxy.Refuse(w, http.StatusForbidden, err.Error())
			return
		}
	}
	ends := g.all
	if info.Stream {
		ends = g.streams
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(ends, func() { cancel(errLed) })()
	if info.Stream {
		defer d.whileAllowed(s, cancel)()
	}
	to := &writer{ResponseWriter: w}
	defer to.done()
	defer context.AfterFunc(g.writing, to.cut)()
	g.proxy.Pass(to, r.WithContext(ctx), apiproxy.Hop{
		Aim: func(to *url.URL) { g.aim(to, r.URL) },
		As:  as,
		Answered: func(answer *http.Response) error {
			if answer.StatusCode/100 == 2 && readable(r, info, watch) {
				tapped(answer, info.List, func(version string) { g.book.gave(reader, version, info.List) })
			}
			if watch && answer.StatusCode == http.StatusOK {
				answer.Body = &ending{answer.Body, ctx, sync.OnceFunc(func() { s.lineage.end(g, g.placeOf(reader, r)) })}
			}
			if left := s.leaf.NotAfter.Sub(d.authority.now()); left < tellUser {
				apiproxy.Warn(answer.Header, fmt.Sprintf("the certificate of your kubeconfig ends on %s: `kith kubeconfig` prints another", s.leaf.NotAfter.UTC().Format(time.DateOnly)))
			}
			return nil
		},
		Failed: func(err error) { g.failed(ctx, to, r, err) },
	})
}

// aim has the request go to the destination; what stands behind its base stays as it was written.
func (g *generation) aim(to, asked *url.URL) {
	to.Scheme, to.Host, to.RawQuery = g.Base.Scheme, g.Base.Host, asked.RawQuery
	if base := strings.TrimSuffix(g.Base.Path, "/"); base != "" {
		to.Path = base + asked.Path
		if asked.RawPath != "" {
			to.RawPath = base + asked.RawPath
		}
	}
}

// failed answers when the destination did not.
func (g *generation) failed(ctx context.Context, w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(context.Cause(ctx), errLed):
		unavailable(w, r, errLed.Error()+": ask again", true)
	case errors.Is(err, context.Canceled): // the client went away; nobody reads this
		unavailable(w, r, "cancelled", false)
	default:
		unavailable(w, r, fmt.Sprintf("%s does not answer: %v; `kith status` shows how it is", g.Name, err), false)
	}
}

// errNobody: an API server that takes no user from the headers would answer whoever brought them, and here that is not who asks.
var errNobody = errors.New("Impersonate-Group, -Uid and -Extra-* say more of a user: name one by Impersonate-User (kubectl --as)")

// impersonated are the headers by which somebody with the right to do so asks as somebody else, kubectl --as: those that API servers know, and
// no other. Nil: they name nobody, so that who asks is the asker himself.
//
// Source: buildImpersonationRequests in k8s.io/apiserver/pkg/endpoints/filters/impersonation.go.
func impersonated(in http.Header) (http.Header, error) {
	out := http.Header{}
	for name, values := range in {
		if slices.Contains([]string{transport.ImpersonateUserHeader, transport.ImpersonateGroupHeader, http.CanonicalHeaderKey(transport.ImpersonateUIDHeader)}, name) ||
			strings.HasPrefix(name, transport.ImpersonateUserExtraHeaderPrefix) && name != transport.ImpersonateUserExtraHeaderPrefix {
			out[name] = values
		}
	}
	switch named := in.Get(transport.ImpersonateUserHeader) != ""; {
	case named:
		return out, nil
	case slices.ContainsFunc(slices.Collect(maps.Keys(out)), func(name string) bool { return name != transport.ImpersonateUserHeader }):
		return nil, errNobody
	}
	return nil, nil
}

// ending is the body of a watch, which ends in good order when the front door is led elsewhere, as when an API server shuts down:
// programs take that for the end of a watch, and not for broken data.
type ending struct {
	io.ReadCloser
	ctx   context.Context
	ended func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.ended()
		if errors.Is(context.Cause(e.ctx), errLed) {
			err = io.EOF
		}
	}
	return n, err
}

// writer is where an answer goes; it can be cut when nobody reads it.
type writer struct {
	http.ResponseWriter

	mu   sync.Mutex
	over bool
	conn net.Conn // once it was taken over, for another protocol
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for programs that look for it in the writer itself.
func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// done: the answer is written, and what follows on the connection is another's.
func (w *writer) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

func (w *writer) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	if w.conn != nil {
		w.conn.Close()
		return
	}
	clock := http.NewResponseController(w.ResponseWriter)
	_ = clock.SetReadDeadline(time.Now()) // errors: a writer without deadlines has none
	_ = clock.SetWriteDeadline(time.Now())
}

// Hijack gives the connection away, as http.Hijacker, and remembers it.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn = conn; w.over {
		conn.Close()
	}
	return conn, buffered, nil
}
