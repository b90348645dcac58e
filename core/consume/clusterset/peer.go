package clusterset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/base/backoff"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	firstPause   = time.Second
	longestPause = time.Minute
	// olderPause is until a peer is asked again that does not know the question, as an older Kith does not.
	olderPause = 10 * time.Minute
	// tellRate is how many lines of a peer are taken a second, each of which is a few writes here, and tellBurst how many at once after a rest.
	tellRate, tellBurst = 20, 2 * MaxServices
)

// PeerConfig is what a Peer needs; all must be set.
type PeerConfig struct {
	Name, ID string // of the Peer, and of its cluster
	// Open opens the connection for Protocol. The peer's own no is a *peering.Problem.
	Open func(context.Context) (io.ReadWriteCloser, error)
	// Guests is the range of this cluster's pods there, in which are the addresses of what the peer exports.
	Guests func() netip.Prefix
	Log    *slog.Logger
}

// Peer imports what one provider exports.
type Peer struct {
	PeerConfig
	set     *Set
	cluster string      // compact ID
	works   atomic.Bool // the peer is there
	away    atomic.Bool // it was said not to be
	synced  atomic.Bool // all that it exports was heard, since this process started
	wake    chan struct{}
	pace    *rate.Limiter // of what it says

	mu       sync.Mutex
	patterns []string
	conn     io.Closer // nil: none
}

// Peer makes that for a provider. It works while Run does.
func (s *Set) Peer(cfg PeerConfig) *Peer {
	return &Peer{PeerConfig: cfg, set: s, cluster: compact(cfg.ID), wake: make(chan struct{}, 1), pace: rate.NewLimiter(tellRate, tellBurst)}
}

// compact is the short form of a cluster's ID, "" of what is none.
func compact(id string) string {
	parsed, err := identity.ParseID(id)
	if err != nil {
		return ""
	}
	return parsed.Compact()
}

// SetWorks says whether the peer is there and works. While it does not, what it exports is not ready.
func (p *Peer) SetWorks(works bool) {
	away := p.away.Swap(!works)
	if p.works.Swap(works) != works || away == works {
		p.Renew()
		p.set.again(p.cluster)
	}
}

// Renew begins anew: with other namespaces, or another range of addresses.
func (p *Peer) Renew() {
	p.mu.Lock()
	if p.conn != nil {
		p.conn.Close()
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// review asks for what is in common now.
func (p *Peer) review() {
	peer := p.set.cfg.Ledger.Now().PeerNamed(p.Name)
	if peer == nil {
		return
	}
	now := p.set.patterns(peer)
	p.mu.Lock()
	same := slices.Equal(now, p.patterns)
	p.patterns = slices.Clone(now)
	p.mu.Unlock()
	if !same {
		p.Renew()
	}
}

// asks gives the patterns to ask for; none while nothing is in common.
func (p *Peer) asks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.patterns
}

// Run works until ctx ends. What was imported stays as long as there is a contract (Set.held).
func (p *Peer) Run(ctx context.Context) {
	s := p.set
	s.mu.Lock()
	s.peers[p.cluster] = p
	s.mu.Unlock()
	p.review()
	defer func() {
		s.mu.Lock()
		last := s.peers[p.cluster] == p // and there is no other for a new contract
		if last {
			delete(s.peers, p.cluster)
		}
		s.mu.Unlock()
		if last {
			p.forget()
		}
	}()
	pause := backoff.Doubling{First: firstPause, Most: longestPause}
	for ctx.Err() == nil {
		select {
		case <-p.wake: // what it is about is seen below
		default:
		}
		patterns := p.asks()
		if len(patterns) == 0 { // nothing is in common
			p.synced.Store(true)
			p.forget()
		}
		if len(patterns) == 0 || !p.works.Load() {
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		began := time.Now()
		err := p.speak(ctx, patterns)
		if time.Since(began) > longestPause {
			pause.Reset()
		}
		again := pause.Next()
		var no *peering.Problem
		if errors.As(err, &no) && no.Code == peering.CodeNotFound {
			again = olderPause
		}
		if err != nil && ctx.Err() == nil {
			p.Log.Debug("services of a peer: the connection ended", "peer", p.Name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
			pause.Reset()
		case <-time.After(again):
		}
	}
}

// forget has the peer export nothing that is known. With a contract what was imported stays, unless nothing is in common.
func (p *Peer) forget() {
	names := p.set.of(p.cluster)
	for _, name := range names {
		p.set.put(p.cluster, name, nil)
	}
	p.set.again(p.cluster)
}

// speak has one connection.
func (p *Peer) speak(ctx context.Context, patterns []string) error {
	conn, err := p.Open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	p.mu.Lock()
	p.conn = conn
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.conn = nil
		p.mu.Unlock()
	}()
	if len(p.wake) > 0 { // while there was no connection yet that could be ended
		return nil
	}
	first, err := Line(Ask{patterns})
	if err != nil {
		return err
	}
	if _, err := conn.Write(first); err != nil {
		return err
	}
	return p.hear(ctx, lines(conn, maxLine), patterns)
}

// hear takes in what the peer exports until the connection ends.
func (p *Peer) hear(ctx context.Context, in *wire.Lines, patterns []string) error {
	heard := map[Name]bool{}
	for {
		var tell Tell
		if err := in.Next(&tell); err != nil {
			return err
		}
		if err := p.pace.Wait(ctx); err != nil {
			return err
		}
		if err := tell.Check(p.Guests()); err != nil {
			return err
		}
		switch e := tell.Export; {
		case e != nil:
			if !sharing.Common(e.Namespace, patterns, patterns) {
				return fmt.Errorf("it exports %s/%s, which was not asked for", e.Namespace, e.Name.Name)
			}
			if heard[e.Name] = true; len(heard) > MaxServices {
				return fmt.Errorf("it exports more than %d services", MaxServices)
			}
			p.set.put(p.cluster, e.Name, e)
		case tell.Gone != nil:
			delete(heard, *tell.Gone)
			p.set.put(p.cluster, *tell.Gone, nil)
		case tell.Synced:
			for _, name := range p.set.of(p.cluster) {
				if !heard[name] { // it was exported before
					p.set.put(p.cluster, name, nil)
				}
			}
			if !p.synced.Swap(true) {
				p.set.again(p.cluster)
			}
		}
	}
}
