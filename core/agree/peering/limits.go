package peering

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// Limits bound what callers may use of this machine.
//
// Anybody can generate any number of keys. So what strangers may use is bounded per address and for all strangers together, and callers that the
// Handler recognises have limits of their own.
type Limits struct {
	Strangers      int // connections of callers not recognised; when full, the oldest one goes
	Recognised     int // connections of callers recognised
	ConnsPerIP     int
	PassedOn       int // connections that one peer passes on
	PassedOnEach   int // of these, from one other peer
	ConnsPerCaller int
	Polls          int // long polls at once per caller
	Presences      int // presence streams at once per caller
	Requests       int // requests at once per caller on the routes of Handle

	ConnRate   Rate // new connections per address
	IPRate     Rate // calls per address under /kith/
	CallerRate Rate // calls per caller under /kith/
	HeaderRate Rate // bytes of requests' headers per connection, as they are decoded
	AskRate    Rate // questions per caller, and per address

	// For strangers, callers whose key no owner has verified. Each request is a guess at the pairing code, with a chance of one in a million.
	Questions WindowLimit // questions that come before the owner
	Openings  WindowLimit // openings that no question followed

	HeaderTimeout time.Duration // TLS handshake, and a request's header, each
	BodyTimeout   time.Duration // a request's body, and writing an answer, each
	IdleTimeout   time.Duration // a connection without requests
	PollTime      time.Duration // a long poll
}

// Rate is how often something may happen: PerSecond on average, Burst at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

var defaultLimits = Limits{
	Strangers: 512, Recognised: 512, ConnsPerIP: 64, PassedOn: 48, PassedOnEach: 24, ConnsPerCaller: 64,
	Polls: 8, Presences: 4, Requests: 512,
	ConnRate: Rate{10, 100}, IPRate: Rate{50, 250}, CallerRate: Rate{20, 100}, HeaderRate: Rate{256 << 10, 1 << 20}, AskRate: Rate{0.5, 8},
	Questions: WindowLimit{32, 12, 10 * time.Minute}, Openings: WindowLimit{128, 32, 10 * time.Minute},
	HeaderTimeout: 10 * time.Second, BodyTimeout: 15 * time.Second, IdleTimeout: 2 * time.Minute, PollTime: pollTime,
}

// limiters limits each key to a rate. It remembers the 1024 keys seen last; one that was dropped starts with a full burst, like any new key or
// address.
type limiters[K comparable] struct {
	rate  Rate
	mu    sync.Mutex // from asking for a limiter to making it
	known *lru.Cache // of *rate.Limiter by K
}

const maxLimiters = 1024

func newLimiters[K comparable](r Rate) *limiters[K] {
	return &limiters[K]{rate: r, known: lru.New(maxLimiters)}
}

func (m *limiters[K]) allow(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	limiter, ok := m.known.Get(key)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(m.rate.PerSecond), m.rate.Burst)
		m.known.Add(key, limiter)
	}
	return limiter.(*rate.Limiter).Allow()
}

// inFlight counts what callers have under way; it holds only those who have anything.
type inFlight struct {
	mu sync.Mutex
	n  map[inFlightKey]int
}

type inFlightKey struct {
	caller identity.ID
	of     string
}

// take is true when the caller had less than max of it; then release must be called once.
func (u *inFlight) take(caller identity.ID, of string, max int) (release func(), ok bool) {
	key := inFlightKey{caller, of}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n[key] >= max {
		return nil, false
	}
	u.n[key]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.n[key]--; u.n[key] == 0 {
			delete(u.n, key)
		}
	}, true
}

// WindowLimit is how often something may happen within a time: All counts everybody together, Each one address (of IPv6 its /64).
type WindowLimit struct {
	All, Each int
	Within    time.Duration
}

// windowLimiter is a WindowLimit in use. It counts exactly, over the time that ends now, since what it bounds is how often somebody may
// try his luck at a pairing code: a rate with bursts would allow twice as many.
type windowLimiter struct {
	WindowLimit
	now func() time.Time

	mu   sync.Mutex
	used []*spent // oldest first, at most All
	told time.Time
}

type spent struct {
	at   time.Time
	addr netip.Prefix
}

func newWindowLimiter(b WindowLimit) *windowLimiter {
	return &windowLimiter{WindowLimit: b, now: time.Now}
}

// take spends one for addr; nil when there is none left. first is true once within the time, when all is spent.
func (b *windowLimiter) take(addr netip.Addr) (cost *spent, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.used = slices.DeleteFunc(b.used, func(s *spent) bool { return now.Sub(s.at) >= b.Within })
	if len(b.used) >= b.All {
		first = b.told.IsZero() || now.Sub(b.told) >= b.Within
		if first {
			b.told = now
		}
		return nil, first
	}
	cost = &spent{now, wire.Neighbourhood(addr)}
	mine := 0
	for _, s := range b.used {
		if s.addr == cost.addr {
			mine++
		}
	}
	if mine >= b.Each {
		return nil, false
	}
	b.used = append(b.used, cost)
	return cost, false
}

// giveBack undoes a take.
func (b *windowLimiter) giveBack(cost *spent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = slices.DeleteFunc(b.used, func(s *spent) bool { return s == cost })
}

const (
	maxOpenings = 256
	openingLife = 30 * time.Second
)

// openings are the questions between the responder's commitment and the asker's nonce: one per caller, the oldest gives way.
// Strangers and those whose key is known have stores of their own.
type openings struct {
	mu  sync.Mutex // from looking for one to removing it
	all *lru.Cache // of opening by its caller
}

func newOpenings() *openings { return &openings{all: lru.New(maxOpenings)} }

type opening struct {
	id    string
	nonce identity.Nonce // ours
	made  time.Time
	cost  *spent // of what strangers may do, given back when the question follows; nil for those known
}

func (o *openings) add(caller identity.ID, cost *spent) opening {
	var id [16]byte
	rand.Read(id[:]) // never fails, crypto/rand ends the program instead
	fresh := opening{id: hex.EncodeToString(id[:]), nonce: identity.NewNonce(), made: time.Now(), cost: cost}
	o.all.Add(caller, fresh)
	return fresh
}

// take gives the caller's opening once: whatever the question turns out to be, its nonce is used up.
func (o *openings) take(caller identity.ID, id string) (opening, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, _ := o.all.Get(caller)
	one, ok := found.(opening)
	if !ok || one.id != id {
		return opening{}, &Problem{Code: CodeNotFound, Message: "no opening of yours waits for this question", Do: "ask again"}
	}
	o.all.Remove(caller)
	if time.Since(one.made) > openingLife {
		return opening{}, &Problem{Code: CodeExpired, Message: "the question came too late", Do: "ask again"}
	}
	return one, nil
}

// headerSize is about what a request's header takes in memory, in bytes. By HTTP/2's tables a byte on the wire may stand for kilobytes
// of it (RFC 7541, section 7.3), so the bytes that came bound nothing.
func headerSize(r *http.Request) int {
	size := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		size += len(name)
		for _, v := range values {
			size += len(v) + 32
		}
	}
	return size
}
