package dns

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/find/discovery"
)

const (
	minTTL    = 10 * time.Second // an answer holds that long at least
	maxTTL    = 24 * time.Hour   // and that long at most
	unsaidTTL = time.Minute      // in the end with a TTL of 0, which says nothing of when it will be another: dnsmasq gives it to its own records
	staleFor  = 24 * time.Hour   // that it holds no longer is no reason to forget it, while nobody answers (RFC 8767)
	retryMax  = 15 * time.Minute
	maxKept   = 4096 // questions
)

// memory caches answers for their TTL, and failures with a growing delay, so that no query is repeated sooner. Safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	kept    map[question]*kept
	network int // that what is kept is of, counted by expire
}

type kept struct {
	answer
	at       time.Time // of the answer; zero when there was none
	until    time.Time // when to ask again
	err      error     // why there was no answer the last time
	failures int
	zeros    int // answers with a TTL of 0, one after the other
}

// usable reports whether there is an answer that is better than none.
func (k *kept) usable(now time.Time) bool {
	return !k.at.IsZero() && (k.err == nil || now.Sub(k.at) < staleFor+k.ttl)
}

// recall gives what is kept, whether it need not be asked for, and the network on which it then is.
func (m *memory) recall(q question) (k kept, holds bool, network int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.kept[q]; have != nil {
		return *have, time.Now().Before(have.until), m.network
	}
	return kept{}, false, m.network
}

// note keeps what came of a question that was asked on a network, and gives that.
func (m *memory) note(q question, network int, a answer, err error) kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	k := m.kept[q]
	if k == nil {
		m.makeRoom(now)
		k = &kept{}
		m.kept[q] = k
	}
	defer func() {
		if network != m.network {
			k.until = time.Time{}
		}
	}()
	if k.err = err; err == nil {
		k.answer, k.at, k.failures = a, now, 0
		holds := min(max(a.ttl, minTTL), maxTTL)
		if a.ttl > 0 {
			k.zeros = 0
		} else { // or it is the last second of what a resolver has kept
			holds = min(minTTL<<min(k.zeros, 10), unsaidTTL)
			k.zeros++
		}
		k.until = now.Add(holds)
		return *k
	}
	pause := min(minTTL<<min(k.failures, 10), retryMax)
	k.failures++
	k.until = now.Add(pause - rand.N(pause/10))
	return *k
}

// makeRoom is called with mu held.
func (m *memory) makeRoom(now time.Time) {
	if len(m.kept) < maxKept {
		return
	}
	for q, k := range m.kept {
		if !now.Before(k.until) {
			delete(m.kept, q)
		}
	}
	if len(m.kept) >= maxKept {
		clear(m.kept)
	}
}

// expire marks all entries as expired. Their answers are still used while new ones fail.
func (m *memory) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.network++
	for _, k := range m.kept {
		k.until, k.failures = time.Time{}, 0
	}
}

// inquiry is a number of questions that are asked for one purpose.
type inquiry struct {
	ctx   context.Context
	ask   *resolver
	fresh bool // nothing that was answered before counts

	again time.Time // when to ask the first of them again
	asked []asked
}

// asked is what came of one question, for people.
type asked struct {
	question
	server string // who answered
	none   bool
	err    error
}

// get gives the records that answer a question, or the last that did. known: somebody answered; there may be none.
func (i *inquiry) get(name string, qtype dnsmessage.Type) (records []dnsmessage.Resource, at time.Time, known bool) {
	q := question{name, qtype}
	k, holds, network := i.ask.recall(q)
	if !holds || i.fresh {
		a, err := i.ask.query(i.ctx, q)
		if i.ctx.Err() != nil && err != nil { // the time that is over is that of all questions
			k.err, k.until = err, time.Now().Add(minTTL)
		} else {
			k = i.ask.note(q, network, a, err)
		}
	}
	i.again = discovery.Earlier(i.again, k.until)
	usable := k.usable(time.Now())
	i.asked = append(i.asked, asked{q, k.server, usable && len(k.records) == 0, k.err})
	if !usable {
		return nil, time.Time{}, false
	}
	return k.records, k.at, true
}

// failed is why something was not answered.
func (i *inquiry) failed() error {
	for _, a := range i.asked {
		if a.err != nil {
			return a.err
		}
	}
	return nil
}
