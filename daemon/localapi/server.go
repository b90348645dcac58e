package localapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/trust/audit"
)

// Options is what a Server needs. Backend, Events and Log must be set.
type Options struct {
	Socket  string // path, for example /run/kith/kith.sock; its directory is made when it is not there
	Group   string // members may call, and the socket belongs to it; empty, or no such group: root only
	Backend Backend
	Events  *Broker
	Log     *slog.Logger
	Audit   *audit.Log // of refusals; may be nil
	Page    Page       // nil: there is none

	// CallTimeout bounds calls that are not long; 0 is 30 s. A caller that sends or reads nothing for as long is cut.
	CallTimeout time.Duration
}

// Server serves the local API. Make it with New, then Run it once.
type Server struct {
	Options
	mux      *http.ServeMux
	listener *listener
	member   func(credentials) (bool, error)
}

// New makes a Server; nothing is touched until Listen.
func New(options Options) *Server {
	if options.CallTimeout == 0 {
		options.CallTimeout = 30 * time.Second
	}
	s := &Server{Options: options, mux: http.NewServeMux()}
	s.member = func(c credentials) (bool, error) { return memberOf(c, options.Group) }
	for _, r := range routes {
		s.mux.Handle(r.method+" "+r.path, s.serve(r))
	}
	s.mux.HandleFunc("GET "+api.PathEvents, s.serveEvents)
	s.mux.HandleFunc("GET "+api.PathSnapshot, s.serveSnapshots)
	s.mux.HandleFunc("GET "+api.PathBugReport, s.serveBugReport)
	s.mux.HandleFunc("POST "+api.PathImages, s.serveLoad)
	if s.Page != nil {
		s.mux.HandleFunc("POST "+api.PathWeb, s.serveWeb)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &api.Error{
			Code:    api.CodeUnsupported,
			Message: fmt.Sprintf("the local API has no call %s %s", r.Method, r.URL.Path),
			Reason:  "kith and kithd may be of different versions",
			Do:      "`kith version` shows both",
		})
	})
	return s
}

// Handle adds a handler, for example "GET /metrics", for the same callers as the rest. Call it before Run.
func (s *Server) Handle(pattern string, handler http.Handler) { s.mux.Handle(pattern, handler) }

// HandleRoot is Handle for callers who are root or the user kithd runs as; the group is refused.
func (s *Server) HandleRoot(pattern string, handler http.Handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if !r.Context().Value(callerKey{}).(*caller).owns() {
			fail(w, &api.Error{Code: api.CodeForbidden, Message: r.URL.Path + " is for root only", Do: "try as root"})
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// Listen takes the socket. That another kithd has it is an *api.Error with CodeConflict: call it before anything
// is started that two daemons must not both do. Run calls it when nobody did.
func (s *Server) Listen() (err error) {
	if s.listener == nil {
		s.listener, err = listen(s.Socket, s.Group, s.Log)
	}
	return err
}

// Run serves until ctx ends, then gives running calls a moment to see it, and takes the socket away.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	defer s.listener.release()
	calls, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{
		Handler:           s.authorize(s.mux),
		BaseContext:       func(net.Listener) context.Context { return calls },
		ConnContext:       withCaller,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("local API at %s: %w", s.Socket, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}
