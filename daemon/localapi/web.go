package localapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
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
	// API is the local API as this user has it at the socket, but for what a group of the process gives there. Whether the user may still call is asked at each call.
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
		err = s.mayVisit(who.uid)
	}
	if err == nil {
		opened, err = s.Page.Open(Visitor{UID: who.uid, API: s.visited(who.uid)}, options)
	}
	s.Log.Info("local API call", "call", "POST "+r.URL.Path, "uid", who.uid, "pid", who.pid, "readOnly", options.ReadOnly, "err", err)
	c.control().SetWriteDeadline(time.Now().Add(s.CallTimeout))
	reply(w, opened, err)
}

// visitor is who comes without a process of which the kernel could say something: what a user is by the system's directory counts, which ends
// when it is taken away there, and not the group that some process had once.
func visitor(uid int) credentials { return credentials{uid: uid, gid: -1} }

// mayVisit refuses who came in at the socket by the group of the process alone: no call of the page would be answered.
func (s *Server) mayVisit(uid int) error {
	allowed, err := s.member(visitor(uid))
	if err == nil && !allowed {
		return &api.Error{
			Code: api.CodeForbidden, Message: "the page cannot be opened", Reason: fmt.Sprintf("it is for members of the group %s, and the group is this process's alone, not the user's", s.Group),
			Do: "usermod -aG " + s.Group + " USER, as an administrator",
		}
	}
	return err
}

// visited serves calls that do not come by the socket. When one is refused, those that are under way end, too.
func (s *Server) visited(uid int) http.Handler {
	var mu sync.Mutex
	allowed, end := context.WithCancel(context.Background())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		until := allowed
		mu.Unlock()
		ctx, done := context.WithCancel(r.Context())
		defer done()
		defer context.AfterFunc(until, done)()
		c := &caller{credentials: visitor(uid)}
		s.authorize(s.mux).ServeHTTP(w, r.WithContext(c.in(ctx)))
		if !c.allowed {
			mu.Lock()
			defer mu.Unlock()
			end()
			allowed, end = context.WithCancel(context.Background())
		}
	})
}
