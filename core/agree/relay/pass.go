package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
)

// chunk is how much of a connection is in memory on its way, in each direction.
const chunk = 16 << 10

// may says whom a caller may be connected with, or why not.
func (r *Relay) may(caller identity.ID, id string) (to identity.ID, problem *peering.Problem) {
	switch to, err := identity.ParseID(id); {
	case !r.cfg.Offers:
		return to, peering.Refuse(peering.CodeForbidden, "this cluster does not relay", "")
	case err != nil:
		return to, peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	case !r.cfg.Accepted(caller):
		return to, peering.Refuse(peering.CodeForbidden, "connections are passed on between accepted peers alone", "")
	case to == caller, to == r.cfg.Me, !r.cfg.Accepted(to), !r.cfg.Server.Here(to): // in the same words: who is a peer here is nobody's business
		return to, peering.Refuse(peering.CodeNotFound, "no such peer can be called from here now", "")
	default:
		return to, nil
	}
}

// allow counts a call of an accepted peer; Review forgets the others.
func (r *Relay) allow(from identity.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.asks[from]
	if limit == nil {
		limit = rate.NewLimiter(r.cfg.Limits.Asks, r.cfg.Limits.AsksBurst)
		r.asks[from] = limit
	}
	return limit.Allow()
}

func tooMany() *peering.Problem {
	return peering.Refuse(peering.CodeRateLimited, "too many connections are asked for", "wait a little")
}

// begin notes that a connection is about to be passed on. end must be called.
func (r *Relay) begin(from, to identity.ID, stop context.CancelCauseFunc) (end func(), problem *peering.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	each, there := 0, 0
	for p := range r.passing {
		if p.from == from {
			each++
		}
		if p.to == to {
			there++
		}
	}
	if there >= r.cfg.Limits.Each || each >= r.cfg.Limits.Each || len(r.passing) >= r.cfg.Limits.All {
		return nil, tooMany()
	}
	p := &passing{from, to, stop}
	r.passing[p] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.passing, p)
	}, nil
}

// connect passes on a connection between the caller and another peer, until one of them ends it.
func (r *Relay) connect(w http.ResponseWriter, req *http.Request, caller peering.Caller) {
	if err := peering.Upgrades(req, relayProtocol); err != nil { // before anybody is called
		r.cfg.Server.Fail(w, req, caller, err)
		return
	}
	to, problem := r.may(caller.ID, req.PathValue("id"))
	if problem == nil && !r.allow(caller.ID) {
		problem = tooMany()
	}
	if problem != nil {
		r.cfg.Server.Fail(w, req, caller, problem)
		return
	}
	ctx, stop := context.WithCancelCause(req.Context())
	defer stop(nil)
	end, problem := r.begin(caller.ID, to, stop)
	if problem != nil {
		r.cfg.Server.Fail(w, req, caller, problem)
		return
	}
	defer end()
	if _, problem := r.may(caller.ID, req.PathValue("id")); problem != nil { // since a moment ago: from here on Review ends it
		r.cfg.Server.Fail(w, req, caller, problem)
		return
	}
	far, err := r.reach(ctx, to, caller.ID)
	if err != nil {
		r.cfg.Server.Fail(w, req, caller, err)
		return
	}
	defer far.Close()
	near, err := peering.Upgraded(w, req, relayProtocol)
	if err != nil {
		return
	}
	defer near.Close()
	r.cfg.Log.Debug("a connection is passed on", "from", r.cfg.Peer(caller.ID), "to", r.cfg.Peer(to))
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	there := make(chan struct{})
	go func() {
		r.pass(ctx, far, near)
		stop(nil)
		close(there)
	}()
	r.pass(ctx, near, far)
	stop(nil)
	<-there
	if why := context.Cause(ctx); errors.Is(why, errTakenBack) {
		r.cfg.Log.Info("a connection is not passed on any more", "from", caller.ID.String(), "to", to.String(), "why", why)
	}
}

// pass copies one direction, no faster than all together may be.
func (r *Relay) pass(ctx context.Context, to io.Writer, from net.Conn) {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 && (r.bytes.WaitN(ctx, n) != nil || ctx.Err() != nil) {
			return
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

var errTakenBack = errors.New("a peer of it is accepted no more")

// Review ends what is passed on for those that are accepted no more, and what those passed on to here. Call it when peers or contracts changed.
func (r *Relay) Review() {
	r.cfg.Server.CutPassedOn(r.cfg.Accepted)
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.passing {
		if !r.cfg.Accepted(p.from) || !r.cfg.Accepted(p.to) {
			p.end(errTakenBack)
		}
	}
	for id := range r.asks {
		if !r.cfg.Accepted(id) {
			delete(r.asks, id)
		}
	}
}
