package portmap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"kith.dev/core/base/backoff"
	"kith.dev/core/net/hostnet"
)

// Protocol of a port.
type Protocol string

// The protocols.
const (
	UDP Protocol = "udp"
	TCP Protocol = "tcp"
)

// Port is one of this laptop's.
type Port struct {
	Protocol Protocol
	Number   uint16
}

// Mapping is what a router leads to a port.
type Mapping struct {
	Port
	At netip.AddrPort // outside
}

// State is one of a closed set.
type State string

// How the mapping of ports stands.
const (
	Searching State = "searching" // the router is being asked
	Mapped    State = "mapped"
	Nested    State = "nested"    // mapped, and the router's own address is a private one: it is behind another router
	NoRouter  State = "no-router" // there is no default route, or nobody answers there
	Refused   State = "refused"   // the router answers and maps no port, or not for a time
)

// Status is how it stands.
type Status struct {
	State    State
	Router   netip.Addr
	By       string // the protocol that it speaks
	Mappings []Mapping
	Why      string // with NoRouter and Refused, for people
}

// Config is what a Mapper needs.
type Config struct {
	Ports   []Port
	Kernel  *hostnet.Changes
	Changed func() // the status is another one; it must not block
	Log     *slog.Logger
}

// Mapper keeps ports mapped. Safe for concurrent use.
type Mapper struct {
	cfg  Config
	woke chan struct{}

	mu  sync.Mutex
	now Status
}

// New makes a Mapper; nobody is asked before Run.
func New(cfg Config) *Mapper {
	return &Mapper{cfg: cfg, woke: make(chan struct{}, 1), now: Status{State: Searching}}
}

// Woke has the router asked again: while this laptop slept, its clock for that stood still, and leases ended.
func (m *Mapper) Woke() {
	select {
	case m.woke <- struct{}{}:
	default:
	}
}

const (
	lease = 2 * time.Hour // a laptop that does nothing is woken by this once an hour

	leastPause, mostPause = time.Minute, time.Hour // after a router that does not map ports
	settle                = 2 * time.Second        // after a change of this laptop's networks: those that follow cost nothing
	askTimeout            = 10 * time.Second       // of all that is asked of a router at once
	endTimeout            = 2 * time.Second
	mostWhy               = 200 // bytes of why a router maps no port
)

// Status is how it stands now.
func (m *Mapper) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.now
	s.Mappings = slices.Clone(s.Mappings)
	return s
}

// At is where a port is reached from outside; the zero value while it is not mapped.
func (m *Mapper) At(p Protocol) netip.AddrPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.now.Mappings {
		if one.Protocol == p {
			return one.At
		}
	}
	return netip.AddrPort{}
}

func (m *Mapper) set(s Status) {
	m.mu.Lock()
	same := s.State == m.now.State && s.Router == m.now.Router && s.By == m.now.By && s.Why == m.now.Why && slices.Equal(s.Mappings, m.now.Mappings)
	m.now = s
	m.mu.Unlock()
	if same {
		return
	}
	m.cfg.Log.Info("mapping of ports at the router", "state", string(s.State), "router", s.Router, "by", s.By, "mappings", s.Mappings, "why", s.Why)
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
}

// way is that to the router.
type way struct {
	router, own netip.Addr
}

// mapper is a router that answers by one of the protocols. Its calls end with their context, or after some seconds.
type mapper interface {
	by() string
	// external is its own address outside.
	external(ctx context.Context) (netip.Addr, error)
	// add leads a port to one here for a time, outside, or another if that is taken.
	add(ctx context.Context, p Port, outside uint16, lease time.Duration) (got uint16, lasts time.Duration, err error)
	remove(ctx context.Context, p Port, outside uint16) error
}

// held is what a router has mapped, as far as is known: a question that failed takes nothing back.
type held struct {
	at    way
	by    mapper // nil: nothing is
	ports []leased
}

// leased is a mapping until a time, by the clock on the wall: this laptop may sleep.
type leased struct {
	Mapping
	ends time.Time
}

// of is what is held of a port; nil: nothing.
func (h held) of(p Port) *leased {
	if i := slices.IndexFunc(h.ports, func(l leased) bool { return l.Port == p }); i >= 0 {
		return &h.ports[i]
	}
	return nil
}

// errNoAnswer is that of a router which does not speak a protocol.
var errNoAnswer = errors.New("the router does not answer by NAT-PMP or UPnP")

// Run keeps the ports mapped until ctx ends; then it takes them back.
func (m *Mapper) Run(ctx context.Context) error {
	changed, stop, err := m.cfg.Kernel.Listen(hostnet.Addresses | hostnet.Routes)
	if err != nil {
		return fmt.Errorf("port mapping: %w", err)
	}
	defer stop()
	pauses := &backoff.Doubling{First: leastPause, Most: mostPause, Jitter: 0.2}
	var was held
	var at way
	defer func() {
		m.end(context.WithoutCancel(ctx), was)
		m.set(Status{State: Searching})
	}()
	for {
		now, err := defaultWay()
		if at = now; err == nil && at != was.at { // another network: what was mapped before ends by itself
			was = held{at: at}
		}
		var s Status
		var renew time.Duration
		if err != nil {
			s = Status{State: NoRouter, Why: err.Error()}
		} else if was, s, renew = m.ask(ctx, was); ctx.Err() != nil && renew == 0 {
			return nil
		}
		m.set(s)
		if renew == 0 {
			renew = pauses.Next()
		} else {
			pauses.Reset()
		}
		if moved, err := m.wait(ctx, at, changed, renew); err != nil {
			return err
		} else if moved {
			pauses.Reset()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// wait waits for the time, or until another way leads to the router, or this laptop woke.
func (m *Mapper) wait(ctx context.Context, at way, changed <-chan struct{}, pause time.Duration) (moved bool, err error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-timer.C:
			return false, nil
		case <-m.woke:
			return true, nil
		case _, ok := <-changed:
			if !ok {
				return false, errors.New("port mapping: the kernel does not tell of changes any more")
			}
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(settle):
		}
		if now, err := defaultWay(); now != at || err != nil && at.router.IsValid() {
			return true, nil
		}
	}
}

// ask has all ports mapped, or their leases renewed, and gives what is held then. renew: when to do so again; 0: it is not well.
func (m *Mapper) ask(ctx context.Context, was held) (held, Status, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s := Status{State: NoRouter, Router: was.at.router}
	for _, find := range []func(context.Context, way) (mapper, error){
		func(context.Context, way) (mapper, error) { return was.by, nil }, natPMP, upnp,
	} {
		r, err := find(ctx, was.at)
		if err != nil || r == nil {
			continue
		}
		got, renew, err := m.all(ctx, r, was)
		if err == nil {
			s = Status{State: Mapped, Router: was.at.router, By: r.by()}
			for _, l := range got {
				s.Mappings = append(s.Mappings, l.Mapping)
			}
			if outside := s.Mappings[0].At.Addr(); outside.IsPrivate() || shared.Contains(outside) {
				s.State = Nested
			}
			return held{was.at, r, got}, s, renew
		}
		for _, l := range got {
			*was.of(l.Port) = l
		}
		s = Status{State: Refused, Router: was.at.router, By: r.by(), Why: whyOf(err)}
	}
	if s.State == NoRouter {
		s.Why = errNoAnswer.Error()
	}
	return was, s, 0
}

// whyOf is an error for people, in which a router may have put what it likes: one short line of it is kept.
func whyOf(err error) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, err.Error()[:min(len(err.Error()), mostWhy)])
}

// shared are the addresses that carriers have behind their routers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// all has a router map every port. When it does not, it takes back those that were not held before, and gives the others, which it renewed.
func (m *Mapper) all(ctx context.Context, r mapper, was held) (got []leased, renew time.Duration, err error) {
	outside, err := r.external(ctx)
	if err == nil && (!outside.Is4() || !outside.IsGlobalUnicast()) { // of IPv6 the text may have a zone, which may be anything
		err = fmt.Errorf("the router has no IPv4 address outside: it says %s", outside)
	}
	if err != nil {
		return nil, 0, err
	}
	for _, p := range m.cfg.Ports {
		wanted := p.Number
		if l := was.of(p); l != nil {
			wanted = l.At.Port()
		}
		number, lasts, err := r.add(ctx, p, wanted, lease)
		if err == nil && (number == 0 || lasts < time.Minute) {
			err = fmt.Errorf("the router maps %s port %d to %d for %s", p.Protocol, p.Number, number, lasts)
		}
		if err != nil {
			isNew := func(l leased) bool { return was.of(l.Port) == nil || was.of(l.Port).At.Port() != l.At.Port() }
			m.release(context.WithoutCancel(ctx), r, slices.DeleteFunc(slices.Clone(got), func(l leased) bool { return !isNew(l) }))
			return slices.DeleteFunc(got, isNew), 0, err
		}
		got = append(got, leased{Mapping{p, netip.AddrPortFrom(outside, number)}, time.Now().Round(0).Add(lasts)})
		if half := min(lasts, lease) / 2; renew == 0 || half < renew {
			renew = half
		}
	}
	return got, renew, nil
}

// end takes back what is held. What ended by itself may be somebody else's by now.
func (m *Mapper) end(ctx context.Context, was held) {
	now := time.Now().Round(0)
	m.release(ctx, was.by, slices.DeleteFunc(was.ports, func(l leased) bool { return !now.Before(l.ends) }))
}

// release takes back what is mapped.
func (m *Mapper) release(ctx context.Context, r mapper, mapped []leased) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for _, one := range mapped {
		if err := r.remove(ctx, one.Port, one.At.Port()); err != nil {
			m.cfg.Log.Warn("a port stays mapped at the router until its lease ends", "protocol", string(one.Protocol), "at", one.At, "err", err)
		}
	}
}
