package localapi

import (
	"net/http"
	"time"

	"kith.dev/core/api"
)

// Page is another way to the local API, for who has a browser (daemon/web).
type Page interface {
	// Open makes a way for a visitor and says where it begins.
	Open(v Visitor, options api.WebOptions) (api.Web, error)
}

// Visitor is a user who was let in at the socket, and comes by another way from then on.
type Visitor struct {
	UID int
	// API is the local API as this user has it at the socket. Whether the user may still call is asked at each call.
	API http.Handler
}

// serveWeb answers POST /v1/web.
func (s *Server) serveWeb(w http.ResponseWriter, r *http.Request) {
	who := r.Context().Value(callerKey{}).(*caller)
	c := &call{ctx: r.Context(), r: r, w: w}
	var options api.WebOptions
	var opened api.Web
	err := c.receive(s.CallTimeout)
	if err == nil {
		options, err = body[api.WebOptions](c)
	}
	if err == nil {
		opened, err = s.Page.Open(Visitor{UID: who.uid, API: s.visited(who.credentials)}, options)
	}
	s.Log.Info("local API call", "call", "POST "+r.URL.Path, "uid", who.uid, "pid", who.pid, "readOnly", options.ReadOnly, "err", err)
	c.control().SetWriteDeadline(time.Now().Add(s.CallTimeout))
	reply(w, opened, err)
}

// visited serves calls that do not come by the socket. Nothing is known of the process they come from.
func (s *Server) visited(who credentials) http.Handler {
	who.pid = 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &caller{credentials: who}
		s.authorize(s.mux).ServeHTTP(w, r.WithContext(c.in(r.Context())))
	})
}
