package peering

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/identity"
)

// Limits bound what callers may use of this machine. A zero field is set to the default named beside it.
//
// Keys are free for the taking, so what a stranger may use is bounded by its address and by all strangers
// together, and whoever the Desk recognises has room of its own.
type Limits struct {
	Strangers      int // connections of callers not recognised, 512; when full, the oldest one goes
	Recognised     int // connections of callers recognised, 512
	ConnsPerIP     int // 64
	ConnsPerCaller int // 64
	Polls          int // long polls at once per caller, 8
	Presences      int // presence streams at once per caller, 4
	Requests       int // requests at once per caller on the routes of Handle, 512

	ConnRate   Rate // new connections per address: 10 a second, 100 at once
	IPRate     Rate // calls per address under /kith/: 50 a second, 250 at once
	CallerRate Rate // calls per caller under /kith/: 20 a second, 100 at once
	AskRate    Rate // questions per caller, and per address: one in 2 s, 8 at once

	// What strangers, callers whose key no owner compared, may do. A question is a try at the pairing code, one in a million.
	Questions Budget // questions that come before the owner: 32 in 10 min, 12 of one address
	Openings  Budget // openings that no question followed: 128 in 10 min, 32 of one address

	HeaderTimeout time.Duration // TLS handshake, and a request's header: 10 s each
	BodyTimeout   time.Duration // a request's body, and writing an answer: 15 s each
	IdleTimeout   time.Duration // a connection without requests: 2 min
	PollTime      time.Duration // a long poll: 50 s
}

// Rate is how often something may happen: PerSecond on average, Burst at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Strangers, 512)
	orDefault(&l.Recognised, 512)
	orDefault(&l.ConnsPerIP, 64)
	orDefault(&l.ConnsPerCaller, 64)
	orDefault(&l.Polls, 8)
	orDefault(&l.Presences, 4)
	orDefault(&l.Requests, 512)
	orDefault(&l.ConnRate, Rate{10, 100})
	orDefault(&l.IPRate, Rate{50, 250})
	orDefault(&l.CallerRate, Rate{20, 100})
	orDefault(&l.AskRate, Rate{0.5, 8})
	orDefault(&l.Questions, Budget{32, 12, 10 * time.Minute})
	orDefault(&l.Openings, Budget{128, 32, 10 * time.Minute})
	orDefault(&l.HeaderTimeout, 10*time.Second)
	orDefault(&l.BodyTimeout, 15*time.Second)
	orDefault(&l.IdleTimeout, 2*time.Minute)
	orDefault(&l.PollTime, pollTime)
	return l
}

// meter allows each key its rate. It knows the 1024 keys seen last; who drops out begins afresh, which is no more
// than a new key or address gets.
type meter[K comparable] struct {
	rate  Rate
	mu    sync.Mutex
	known map[K]*list.Element // of *metered[K], most recent first
	order *list.List
}

type metered[K comparable] struct {
	key     K
	limiter *rate.Limiter
}

const maxMetered = 1024

func newMeter[K comparable](r Rate) *meter[K] {
	return &meter[K]{rate: r, known: map[K]*list.Element{}, order: list.New()}
}

func (m *meter[K]) allow(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.known[key]
	if ok {
		m.order.MoveToFront(e)
	} else {
		if m.order.Len() >= maxMetered {
			delete(m.known, m.order.Remove(m.order.Back()).(*metered[K]).key)
		}
		e = m.order.PushFront(&metered[K]{key, rate.NewLimiter(rate.Limit(m.rate.PerSecond), m.rate.Burst)})
		m.known[key] = e
	}
	return e.Value.(*metered[K]).limiter.Allow()
}

// use counts what callers have under way; it holds only those who have anything.
type use struct {
	mu sync.Mutex
	n  map[useKey]int
}

type useKey struct {
	caller identity.ID
	of     string
}

// take is true when the caller had less than max of it; then release must be called once.
func (u *use) take(caller identity.ID, of string, max int) (release func(), ok bool) {
	key := useKey{caller, of}
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
