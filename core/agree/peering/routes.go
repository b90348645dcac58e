package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"kith.dev/core/trust/audit"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// routes is the table of the package comment.
func (s *Server) routes() {
	s.call("GET "+helloPath, callTimeout, s.hello)
	s.call("GET "+supplyPath, callTimeout, func(_ http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
		supply, err := s.config.Handler.WouldGive(r.Context(), caller)
		return &supply, err
	})
	s.call("POST /kith/v2/requests", callTimeout, s.open)
	s.call("POST /kith/v2/requests/{id}/question", callTimeout, s.question)
	s.call("GET /kith/v2/requests/{id}", s.limits.PollTime, s.outcome)
	s.call("DELETE /kith/v2/requests/{id}", callTimeout, s.withdraw)
	s.call("POST /kith/v2/contracts", callTimeout, s.sign)
	s.call("GET /kith/v2/contracts", callTimeout, s.contracts)
	s.call("DELETE /kith/v2/contracts/{id}", callTimeout, s.end)
	s.call("PUT /kith/v2/link", callTimeout, s.link)
	s.call("GET "+tetherPath, callTimeout, s.tether(Handler.Tether))
	s.call("PUT "+tetherPath, callTimeout, s.tether(Handler.BeginTether))
	s.call("DELETE "+tetherPath, callTimeout, func(_ http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
		return nil, s.config.Handler.EndTether(r.Context(), caller)
	})
	s.mux.HandleFunc("GET /kith/v2/presence", s.presence)
	s.mux.HandleFunc("GET /kith/v1/presence", s.greetOlder)
	s.mux.HandleFunc("/", s.nothing)
}

// call adds a route that reads at most one message and answers with one. The limit is for the answer; reading and writing have their own.
func (s *Server) call(pattern string, limit time.Duration, answer func(http.ResponseWriter, *http.Request, Caller) (message, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		caller := *connOf(r.Context()).caller
		rc := http.NewResponseController(w)
		if r.ContentLength != 0 {
			rc.SetReadDeadline(time.Now().Add(s.limits.BodyTimeout))
			if r.Method == http.MethodGet || r.Method == http.MethodDelete {
				s.fail(w, r, caller, &Problem{Code: CodeBadRequest, Message: "body: none is expected here"})
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		out, err := answer(w, r.WithContext(ctx), caller)
		if err == nil && out != nil {
			if err = out.Validate(); err != nil {
				err = fmt.Errorf("own answer is not valid: %w", err)
			}
		}
		if err != nil {
			s.fail(w, r, caller, err)
			return
		}
		s.deadline(w)
		if out == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(out)
	})
}

// read decodes the body. When it came whole the deadline on reading is lifted: with HTTP/1.1 it would end a call that
// takes long.
func read(w http.ResponseWriter, r *http.Request, into message) error {
	err := decode(r.Header.Get("Content-Type"), r.Body, into)
	if err == nil {
		http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return err
}

func (s *Server) hello(http.ResponseWriter, *http.Request, Caller) (message, error) {
	return s.self(), nil
}

func (s *Server) self() *Hello {
	name := wire.Line(s.config.Name(), contract.MaxName)
	if name == "" {
		name = s.config.Identity.ID().Short()
	}
	return &Hello{
		Version:  s.config.Version,
		ID:       s.config.Identity.ID(),
		Name:     name,
		Protocol: []string{Protocol},
	}
}

// open commits to a nonce.
func (s *Server) open(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	compared := s.config.Handler.Compared(r.Context(), caller)
	if !s.asksID.allow(caller.ID) || !compared && !s.asksIP.allow(caller.from) {
		return nil, &Problem{Code: CodeRateLimited, Message: "too many questions", Do: "wait a little before you ask again"}
	}
	if caller.ID == s.config.Identity.ID() {
		return nil, &Problem{Code: CodeBadRequest, Message: "a cluster cannot ask itself"}
	}
	var in Opening
	if err := read(w, r, &in); err != nil {
		return nil, err
	}
	var o opening
	if compared {
		o = s.known.add(caller.ID, nil)
	} else {
		cost, err := s.spend(s.unasked, caller, "openings that no question followed")
		if err != nil {
			return nil, err
		}
		o = s.strange.add(caller.ID, cost)
	}
	commitment := identity.Commit(o.nonce, caller.ID, s.config.Identity.ID())
	return &Opened{ID: o.id, Commitment: commitment[:]}, nil
}

// question takes the asker's nonce, puts the question before the owner, and only then reveals this side's nonce.
func (s *Server) question(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	var in Asking
	if err := read(w, r, &in); err != nil {
		return nil, err
	}
	o, err := s.strange.take(caller.ID, r.PathValue("id"))
	if err != nil {
		o, err = s.known.take(caller.ID, r.PathValue("id"))
	}
	if err != nil {
		return nil, err
	}
	compared := s.config.Handler.Compared(r.Context(), caller)
	if !compared {
		if _, err := s.spend(s.asked, caller, "questions"); err != nil {
			return nil, err
		}
	}
	s.unasked.giveBack(o.cost)
	code := identity.Code(caller.ID, s.config.Identity.ID(), identity.Nonce(in.Nonce), o.nonce)
	id, expires, err := s.config.Handler.Ask(r.Context(), caller, in.Question, code, in.Compare)
	if err != nil {
		return nil, err
	}
	return &Revealed{ID: id, Expires: expires, Nonce: o.nonce[:], Compare: !compared}, nil
}

// spend counts an action of a stranger against its WindowLimit. When the limit for all strangers is reached the owner is notified, once per
// window.
func (s *Server) spend(of *windowLimiter, caller Caller, what string) (*spent, error) {
	cost, first := of.take(caller.from)
	if cost != nil {
		return cost, nil
	}
	problem := &Problem{Code: CodeRateLimited, Message: fmt.Sprintf("too many %s of clusters that are not known here", what),
		Do: fmt.Sprintf("try again in %d minutes", max(1, int(of.Within/time.Minute)))}
	if first {
		s.refusals.Note(audit.Refusal{Door: audit.PeerAPI, Reason: audit.Reason(problem.Code), ID: caller.ID.String(), Addr: caller.Addr, What: "a question", Tell: true,
			Why: fmt.Sprintf("strangers have sent %d %s within %s, and no more are taken for now; somebody may be trying pairing codes", of.All, what, of.Within)})
	}
	return nil, problem
}

func (s *Server) outcome(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	id := r.PathValue("id")
	if err := checkRequestID(id); err != nil {
		return nil, &Problem{Code: CodeBadRequest, Message: err.Error()}
	}
	release, ok := s.inFlight.take(caller.ID, "polls", s.limits.Polls)
	if !ok {
		return nil, &Problem{Code: CodeRateLimited, Message: "too many long polls at once"}
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-connOf(ctx).listener.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	out, err := s.config.Handler.Outcome(ctx, caller, id)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		out, err = Outcome{State: OutcomePending}, nil
	}
	return &out, err
}

func (s *Server) withdraw(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	id := r.PathValue("id")
	if err := checkRequestID(id); err != nil {
		return nil, &Problem{Code: CodeBadRequest, Message: err.Error()}
	}
	return nil, s.config.Handler.Withdraw(r.Context(), caller, id, r.URL.Query().Get("mismatch") == "true")
}

func (s *Server) sign(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	var in signed
	if err := read(w, r, &in); err != nil {
		return nil, err
	}
	// What the Handler decides on is the caller's own word, and meant for us.
	doc, err := in.VerifyAs(contract.Consumer)
	if err == nil && (doc.Consumer.ID != caller.ID || doc.Provider.ID != s.config.Identity.ID()) {
		err = fmt.Errorf("contract %s: is not between the caller and this cluster", doc.ID)
	}
	if err != nil {
		return nil, &Problem{Code: CodeBadRequest, Message: wire.Line(err.Error(), 2*maxReason)}
	}
	out, err := s.config.Handler.Sign(r.Context(), caller, in.Signed)
	if err == nil {
		err = out.Verify()
	}
	return &signed{out}, err
}

func (s *Server) contracts(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	list, err := s.config.Handler.Contracts(r.Context(), caller)
	out := append(refs{}, list...) // none is [], not null
	return &out, err
}

func (s *Server) end(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	id := r.PathValue("id")
	if err := contract.CheckID(id); err != nil {
		return nil, &Problem{Code: CodeBadRequest, Message: err.Error()}
	}
	return nil, s.config.Handler.End(r.Context(), caller, id)
}

func (s *Server) link(w http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
	var in Link
	if err := read(w, r, &in); err != nil {
		return nil, err
	}
	out, err := s.config.Handler.Link(r.Context(), caller, in)
	return &out, err
}

// tether is a route that says how the tether with the caller stands.
func (s *Server) tether(answer func(Handler, context.Context, Caller) (Tether, error)) func(http.ResponseWriter, *http.Request, Caller) (message, error) {
	return func(_ http.ResponseWriter, r *http.Request, caller Caller) (message, error) {
		out, err := answer(s.config.Handler, r.Context(), caller)
		return &out, err
	}
}

// presence is a stream whose end tells the caller that this daemon, or the connection to it, is gone. It carries notices and, if the caller is
// recognised, announcements and a Beat every 3 s; other callers rely on TCP keepalive.
func (s *Server) presence(w http.ResponseWriter, r *http.Request) {
	conn := connOf(r.Context())
	caller := *conn.caller
	if r.ContentLength != 0 {
		s.refuse(w, r, caller, &Problem{Code: CodeBadRequest, Message: "body: none is expected here"})
		return
	}
	release, ok := s.inFlight.take(caller.ID, "presences", s.limits.Presences)
	if !ok {
		s.refuse(w, r, caller, &Problem{Code: CodeRateLimited, Message: "too many presence streams at once"})
		return
	}
	defer release()
	rc := http.NewResponseController(w)
	send := func(line presenceLine) bool {
		s.deadline(w)
		err := json.NewEncoder(w).Encode(line)
		if err == nil {
			err = rc.Flush()
		}
		rc.SetWriteDeadline(time.Time{})
		return err == nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var asked <-chan CallBack
	if s.config.Takes { // before the Handler hears of the stream, by which it may want to reach the caller at once
		var leave func()
		asked, leave = s.callBacks.subscribe(caller.ID)
		defer leave()
	}
	notices := s.config.Handler.Notices(ctx, caller)
	w.Header().Set("Content-Type", "application/x-ndjson")
	beat := func() bool {
		b := s.config.Beat()
		b.Relays = s.config.Relays
		b.Ailing = wire.Line(b.Ailing, maxReason)
		return send(presenceLine{Beat: &b})
	}
	known := false
	recognised := func() bool { // once is enough: who is not any more is cut
		known = known || s.config.Handler.Recognise(ctx, caller)
		return known
	}
	ticker := &s.rechecks
	if recognised() {
		ticker = &s.heartbeats
	}
	alive := send(presenceLine{Hello: s.self()})
	if ticker == &s.heartbeats { // at once: who has heard no beat takes this for a Kith that has none, and leaves silence to the kernel
		alive = alive && beat()
	}
	announced, leave := s.streams.enter()
	defer leave()
	for tick := ticker.wait(); alive; {
		select {
		case <-tick:
			if recognised() {
				ticker = &s.heartbeats
				alive = beat()
			}
			tick = ticker.wait()
		case n, ok := <-notices:
			if !ok {
				notices = nil
				continue
			}
			n.Why = wire.Line(n.Why, maxReason)
			if err := n.Validate(); err != nil {
				s.config.Log.Error("notice not sent", "id", caller.ID.String(), "type", string(n.Type), "err", err)
				continue
			}
			alive = send(presenceLine{Notice: &n})
		case a := <-announced:
			if recognised() { // by now: the contracts may have been read since the last look. Strangers get nothing, and delay nothing
				notice := a.notice
				if notice.Type == NoticeSuspending && s.config.LastWord != nil {
					notice.Wake = s.config.LastWord(caller.ID)
				}
				if alive = send(presenceLine{Notice: &notice}); alive {
					acknowledged(a.ctx, conn.Conn)
				}
			}
			close(a.told)
		case c := <-asked:
			alive = send(presenceLine{CallBack: &c})
		case <-conn.listener.quit:
			send(presenceLine{Notice: &Notice{Type: NoticeBye, Why: "kithd ends there"}})
			return
		case <-ctx.Done():
			return
		}
	}
}

// greetOlder tells a contact of the first version, in the only line of its presence that it needs, what is spoken here.
func (s *Server) greetOlder(w http.ResponseWriter, _ *http.Request) {
	s.deadline(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	json.NewEncoder(w).Encode(presenceLine{Hello: s.self()})
}

// nothing answers what no route is for.
func (s *Server) nothing(w http.ResponseWriter, r *http.Request) {
	caller := *connOf(r.Context()).caller
	problem := &Problem{Code: CodeNotFound, Message: wire.Line("no route "+r.URL.Path, maxReason)}
	if version, ok := strings.CutPrefix(r.URL.Path, "/kith/"); ok && !strings.HasPrefix(r.URL.Path, "/"+Protocol+"/") {
		version, _, _ = strings.Cut(version, "/")
		problem = &Problem{Code: CodeVersion, Message: otherVersion(s.self().Name, []string{Protocol}, wire.Line("kith/"+version, 32)), Do: sameVersion}
	}
	s.refuse(w, r, caller, problem)
}
