// Package carry has the packets of a tunnel go over a connection of the peer API where UDP does not lead to the peer: through a firewall, or by way of a
// common peer (core/agree/relay). On such a connection the two also tell each other where others saw their WireGuard, so that packets go by UDP as
// soon as that leads through (core/net/gateway, Carry).
//
//	POST /kith/v2/packets  an upgrade: the connection carries what the two WireGuards send
//	GET  /kith/v2/seen     → Seen: where the caller's WireGuard is seen from here
//
// Called by the daemon (wiring). It must carry nothing of a peer that the gateway does not know, that is without a contract, and read no packet.
package carry

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/base/backoff"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

const (
	packetsPath = "/kith/v2/packets"
	seenPath    = "/kith/v2/seen"
	protocol    = "kith-packets"

	// How long a tunnel may be down to a peer that answers until its packets are carried. One of the two comes first; the other one waits for it.
	patience      = 3 * time.Second
	patienceOther = 10 * time.Second
	mostPause     = 5 * time.Minute // between two attempts that fail

	steady    = time.Minute     // a connection that lasted so long is made anew at once
	mostOften = 3 * time.Second // how often at most a peer may make one

	seenTimeout = 2 * time.Second
	seenFor     = time.Minute // what they say holds
	mostAsked   = 3           // peers that are asked where they see this cluster
)

// Seen is where a caller's WireGuard is seen; zero when it is not, or not by UDP.
type Seen struct {
	Tunnel netip.AddrPort `json:"tunnel,omitzero"`
}

// Gateway is what carries.
type Gateway interface {
	Stats(id string) (gateway.Stats, bool)
	StatsAll() map[string]gateway.Stats
	Carry(ctx context.Context, id string, over net.Conn, as gateway.Carriage) error
}

// Contacts are with the peers.
type Contacts interface {
	Contact(identity.ID) (peering.Contact, bool)
	Snapshot() []peering.Contact
	Client(identity.ID) (*peering.Client, bool)
	Changed() <-chan struct{}
}

// Server is the peer API here.
type Server interface {
	Handle(pattern string, handler func(http.ResponseWriter, *http.Request, peering.Caller))
}

// Config is what a Carrier needs.
type Config struct {
	Me       identity.ID
	Gateway  Gateway
	Contacts Contacts
	Server   Server
	// Mapped is the endpoint that this laptop's router maps to its WireGuard; the zero value while there is none. May be nil.
	Mapped func() netip.AddrPort
	Log    *slog.Logger
}

// Carrier makes connections for packets, and takes those that peers make.
type Carrier struct {
	cfg  Config
	poke chan struct{}

	opening sync.Map             // of the IDs of peers to which a connection is made, or is there
	waits   map[identity.ID]wait // of peers whose tunnel is down; Run's own

	mu     sync.Mutex
	took   map[identity.ID]time.Time // when a peer made one last
	asking sync.Mutex                // held while others are asked where they see this cluster
	seenAt time.Time
	seen   []netip.AddrPort
}

// wait is until the packets of a peer are carried.
type wait struct {
	until  time.Time
	pauses *backoff.Doubling
	opened time.Time // since when a connection is made, or there; zero: there is none
}

// New makes a Carrier, and adds its routes to the server.
func New(cfg Config) *Carrier {
	c := &Carrier{cfg: cfg, poke: make(chan struct{}, 1), waits: map[identity.ID]wait{}, took: map[identity.ID]time.Time{}}
	cfg.Server.Handle("POST "+packetsPath, c.take)
	cfg.Server.Handle("GET "+seenPath, func(w http.ResponseWriter, _ *http.Request, caller peering.Caller) {
		var seen Seen
		if s, ok := cfg.Gateway.Stats(caller.ID.String()); ok && s.Up && !s.Carried {
			seen.Tunnel = s.Endpoint
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(seen)
	})
	return c
}

// Look has it looked at the tunnels again: one came up or went down, or is new.
func (c *Carrier) Look() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// Run has packets carried where they must be, until ctx ends. It sleeps while all tunnels to peers that answer are up.
func (c *Carrier) Run(ctx context.Context) error {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		changed := c.cfg.Contacts.Changed()
		var again <-chan time.Time
		if pause, waits := c.look(ctx, time.Now(), &open); waits {
			again = time.After(pause)
		}
		select {
		case <-changed:
		case <-c.poke:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// look begins what is due. waits: look again after the pause.
func (c *Carrier) look(ctx context.Context, now time.Time, open *sync.WaitGroup) (pause time.Duration, waits bool) {
	down := map[identity.ID]bool{}
	for text, s := range c.cfg.Gateway.StatsAll() {
		id, err := identity.ParseID(text)
		if err != nil || s.Up || s.Carrier || s.Off != "" {
			continue
		}
		if contact, ok := c.cfg.Contacts.Contact(id); !ok || !contact.Reachable() {
			continue
		}
		if _, busy := c.opening.Load(id); busy {
			continue
		}
		down[id] = true
		w, known := c.waits[id]
		if known && !w.opened.IsZero() {
			if now.Sub(w.opened) > steady {
				w.until = now
				w.pauses.Reset()
			}
			w.opened = time.Time{}
		}
		if !known {
			first := patience
			if slices.Compare(c.cfg.Me[:], id[:]) > 0 {
				first = patienceOther
			}
			w = wait{until: now.Add(first), pauses: &backoff.Doubling{First: first, Most: mostPause, Jitter: 0.5}}
		} else if !now.Before(w.until) {
			w.until, w.opened = now.Add(w.pauses.Next()), now
			c.opening.Store(id, true)
			open.Go(func() {
				defer c.Look()
				defer c.opening.Delete(id)
				c.open(ctx, id)
			})
		}
		c.waits[id] = w
		if left := w.until.Sub(now); !waits || left < pause {
			pause, waits = left, true
		}
	}
	for id := range c.waits {
		if _, busy := c.opening.Load(id); !down[id] && !busy {
			delete(c.waits, id)
		}
	}
	return pause, waits
}

// open has the packets of a peer go over a new connection with it, as long as that lasts.
func (c *Carrier) open(ctx context.Context, id identity.ID) {
	client, ok := c.cfg.Contacts.Client(id)
	if !ok {
		return
	}
	over, err := client.Upgrade(ctx, packetsPath, protocol)
	if err == nil {
		err = c.carry(ctx, id, over, slices.Compare(c.cfg.Me[:], id[:]) < 0)
	}
	c.cfg.Log.Debug("packets are not carried any more", "id", id.String(), "err", err)
}

// take has the packets of a caller go over the connection that it made.
func (c *Carrier) take(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
	if _, ok := c.cfg.Gateway.Stats(caller.ID.String()); !ok {
		peering.WriteProblem(w, peering.Refuse(peering.CodeNoContract, "there is no tunnel between these clusters", "ask first"))
		return
	}
	if !c.mayTake(caller.ID, time.Now()) {
		peering.WriteProblem(w, peering.Refuse(peering.CodeRateLimited, "a connection for packets was made a moment ago", "wait a little"))
		return
	}
	over, err := peering.Upgraded(w, r, protocol)
	if err != nil {
		return
	}
	err = c.carry(r.Context(), caller.ID, over, slices.Compare(caller.ID[:], c.cfg.Me[:]) < 0)
	c.cfg.Log.Debug("packets are not carried any more", "id", caller.ID.String(), "err", err)
}

// mayTake counts a connection of a peer with a tunnel.
func (c *Carrier) mayTake(id identity.ID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, at := range c.took {
		if now.Sub(at) >= mostOften {
			delete(c.took, other)
		}
	}
	if _, just := c.took[id]; just {
		return false
	}
	c.took[id] = now
	return true
}

func (c *Carrier) carry(ctx context.Context, id identity.ID, over net.Conn, first bool) error {
	seen := c.whereSeen(ctx)
	contact, _ := c.cfg.Contacts.Contact(id)
	c.cfg.Log.Info("the tunnel's packets go over a connection, since UDP does not lead to the peer", "id", id.String(), "by", contact.By, "tried", seen)
	return c.cfg.Gateway.Carry(ctx, id.String(), over, gateway.Carriage{By: contact.By, Seen: seen, Keep: contact.By != "", First: first, Mapped: c.cfg.Mapped})
}

// whereSeen asks peers whose tunnels go by UDP where they see this cluster's, at most once a minute.
func (c *Carrier) whereSeen(ctx context.Context) []netip.AddrPort {
	c.asking.Lock()
	defer c.asking.Unlock()
	holds := seenFor
	if len(c.seen) == 0 { // a tunnel to somebody who sees it may just come up
		holds = mostOften
	}
	if c.seenAt.IsZero() || time.Since(c.seenAt) >= holds {
		c.seen, c.seenAt = c.askWhereSeen(ctx), time.Now()
	}
	return slices.Clone(c.seen)
}

func (c *Carrier) askWhereSeen(ctx context.Context) (list []netip.AddrPort) {
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	answers := make(chan Seen, mostAsked)
	asked, tunnels := 0, c.cfg.Gateway.StatsAll()
	for _, contact := range c.cfg.Contacts.Snapshot() {
		s, ok := tunnels[contact.ID.String()]
		client, is := c.cfg.Contacts.Client(contact.ID)
		if !ok || !is || !s.Up || s.Carried || !contact.Reachable() || asked == mostAsked {
			continue
		}
		asked++
		go func() {
			var seen Seen
			_ = client.Call(ctx, http.MethodGet, seenPath, nil, &seen) // one that does not say is one less
			answers <- seen
		}()
	}
	for range asked {
		seen := <-answers
		if e := seen.Tunnel; netplan.CheckEndpoint(e) == nil && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}
