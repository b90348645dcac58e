package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/peering"
	"kith.dev/core/base/backoff"
	"kith.dev/core/trust/identity"
)

const (
	relayPath    = "/kith/v2/relay/"
	callBackPath = "/kith/v2/callback/"

	relayProtocol    = "kith-relay"
	callBackProtocol = "kith-callback"

	callTimeout = 6 * time.Second // until who was called has called back
	mostAwaited = 8               // of those at once, for one peer, and by one
	mostAnswers = 4               // calls of one peer that are answered at once
	mostWays    = 3               // relays that are tried for one connection
)

// Limits bound what peers may use of a relay.
type Limits struct {
	All, Each int        // connections at once: of all peers, and asked for by one
	Asks      rate.Limit // a second, by one
	AsksBurst int
	Bytes     rate.Limit // a second, of all connections in both directions
}

// Default are the limits of a laptop on an ordinary line.
var Default = Limits{All: 128, Each: 24, Asks: 2, AsksBurst: 16, Bytes: 4 << 20}

// Contacts are what is known of those that relay.
type Contacts interface {
	Snapshot() []peering.Contact
	Client(identity.ID) (*peering.Client, bool)
}

// Server is the peer API here.
type Server interface {
	CallBack(identity.ID, peering.CallBack) (asked bool)
	Here(identity.ID) bool
	Take(conn net.Conn, by, who identity.ID) error
	CutPassedOn(may func(by identity.ID) bool)
	Fail(w http.ResponseWriter, r *http.Request, caller peering.Caller, err error)
	Handle(pattern string, handler func(http.ResponseWriter, *http.Request, peering.Caller))
}

// Config is what a Relay needs.
type Config struct {
	Me       identity.ID
	Offers   bool // this cluster relays
	Limits   Limits
	Contacts Contacts
	Server   Server
	// Peer is the name of a peer here; "" for whoever is none. Accepted reports whether the owner accepted its key, or has a contract with it.
	Peer     func(identity.ID) string
	Accepted func(identity.ID) bool
	// Lists reports whether this cluster's owner has an offer listed in the catalogue of a peer: then those who read it may come by way of that peer.
	Lists func(at identity.ID) bool
	Log   *slog.Logger
}

// Relay asks peers for connections, makes those that it is asked for, and passes on what goes between two of its peers. Safe for concurrent use.
type Relay struct {
	cfg   Config
	bytes *rate.Limiter

	mu      sync.Mutex
	awaited map[string]*await   // by token
	answers map[identity.ID]int // calls that are being answered, by who made them
	asks    map[identity.ID]*rate.Limiter
	absent  map[[2]identity.ID]absence // who could not be called there, by relay and peer
	passing map[*passing]struct{}
}

// await is a connection that was asked for.
type await struct {
	from identity.ID // who is to call back
	by   identity.ID // for whom
	conn chan net.Conn
	gone chan struct{} // closed when nobody waits any more
}

// passing are the two connections of one that is passed on.
type passing struct {
	from, to identity.ID
	end      context.CancelCauseFunc
}

// absence is until when a relay is not asked again for a peer that could not be called from there.
type absence struct {
	until  time.Time
	pauses *backoff.Doubling
}

const (
	leastAbsence = 30 * time.Second
	mostAbsence  = 10 * time.Minute
	mostAbsences = 1024
)

// away reports whether a peer could not be called by way of a relay a short time ago.
func (r *Relay) away(relay, to identity.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.absent[[2]identity.ID{relay, to}].until)
}

// asked notes whether a relay led to a peer: who is not there is asked for more and more seldom, and so is a relay by which nothing passes.
func (r *Relay) asked(relay, to identity.ID, err error) {
	key := [2]identity.ID{relay, to}
	problem, said := errors.AsType[*peering.Problem](err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.absent, key)
		return
	case said && problem.Code == peering.CodeRateLimited, errors.Is(err, context.Canceled): // nobody waits for it any more
		return
	}
	a, known := r.absent[key]
	if !known {
		if len(r.absent) >= mostAbsences {
			clear(r.absent)
		}
		a.pauses = &backoff.Doubling{First: leastAbsence, Most: mostAbsence, Jitter: 0.5}
	}
	a.until = time.Now().Add(a.pauses.Next())
	r.absent[key] = a
}

// came forgets that a peer could not be called: it came itself.
func (r *Relay) came(who identity.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.absent {
		if key[1] == who {
			delete(r.absent, key)
		}
	}
}

// New makes a Relay, and adds its routes to the server.
func New(cfg Config) *Relay {
	cfg.Limits = cmp.Or(cfg.Limits, Default)
	r := &Relay{
		cfg: cfg, bytes: rate.NewLimiter(cfg.Limits.Bytes, chunk), answers: map[identity.ID]int{},
		awaited: map[string]*await{}, absent: map[[2]identity.ID]absence{}, asks: map[identity.ID]*rate.Limiter{}, passing: map[*passing]struct{}{},
	}
	cfg.Server.Handle("POST "+callBackPath+"{token}", r.calledBack)
	cfg.Server.Handle("GET "+relayPath+"{id}", func(w http.ResponseWriter, req *http.Request, caller peering.Caller) {
		_, problem := r.may(caller.ID, req.PathValue("id"))
		if problem == nil && !r.allow(caller.ID) {
			problem = tooMany()
		}
		if problem != nil {
			cfg.Server.Fail(w, req, caller, problem)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	cfg.Server.Handle("POST "+relayPath+"{id}", r.connect)
	return r
}

// Ways are how else than by its addresses a peer may be reached now: by a call, or by way of those that relay, the nearest of them first.
func (r *Relay) Ways(to identity.ID) (ways []peering.Way) {
	name := r.cfg.Peer(to)
	if name == "" {
		return nil
	}
	if r.cfg.Server.Here(to) {
		ways = append(ways, peering.Way{By: name, Dial: func(ctx context.Context) (net.Conn, error) { return r.reach(ctx, to, r.cfg.Me) }})
	}
	relays := slices.DeleteFunc(r.cfg.Contacts.Snapshot(), func(c peering.Contact) bool {
		return c.ID == to || !c.Relays || !c.Reachable() || c.By != "" || !r.cfg.Accepted(c.ID) || r.away(c.ID, to)
	})
	slices.SortStableFunc(relays, func(a, b peering.Contact) int { return cmp.Compare(a.RTT, b.RTT) })
	for _, c := range relays[:min(len(relays), mostWays)] {
		ways = append(ways, r.By(c.ID, to))
	}
	return ways
}

// By is the way to somebody by a peer that relays.
func (r *Relay) By(relay, to identity.ID) peering.Way {
	return peering.Way{
		By: r.cfg.Peer(relay), Dial: func(ctx context.Context) (net.Conn, error) { return r.through(ctx, relay, to) },
		Went: func(err error) { r.asked(relay, to, err) },
	}
}

// through asks a peer that relays for a connection with another one.
func (r *Relay) through(ctx context.Context, relay, to identity.ID) (conn net.Conn, err error) {
	client, ok := r.cfg.Contacts.Client(relay)
	if !ok {
		return nil, fmt.Errorf("%s is no peer any more", relay.Short())
	}
	ctx = peering.OverAddresses(ctx)
	err = client.Call(ctx, http.MethodGet, relayPath+to.Compact(), nil, nil) // over the connection there is
	if err == nil {
		conn, err = client.Upgrade(ctx, relayPath+to.Compact(), relayProtocol)
	}
	if err != nil { // else Way.Went tells
		r.asked(relay, to, err)
	}
	return conn, err
}

// reach has a peer call back, by whose connection whoever it is for comes to it.
func (r *Relay) reach(ctx context.Context, to, by identity.ID) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, a := peering.NewToken(), &await{from: to, by: by, conn: make(chan net.Conn), gone: make(chan struct{})}
	r.mu.Lock()
	ofTo, ofBy := 0, 0
	for _, other := range r.awaited {
		if other.from == to {
			ofTo++
		}
		if other.by == by && by != r.cfg.Me {
			ofBy++
		}
	}
	full := ofTo >= mostAwaited || ofBy >= mostAwaited
	if !full {
		r.awaited[token] = a
	}
	r.mu.Unlock()
	if full {
		return nil, peering.Refuse(peering.CodeRateLimited, "too many peers are being called", "try again in a moment")
	}
	defer func() {
		r.mu.Lock()
		delete(r.awaited, token)
		r.mu.Unlock()
		close(a.gone)
	}()
	if !r.cfg.Server.CallBack(to, peering.CallBack{Token: token, For: by}) {
		return nil, peering.Refuse(peering.CodeUnavailable, "the peer has no connection here by which it could be called", "")
	}
	select {
	case conn := <-a.conn:
		return conn, nil
	case <-ctx.Done():
		return nil, peering.Refuse(peering.CodeUnavailable, "the peer was called and did not call back", "")
	}
}

// calledBack takes the connection that a peer was asked for.
func (r *Relay) calledBack(w http.ResponseWriter, req *http.Request, caller peering.Caller) {
	token := req.PathValue("token")
	r.mu.Lock()
	a := r.awaited[token]
	if a != nil && a.from == caller.ID {
		delete(r.awaited, token)
	}
	r.mu.Unlock()
	if a == nil || a.from != caller.ID {
		peering.WriteProblem(w, peering.Refuse(peering.CodeNotFound, "no connection of yours is waited for by that token", ""))
		return
	}
	conn, err := peering.Upgraded(w, req, callBackProtocol)
	if err != nil {
		return
	}
	select {
	case a.conn <- conn:
	case <-a.gone:
		conn.Close()
	}
}

// comes reports whether somebody may come here by way of a peer that relays: who is a peer here, too, or may have found this cluster in the relay's
// catalogue.
func (r *Relay) comes(who, by identity.ID) bool {
	return r.cfg.Peer(who) != "" || r.cfg.Lists(by)
}

// CallBack answers an accepted peer that asks for a connection, for itself or for another peer. It returns at once.
func (r *Relay) CallBack(from identity.ID, c peering.CallBack) {
	if c.For == r.cfg.Me || !r.cfg.Accepted(from) || c.For != from && !r.comes(c.For, from) {
		r.cfg.Log.Debug("not called back", "peer", r.cfg.Peer(from), "for", c.For.String())
		return
	}
	client, ok := r.cfg.Contacts.Client(from)
	if !ok {
		return
	}
	r.came(c.For)
	r.mu.Lock()
	full := r.answers[from] >= mostAnswers
	if !full {
		r.answers[from]++
	}
	r.mu.Unlock()
	if full {
		r.cfg.Log.Debug("not called back: too many calls at once", "peer", r.cfg.Peer(from))
		return
	}
	go func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.answers[from]--; r.answers[from] == 0 {
				delete(r.answers, from)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		conn, err := client.Upgrade(peering.OverAddresses(ctx), callBackPath+c.Token, callBackProtocol)
		if err == nil {
			err = r.cfg.Server.Take(conn, from, c.For)
		}
		if err != nil {
			r.cfg.Log.Debug("not called back", "peer", r.cfg.Peer(from), "for", c.For.String(), "err", err)
		}
	}()
}
