package localapi

import (
	"context"
	"net/http"
	"time"
)

const (
	// reportTime bounds the making of a bug report, readTime how long its reader may leave a part of it unread.
	reportTime = 3 * time.Minute
	readTime   = 30 * time.Second
)

// serveBugReport writes the report as it is made: it is never whole in memory. One that breaks off is cut, so that its reader notices.
func (s *Server) serveBugReport(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reportTime)
	defer cancel()
	who := r.Context().Value(callerKey{}).(*caller)
	out := &unhurried{w: w, control: http.NewResponseController(w)}
	err := s.Backend.BugReport(ctx, out)
	s.Log.Info("local API call", "call", "GET "+r.URL.Path, "uid", who.uid, "pid", who.pid, "err", err)
	switch {
	case err != nil && !out.begun:
		fail(w, asError(err))
	case err != nil:
		panic(http.ErrAbortHandler)
	}
}

// unhurried gives the reader time for each part.
type unhurried struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (u *unhurried) Write(b []byte) (int, error) {
	if !u.begun {
		u.begun = true
		u.w.Header().Set("Content-Type", "application/gzip")
	}
	u.control.SetWriteDeadline(time.Now().Add(readTime))
	return u.w.Write(b)
}
