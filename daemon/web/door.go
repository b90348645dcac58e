package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/trust/audit"
)

// The reasons of refusals (audit.Refusal).
const (
	RefusedUser   audit.Reason = "user"   // of this machine, for whom nothing is open
	RefusedHost   audit.Reason = "host"   // the request is for another name: one that somebody has lead here
	RefusedOrigin audit.Reason = "origin" // a page of another site made it
	RefusedToken  audit.Reason = "token"  // it has none that is worth something
)

// RefusedReasons are all of them.
func RefusedReasons() []audit.Reason {
	return []audit.Reason{RefusedUser, RefusedHost, RefusedOrigin, RefusedToken}
}

const (
	// sendTime bounds how long a browser may take for a request's body, or for an asset.
	sendTime = 10 * time.Second
	// maxSession bounds the body that has a ticket.
	maxSession = 1 << 10
)

// policy lets the page run and fetch what is served here, and nothing else; text from elsewhere cannot become markup or a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guarded keeps out what is not the page itself, or a browser that was told to open it. It is the same for all requests, also for those
// that only read, for an answer to a GET is what another site would like to have.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Embedder-Policy", "require-corp")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime)) // what takes longer sets another
		address := s.Address()
		if address == "" || r.Host != address {
			s.refuse(w, r, RefusedHost, http.StatusMisdirectedRequest, &api.Error{
				Code: api.CodeForbidden, Message: "nobody of that name is here", Reason: fmt.Sprintf("the request is for %q", r.Host), Do: "`kith web` says where the page is",
			})
			return
		}
		if why := foreign(r, address); why != "" {
			s.refuse(w, r, RefusedOrigin, http.StatusForbidden, &api.Error{Code: api.CodeForbidden, Message: "this page is for itself", Reason: why, Do: "`kith web` opens it"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says why a request is not the page's own, or that of a browser that was told to open it; "": it is. A browser sends Origin with all
// but plain reads, and Sec-Fetch-Site with everything; what sends neither is no browser.
func foreign(r *http.Request, address string) string {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != "http://"+address {
		return fmt.Sprintf("it comes from %q", strings.Join(origins, ", "))
	}
	opens := r.Method == http.MethodGet && r.URL.Path == "/" // by hand, or by kith
	sites := r.Header.Values("Sec-Fetch-Site")
	switch {
	case len(sites) == 0:
	case len(sites) == 1 && (sites[0] == "same-origin" || sites[0] == "none" && opens):
	default:
		return fmt.Sprintf("the browser calls it %q", strings.Join(sites, ", "))
	}
	return ""
}

// refuse answers with an error and records it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, reason audit.Reason, status int, e *api.Error) {
	s.Audit.Note(audit.Refusal{Door: audit.Page, Reason: reason, User: userOf(r), What: r.Method + " " + r.URL.Path, Why: e.Reason, Usual: reason == RefusedToken})
	fail(w, status, e)
}

func fail(w http.ResponseWriter, status int, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]*api.Error{"error": e})
}

func ownerOf(r *http.Request) int { return r.Context().Value(ownerKey{}).(int) }

func userOf(r *http.Request) string {
	if uid := ownerOf(r); uid != anybody {
		return fmt.Sprintf("uid %d", uid)
	}
	return "a program of this machine"
}

// calls are those of the local API that the page may make; one that was opened to look only those that read, without the doctor, which
// wakes a Kubernetes that sleeps.
var calls = []string{
	"GET " + api.PathSnapshot, "GET " + api.PathEvents,
	"GET " + api.PathTop, "GET " + api.PathOffloads, "GET " + api.PathNotRunning, "GET " + api.PathReceipts, "GET " + api.PathDoctor,
	"POST " + api.PathAccept, "POST " + api.PathDecline, "POST " + api.PathConfirm,
	"PATCH " + api.PathPolicy, "POST " + api.PathUndo,
}

// routes is all that is served.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, a := range assets {
		mux.HandleFunc("GET "+path, a.serve)
	}
	mux.HandleFunc("POST "+api.PathWebSession, s.serveSession)
	for _, c := range calls {
		method, path, _ := strings.Cut(c, " ")
		mux.HandleFunc(method+" "+api.PathWebAPI+path, s.serveCall)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, &api.Error{Code: api.CodeNotFound, Message: "the page has no " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// serveSession answers POST /session.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(sendTime))
	var in api.WebSession
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSession))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		fail(w, http.StatusBadRequest, &api.Error{Code: api.CodeInvalid, Message: "the request cannot be read", Reason: err.Error()})
		return
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		fail(w, http.StatusBadRequest, &api.Error{Code: api.CodeInvalid, Message: "the request cannot be read", Reason: "something follows the JSON value"})
		return
	}
	token, e := s.redeem(in.Ticket, ownerOf(r))
	if e != nil {
		s.deny(w, r, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(token)
}

// serveCall passes a call on to the local API, for whoever opened the page.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || len(r.Header.Values("Authorization")) != 1 {
		token = ""
	}
	v, done, e := s.begin(token, ownerOf(r))
	if e != nil {
		s.deny(w, r, e)
		return
	}
	defer done()
	if v.readOnly && (r.Method != http.MethodGet || r.URL.Path == api.PathWebAPI+api.PathDoctor) {
		fail(w, http.StatusForbidden, &api.Error{Code: api.CodeForbidden, Message: "this page changes nothing", Reason: "it was opened with --read-only", Do: "`kith web` opens one that does"})
		return
	}
	http.StripPrefix(api.PathWebAPI, v.API).ServeHTTP(w, r)
}

// deny answers who has no session, or no room.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, e *api.Error) {
	if e.Code == api.CodeForbidden {
		s.refuse(w, r, RefusedToken, http.StatusUnauthorized, e)
		return
	}
	fail(w, e.Code.HTTPStatus(), e)
}
